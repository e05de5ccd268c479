"""The stores of an engine's sessions: who gives their factory, and how long they wait."""

from pathlib import Path

import pytest

from cqrepl.persist.errors import NoRole
from cqrepl.persist.factory import PersistenceFactory, ReplicatedPersistenceFactoryHolder
from cqrepl.persist.fixstores import FixStores, ReplicatedFactoryBuilder
from cqrepl.persist.localfactory import LocalPersistenceFactory
from cqrepl.persist.properties import read_properties

PROPERTIES = read_properties(
    b"storageFactory=com.epam.fixengine.storage.persistence.PersistenceEnableFactory\n"
    b"replicationTimeout=10\n"
    b"sessions.A-B.replicationTimeout=200\n"
    b"sessions.A-C.replicationTimeout=0\n",
    "fixengine.properties",
)


class Fake:
    """A builder that counts how often it is asked, and has nothing the first times."""

    def __init__(self, factory: PersistenceFactory, *, fails: int = 0) -> None:
        self.asked = 0
        self._factory = factory
        self._fails = fails

    def build(self) -> PersistenceFactory:
        self.asked += 1
        if self.asked <= self._fails:
            raise NoRole("not yet")
        return self._factory


def test_a_builder_is_asked_once_for_all_sessions(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        builder = Fake(factory)
        stores = FixStores(PROPERTIES, builder)
        assert builder.asked == 0
        for session in ("A-B", "A-C", "A-D"):
            stores.session(session).set_message(1, b"one")
        assert builder.asked == 1
        assert stores.session("A-C").next_sender == 2


def test_a_session_waits_as_its_properties_say_or_those_of_the_engine(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        stores = FixStores(PROPERTIES, Fake(factory))
        for session, seconds in (("A-B", 0.2), ("A-C", 0.0), ("A-D", 0.01)):
            store = stores.session(session)
            assert store.timeout_s == seconds
            assert store.waiting.timeout_s == seconds


def test_without_a_host_a_session_says_so_and_is_made_later(tmp_path: Path) -> None:
    with pytest.raises(NoRole):
        FixStores(PROPERTIES, ReplicatedFactoryBuilder()).session("A-B")
    with LocalPersistenceFactory(tmp_path) as factory:
        stores = FixStores(PROPERTIES, Fake(factory, fails=1))
        with pytest.raises(NoRole):
            stores.session("A-B")
        assert stores.session("A-B").next_sender == 1


def test_the_replicated_builder_takes_the_factory_of_its_group(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        ReplicatedPersistenceFactoryHolder.put("fix", factory)
        try:
            assert ReplicatedFactoryBuilder("fix").build() is factory
            with pytest.raises(NoRole, match="other"):
                ReplicatedFactoryBuilder("other").build()
        finally:
            ReplicatedPersistenceFactoryHolder.take_back("fix")
