"""Live pumps on a pair of sockets, with real queues at both ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

from cqrepl.kernel import batch as kernel
from cqrepl.kernel import live
from cqrepl.kernel.board import MarkRow, new_bell
from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.livepump import Heard
from cqrepl.protocol.framer import Framing
from cqrepl.protocol.messages import write_cid
from cqrepl.queue import Appender, Queue, Tailer

T = TypeVar("T")
CID: Final = 77
OTHER_CID: Final = 78
HOST: Final = 2
CID_DOCUMENT: Final = write_cid(CID)
PAYLOAD_MAX: Final = 1 << 24
NS: Final = (1 << 40) + 1  # in the width that a clock's time has
LONG_MS: Final = 60_000  # a slice that ends before its time or not at all
WAIT_S: Final = 30.0
Excerpts = list[tuple[int, bytes]]


@dataclass
class Ends:
    """Two connected sockets that do not block, and the control of the pump on `near`."""

    near: socket.socket
    far: socket.socket
    control: live.LiveControl

    @classmethod
    @contextmanager
    def connected(cls) -> Iterator[Self]:
        """Both closed at the end of the block."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        with near, far:
            near.setblocking(False)
            far.settimeout(WAIT_S)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield cls(near, far, live.LiveControl())

    def stream(
        self, *lanes: live.SourceLane, slice_ms: int = 1, pausing: Pausing = Pausing.BALANCED
    ) -> tuple[Ended, bytes]:
        """The pump of a source, until it comes back."""
        ended, unsent, *_ = self.pump(lanes, [], slice_ms=slice_ms, pausing=pausing)
        return ended, unsent

    def hear(
        self, *lanes: live.SourceLane, data: bytes = b"", slice_ms: int = 1
    ) -> tuple[Ended, bytes, bytes, Heard]:
        """The pump of a source that receives too, until it comes back."""
        return self.pump(lanes, [], data=data, slice_ms=slice_ms)

    def receive(
        self, *lanes: live.SinkLane, data: bytes = b"", slice_ms: int = 1
    ) -> tuple[Ended, bytes, bytes]:
        """The pump of a sink, until it comes back; without whether it heard anything."""
        ended, left, unsent, _ = self.take(*lanes, data=data, slice_ms=slice_ms)
        return ended, left, unsent

    def take(
        self, *lanes: live.SinkLane, data: bytes = b"", slice_ms: int = 1
    ) -> tuple[Ended, bytes, bytes, Heard]:
        """The same, with when it has heard anything."""
        ended, unsent, left, heard = self.pump([], lanes, data=data, slice_ms=slice_ms)
        return ended, left, unsent, heard

    def pump(
        self,
        sources: Sequence[live.SourceLane],
        sinks: Sequence[live.SinkLane],
        *,
        data: bytes = b"",
        slice_ms: int = 1,
        pausing: Pausing = Pausing.BALANCED,
    ) -> tuple[Ended, bytes, bytes, Heard]:
        """The pump of queues that go out and of others that come in, until it comes back."""
        ended, unsent, left, heard = live.run_live(
            self.near.fileno(), self.control, sources, sinks, pausing, False, slice_ms, data
        )
        return Ended(ended), unsent, left, Heard(*heard)


class Running(threading.Thread):
    """A pump in a thread of its own, with its result."""

    def __init__(self, work: Callable[[], tuple[Ended, *tuple[bytes, ...]]]) -> None:
        super().__init__()
        self._work = work
        self.result: tuple[Ended, *tuple[bytes, ...]] | None = None
        self.start()

    def run(self) -> None:
        self.result = self._work()

    def ended(self) -> tuple[Ended, *tuple[bytes, ...]]:
        """The result that the pump came back with, within a time limit."""
        self.join(WAIT_S)
        assert self.result is not None
        return self.result


def source_lane(
    tailer: Tailer,
    room: tuple[int, int] = (kernel.NO_LIMIT, kernel.NO_LIMIT),
    payload_max: int = PAYLOAD_MAX,
    *,
    cid: int = CID,
    is_logged: bool = False,
    certain_end: int | None = None,
    row: MarkRow | None = None,
    index_sent: int = -1,
    target: int = kernel.NO_LIMIT,
    index_held: int = -1,
    has_much: bool = False,
    budget: live.SendBudget | None = None,
    can_prove: bool = True,
) -> live.SourceLane:
    """A lane from where a tailer stands; with `certain_end`, the tailer has entered its file.

    Args:
        row: where the host's marks are raised; None: on a board of its own.
    """
    if certain_end is None:
        tailer.has_next()  # it enters the first file
    stand = tailer.stand()
    assert stand is not None
    certain_end = stand.certain_end if certain_end is None else certain_end
    place = (stand.position, stand.index, stand.sequence, certain_end)
    return live.SourceLane(
        stand.data, place, write_cid(cid), payload_max, stand.recorded, room, is_logged,
        row or new_bell().board().row(HOST), index_sent, target, index_held, False, has_much,
        budget, can_prove=can_prove,
    )  # fmt: skip


class Taken(NamedTuple):
    """The work of a source's lane: its acknowledgements, three numbers for each; the number of
    excerpts sent; and the lengths of those that no acknowledgement settles."""

    acks: list[int]
    excerpts: int
    lengths: list[int]


def taken(lane: live.SourceLane) -> Taken:
    """The work of a lane since the last call."""
    acks, (settled, _), lengths = lane.take_sent()
    return Taken(acks.tolist(), settled + len(lengths), lengths.tolist())


def sink_lane(
    appender: Appender,
    *,
    cid: int = CID,
    payload_max: int = PAYLOAD_MAX,
    acknowledged: bool = True,
    held: int = -1,
) -> live.SinkLane:
    """A lane to where an appender stands."""
    assert appender.pen is not None
    return live.SinkLane(appender.pen, write_cid(cid), payload_max, acknowledged, True, held)


def frames_of(queue: Queue, cid: int = CID, after: int = 0) -> list[bytes]:
    """Each excerpt from the index `after` on as a frame."""
    framing, tailer = Framing(cid), queue.tailer(after)
    frames = []
    out = bytearray(PAYLOAD_MAX)
    while (batch := tailer.next_batch()) is not None:
        for place in range(len(batch)):
            single = batch.part(place, place + 1)
            _, filled = framing.frame(single, 0, NS, out, 0)
            frames.append(bytes(out[:filled]))
    return frames


def excerpts_of(stream: bytes, cid: int = CID) -> tuple[Excerpts, bytes]:
    """The excerpts in a stream of one queue's frames, and the bytes behind its last whole frame."""
    found: Excerpts = []
    at = 0
    while (scanned := kernel.scan_frames(stream, at, write_cid(cid))) is not None:
        index = scanned.index_first
        for offset, length in zip(scanned.offsets, scanned.lengths, strict=True):
            found.append((index, stream[offset : offset + length]))
            index += 1
        at = scanned.end
    return found, stream[at:]


def received(far: socket.socket, end: int) -> bytes:
    """Exactly so many bytes, or what came before the end of the stream."""
    data = bytearray()
    while len(data) < end and (part := far.recv(end - len(data))):
        data += part
    return bytes(data)


def content(path: Path) -> Excerpts:
    """All excerpts of a queue."""
    with Queue.open(path) as queue:
        return [(excerpt.index, bytes(excerpt)) for excerpt in queue.tailer()]
