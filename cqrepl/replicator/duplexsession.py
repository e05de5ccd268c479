"""Work in both directions on one connection: some queues go out, others come in."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from cqrepl.net.link import Session
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.outgoing.sourcesession import SourceSession

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane
    from cqrepl.kernel.memory import WatchedWord

OneWay = TypeVar("OneWay", SourceSession, SinkSession)


class DuplexSession:
    """A source's and a sink's work on one connection; each event goes to the queue's own side."""

    def __init__(self, source: SourceSession, sink: SinkSession) -> None:
        self.source = source
        self.sink = sink
        self._is_sinks_turn = False

    @property
    def out_bytes(self) -> int:
        return max(self.source.out_bytes, self.sink.out_bytes)

    def polls(self, rooms: Rooms) -> bool:
        return self.source.polls(rooms)

    @property
    def waited(self) -> "Sequence[WatchedWord] | None":
        return self.source.waited

    @property
    def is_settled(self) -> bool:
        return self.source.is_settled and self.sink.is_settled

    @property
    def has_progressed(self) -> bool:
        return self.source.has_progressed or self.sink.has_progressed

    @property
    def queue_names(self) -> QueueNames:
        return self.source.queue_names | self.sink.queue_names

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.source.work)
            nursery.start_soon(self.sink.work)

    async def act(self, event: ev.Event) -> None:
        cid = getattr(event, "cid", None)
        if cid is None:
            await self.source.act(event)
            await self.sink.act(event)
        elif self.source.has(cid):
            await self.source.act(event)
        else:
            await self.sink.act(event)

    async def settle(self) -> None:
        await self.source.settle()
        await self.sink.settle()

    def frame(self, out: bytearray, rooms: Rooms) -> int:
        """The stream and the back copies in turn, so that neither holds up the other."""
        self._is_sinks_turn = not self._is_sinks_turn
        first, second = self.source, self.sink
        if self._is_sinks_turn:
            return second.frame(out, rooms) or first.frame(out, rooms)
        return first.frame(out, rooms) or second.frame(out, rooms)

    def watched(self, rooms: Rooms) -> "Sequence[WatchedWord] | None":
        return self.source.watched(rooms)

    def lanes_out(self) -> "list[SourceLane]":
        return self.source.lanes_out()

    def lanes_in(self) -> "list[SinkLane]":
        return self.sink.lanes_in()

    def catch_up(self) -> None:
        self.source.catch_up()
        self.sink.catch_up()

    async def catch_up_in_turns(self) -> None:
        await self.source.catch_up_in_turns()
        await self.sink.catch_up_in_turns()

    @property
    def sent_live(self) -> int:
        return self.source.sent_live

    @property
    def stored_live(self) -> int:
        return self.sink.stored_live

    def leave_lanes(self) -> None:
        self.source.leave_lanes()
        self.sink.leave_lanes()

    def drain(self) -> None:
        self.source.drain()
        self.sink.drain()

    async def close(self) -> None:
        await self.source.close()
        await self.sink.close()


def sessions_of(kind: type[OneWay], sessions: Iterable[Session]) -> Iterator[OneWay]:
    """The sessions of one direction, also as halves of those that go both ways."""
    for session in sessions:
        halves = (
            (session.source, session.sink) if isinstance(session, DuplexSession) else (session,)
        )
        for half in halves:
            if isinstance(half, kind):
                yield half
