"""The stores of all sessions of a FIX engine, as its `fixengine.properties` says.

What FIX Antenna has as classes that the file names (`PersistenceEnableFactory` and the builder of
its factory) is here a `FixStores` and a `FactoryBuilder`, which the program makes itself: a name in
a file chooses no class.
"""

import threading
from dataclasses import dataclass
from typing import Protocol

from cqrepl.persist.factory import PersistenceFactory, ReplicatedPersistenceFactoryHolder
from cqrepl.persist.fix import FixSessionStore
from cqrepl.persist.properties import PersistProperties


class FactoryBuilder(Protocol):
    """Gives the factory of the storages of sessions."""

    def build(self) -> PersistenceFactory:
        """The factory.

        Raises:
            NoRole: there is none yet.
        """


@dataclass(frozen=True, slots=True)
class ReplicatedFactoryBuilder:
    """Gives the factory of a group of a host in this process; of the only one, if none is named."""

    group: str | None = None

    def build(self) -> PersistenceFactory:
        """The factory.

        Raises:
            NoRole: no host of this process has begun with that group.
        """
        return ReplicatedPersistenceFactoryHolder.get_factory(self.group)


class FixStores:
    """Makes the stores of sessions. The builder is asked once, with the first session.

    Args:
        properties: of the engine: `replicationTimeout`, and that of single sessions.
    """

    def __init__(self, properties: PersistProperties, builder: FactoryBuilder) -> None:
        self._properties = properties
        self._builder = builder
        self._guard = threading.Lock()
        self._factory: PersistenceFactory | None = None

    def session(self, session_id: str) -> FixSessionStore:
        """The store of a session, which waits as long as the properties say for it.

        Raises:
            NoRole: there is no factory yet; it is asked for again with the next session.
            NotLeader, StorageDamaged, ValueError, QueueError, OSError: as `FixSessionStore`.
        """
        with self._guard:
            if self._factory is None:
                self._factory = self._builder.build()
        timeout_s = self._properties.session_timeout_ms(session_id) / 1000
        return FixSessionStore(self._factory, session_id, timeout_s)
