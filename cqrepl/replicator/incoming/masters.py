"""The queues of a sink that are taken from the peer of one connection.

The file of a cluster names one master for each queue. Any other host that offers it, by another
version of that file or because it offers what it has to whatever is there, as Java's sources do, is
refused. Where no master is named, every host is taken. A promotion names another one
(`queue.format.epochs`).
"""

import logging
from collections.abc import Mapping, Set

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.replicator.incoming.sinkqueue import SinkQueue


class QueuesFromHere:
    """Those that the peer of a connection is the master of, or that have none."""

    def __init__(self, queues: Mapping[str, SinkQueue], connection: Connection) -> None:
        self._queues = queues
        self._connection = connection
        self._names: frozenset[str] | None = None

    @property
    def names(self) -> Set[str]:
        """Their names; to be asked for once the peer has said who it is."""
        if self._names is None:
            own = (name for name, each in self._queues.items() if self.refusal(each) is None)
            self._names = frozenset(own)
        return self._names

    def look_again(self) -> None:
        """There are other queues now."""
        self._names = None

    def tell_not_taken(self, name: str) -> None:
        """Tells the peer not to offer a queue, which is taken from another host now."""
        names = QueueNames(sinks=frozenset({name}))
        self._connection.change_queues(added=QueueNames(), removed=names)

    @property
    def takes_offers(self) -> bool:
        """True for a peer that has said who it is, and has queues."""
        return self._connection.remote_id is not None and not self._connection.is_guest

    @property
    def unoffered(self) -> Set[str]:
        """Queues that the source does not have, by the names that it told."""
        named = self._connection.peer_queues
        return set() if named is None else self._queues.keys() - named.sources

    def hear_names(self, pump: Pump) -> None:
        """The source has named what it has, for the first time: what it lacks is said."""
        named = self._connection.peer_queues
        assert named is not None
        for name in sorted(self.names - named.sources):
            self._queues[name].was_left_out = True
            pump.log.tell(logging.INFO, pump.label, f"queue {name!r}: the peer does not offer it")

    def refusal(self, queue: SinkQueue) -> str | None:
        """The reason why a queue is not taken from this peer; None where it is taken."""
        if queue.master_id in (None, self._connection.remote_id) or not queue.epochs.are_known:
            return None  # by its epochs another host may lead it: they are read when it is offered
        if not queue.master_id:
            return "no host leads it yet"
        return f"it is taken from host {queue.master_id} only"
