"""The work on one connection: the part between the pump and the queues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol.events import Event
from cqrepl.protocol.messages.queuenames import QueueNames

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane
    from cqrepl.kernel.memory import WatchedWord

OUT_BYTES: Final = 256 * 1024  # of frames that are made and sent in one step


class Session(Protocol):
    """One connection's work on its queues. Methods run in the pump's tasks."""

    async def work(self) -> None:
        """Runs beside the connection for as long as it is there; may return at once."""

    @property
    def queue_names(self) -> QueueNames:
        """The names of our queues, which the peer is told when it is there."""

    async def act(self, event: Event) -> None:
        """Acts on one event of the core; answers through the core's methods."""

    async def settle(self) -> None:
        """Returns when all that came is acted on: nothing more comes."""

    def frame(self, out: bytearray, rooms: Rooms) -> int:
        """Writes frames to be sent into `out`; how many bytes (0: nothing to send now).

        Args:
            rooms: no excerpt is begun behind so many bytes.
        """

    @property
    def out_bytes(self) -> int:
        """Size that `out` must have for the next call of `frame`."""

    def polls(self, rooms: Rooms) -> bool:
        """True while a queue has to be looked at again and again for something to send. One that
        has no room now is not."""

    def watched(self, rooms: Rooms) -> "Sequence[WatchedWord] | None":
        """The words of which one changes before there is anything to send again, if `frame` has
        just found nothing for these rooms; None when no words tell that. More room may come before
        any of them changes."""

    @property
    def is_settled(self) -> bool:
        """True when nothing of ours is on its way: an orderly end may be announced."""

    @property
    def has_progressed(self) -> bool:
        """True when this connection has brought excerpts to where they are to be."""

    def lanes_out(self) -> "list[SourceLane]":
        """The queues that a live pump can send of from now on; empty when it is not for one."""

    def lanes_in(self) -> "list[SinkLane]":
        """The queues that a live pump can store for from now on; empty when it is not for one."""

    @property
    def waited(self) -> "Sequence[WatchedWord] | None":
        """The words of the queues that go out and have no lane: one changes before `frame` finds
        anything there. None while `frame` has to look all the time."""

    def catch_up(self) -> None:
        """Tells the core what a live pump has done since the last call; it may still run."""

    async def catch_up_in_turns(self) -> None:
        """The same, where nothing waits for it: others have their turn between two queues."""

    @property
    def sent_live(self) -> int:
        """The number of excerpts that live pumps have sent on this connection, as far as known."""

    @property
    def stored_live(self) -> int:
        """The number of excerpts that live pumps have stored, as far as known."""

    def leave_lanes(self) -> None:
        """The live pump has come back: goes on from where it is."""

    def drain(self) -> None:
        """Takes nothing new to send; what is on its way goes on."""

    async def close(self) -> None:
        """The connection is over: gives back what it held."""
