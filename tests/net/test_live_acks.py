"""A source's live pump and the messages that the peer sends meanwhile."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cqrepl.kernel import batch, live
from cqrepl.kernel.board import AckLevel, Waited, new_bell
from cqrepl.kernel.live import Ended
from cqrepl.protocol.messages import write_acknowledgement, write_cid, write_heartbeat
from cqrepl.protocol.messages.levels import write_level, write_wanted
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.proofs import write_proof
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index
from tests.net.live_pumps import (
    CID_DOCUMENT,
    HOST,
    LONG_MS,
    NS,
    OTHER_CID,
    WAIT_S,
    Ends,
    Running,
    content,
    excerpts_of,
    frames_of,
    received,
    source_lane,
    taken,
)
from tests.support.descriptors import is_readable

APPENDED: Final = AckLevel.APPENDED

pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")


def queue_of(path: Path, count: int) -> Queue:
    """A queue with `count` short excerpts."""
    queue = Queue.open(path, create="FAST_DAILY")
    for number in range(count):
        queue.append(b"%d" % number)
    return queue


def acknowledgement(index: int) -> bytes:
    """As a sink of ours sends it."""
    return CID_DOCUMENT + write_acknowledgement(index, NS)


def reset(end: socket.socket) -> None:
    """Closes a socket so that its peer meets an error, not the end of a stream."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def test_acknowledgements_are_noted(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        indexes = [index for index, _ in content(tmp_path / "q")]
        lane = source_lane(queue.tailer(), is_logged=True)
        said = b"".join(acknowledgement(index) for index in indexes)
        ends.far.sendall(said[7:])
        began = time.monotonic_ns()
        ended, unsent, left, (heard_ns, _) = ends.hear(lane, data=said[:7], slice_ms=100)
        assert (ended, unsent, left) == (Ended.SLICE, b"", b"")
        assert heard_ns is not None
        acks, count, lengths = taken(lane)
        assert acks[::3] == indexes
        assert set(acks[1::3]) == {NS}
        assert all(began <= at <= time.monotonic_ns() for at in acks[2::3])
        assert count == len(lengths) == 5
        assert taken(lane) == ([], 0, [])


def test_no_length_is_kept_of_what_is_acknowledged(tmp_path: Path) -> None:
    """Else they are megabytes where much goes out. A log wants each: there they are."""
    for is_logged, left in ((False, 2), (True, 5)):
        with queue_of(tmp_path / f"{is_logged}", 5) as queue, Ends.connected() as ends:
            last = queue.last_index() or 0
            lane = source_lane(queue.tailer(), is_logged=is_logged)
            assert ends.hear(lane, slice_ms=100)[0] is Ended.SLICE
            ends.far.sendall(acknowledgement(last - 2))
            assert ends.hear(lane, slice_ms=100)[0] is Ended.SLICE
            acks, count, lengths = taken(lane)
            assert (acks[0], count, len(lengths)) == (last - 2, 5, left)


@pytest.mark.parametrize(
    ("ago", "is_logged", "noted"),
    [((4, 2, 0), False, [0]), ((1, 0, 4, 0), True, [1, 0]), ((1, 0, 4, 0), False, [0])],
)
def test_an_acknowledgement_that_was_overtaken_is_no_news(
    tmp_path: Path, ago: tuple[int, ...], is_logged: bool, noted: list[int]
) -> None:
    """The last one will do, where no log wants each."""
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        lane = source_lane(queue.tailer(), is_logged=is_logged)
        last = queue.last_index() or 0
        ends.far.sendall(b"".join(acknowledgement(last - each) for each in ago))
        assert ends.hear(lane, slice_ms=100)[0] is Ended.SLICE
        assert taken(lane).acks[::3] == [last - each for each in noted]


BEAT: Final = write_cid(OTHER_CID) + write_heartbeat()
LINEAGE: Final = Lineage(first_cycle=1, chain=bytes(16), cycles=bytes(16))
PROOF: Final = CID_DOCUMENT + write_proof(Index(1), LINEAGE)
# another code for the index, as good as ours


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (BEAT, b""),
        (BEAT[:-3], BEAT[len(write_cid(OTHER_CID)) : -3]),
        (PROOF, b""),
        (PROOF[: len(CID_DOCUMENT) + 3], PROOF[: len(CID_DOCUMENT) + 3]),
        (write_cid(OTHER_CID) + write_wanted(AckLevel.SYNCED), b""),
        (acknowledgement(1).replace(b"idx\xaf", b"idx\xa7"), b""),
    ],
    ids=["a beat", "a part of it", "a proof", "a part of it", "a wanted level", "another code"],
)
def test_what_else_the_peer_says_is_handed_over(tmp_path: Path, other: bytes, kept: bytes) -> None:
    """A pump runs on; of what is not whole some is left to its caller."""
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        lane = source_lane(queue.tailer())
        last = queue.last_index() or 0
        ends.far.sendall(acknowledgement(last) + other)
        ended, unsent, left, heard = ends.hear(lane, slice_ms=100)
        assert (ended, unsent, left) == (Ended.SLICE, b"", kept)
        assert ends.control.take_handed() + left == other
        assert None not in heard
        assert taken(lane).acks[0] == last


def test_the_pump_rings_and_runs_on(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.hear(lane, slice_ms=LONG_MS)[:3])
        for nth in range(3):
            other = write_cid(OTHER_CID) + write_heartbeat()
            ends.far.sendall(other)
            handed = b""
            while len(handed) < len(other):
                assert is_readable(ends.control.bell, WAIT_S)
                handed += ends.control.take_handed()
            assert handed == other, nth
        assert not is_readable(ends.control.bell)
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")


@pytest.mark.parametrize("come", [0, 20_000])
def test_a_long_document_is_waited_for(tmp_path: Path, come: int) -> None:
    """Were it given back in pieces, it would be lent again as it is, and never be whole."""
    with queue_of(tmp_path / "q", 2) as queue, Ends.connected() as ends:
        with Queue.open(tmp_path / "other", create="FAST_DAILY") as other:
            other.append(bytes(100_000))
            (frame,) = frames_of(other, cid=OTHER_CID)
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.hear(lane, data=frame[:come], slice_ms=LONG_MS)[:3])
        ends.far.sendall(frame[come:])
        ended, *rest = pump.ended()
        assert ended is Ended.UNUSUAL
        assert ends.control.take_handed() + rest[-1] == frame


def test_an_excerpt_without_a_lane_is_left(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 2) as queue, Ends.connected() as ends:
        frames = b"".join(frames_of(queue, cid=OTHER_CID))
        ends.far.sendall(frames)
        ended, _, left, _ = ends.hear(source_lane(queue.tailer()), slice_ms=LONG_MS)
        assert ended is Ended.UNUSUAL
        assert ends.control.take_handed() + left == frames


def test_a_cut_acknowledgement_is_left_when_time_is_over(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 1) as queue, Ends.connected() as ends:
        lane = source_lane(queue.tailer())
        said = acknowledgement(queue.last_index() or 0)
        for end in range(1, len(said), 3):
            ends.far.sendall(said[:end])
            ended, _, left, (heard_ns, began_ns) = ends.hear(lane, slice_ms=60)
            assert (ended, left) == (Ended.SLICE, said[:end])
            assert heard_ns is not None
            assert began_ns is not None


def test_what_is_handed_back_unread_was_not_heard(tmp_path: Path) -> None:
    """Nor has it begun to come then; what comes behind it is heard, and has not begun either."""
    with queue_of(tmp_path / "q", 1) as queue, Ends.connected() as ends:
        lane = source_lane(queue.tailer())
        said = acknowledgement(queue.last_index() or 0)
        came = ends.hear(lane, data=said[:9], slice_ms=10)
        assert came == (Ended.SLICE, b"", said[:9], (None, None))
        ends.far.sendall(said[9:20])
        _, _, left, (heard_ns, began_ns) = ends.hear(lane, data=said[:9], slice_ms=60)
        assert left == said[:20]
        assert heard_ns is not None
        assert began_ns is None


def test_a_rest_began_when_its_first_byte_came(tmp_path: Path) -> None:
    """Not when what stands before it did, which was taken."""
    with queue_of(tmp_path / "q", 2) as queue, Ends.connected() as ends:
        last = queue.last_index() or 0
        lane = source_lane(queue.tailer())
        first, second = acknowledgement(last - 1), acknowledgement(last)
        ends.far.sendall(first[9:] + second[:9])
        _, _, left, (heard_ns, began_ns) = ends.hear(lane, data=first[:9], slice_ms=60)
        assert left == second[:9]
        assert taken(lane).acks[0] == last - 1
        assert heard_ns is not None
        assert began_ns == heard_ns


def test_the_peers_end_is_told(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 1) as queue, Ends.connected() as ends:
        ends.far.shutdown(socket.SHUT_WR)
        lane = source_lane(queue.tailer())
        came = ends.hear(lane, slice_ms=LONG_MS)
        assert came == (Ended.END_OF_STREAM, b"", b"", (None, None))
        ends.near.shutdown(socket.SHUT_WR)
        found, _ = excerpts_of(received(ends.far, 1 << 30))
        assert found == content(tmp_path / "q")


@contextmanager
def streaming(ends: Ends, lane: live.SourceLane) -> Iterator[None]:
    """The pump of a lane runs, until the end of the block."""
    pump = Running(lambda: ends.hear(lane, slice_ms=LONG_MS)[:3])
    try:
        yield
        assert pump.result is None
    finally:
        ends.control.interrupt()
    assert pump.ended()[0] is Ended.INTERRUPTED


def test_an_acknowledgement_wakes_what_waits_for_it(tmp_path: Path) -> None:
    """While the pump runs on."""
    bell = new_bell()
    board = bell.board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        last = queue.last_index() or 0
        lane = source_lane(queue.tailer(), row=board.row(HOST))
        with streaming(ends, lane):
            ends.far.sendall(acknowledgement(last - 1))
            assert board.wait(last - 1, 1, APPENDED, None, WAIT_S) == Waited.REACHED
            assert board.wait(last, 1, APPENDED, None, 0.05) == Waited.UNKNOWN
            board.watch(last, 1, APPENDED, [HOST])
            ends.far.sendall(acknowledgement(last))
            assert is_readable(bell.fileno(), WAIT_S)
            assert board.marks(APPENDED) == [(HOST, last)]
        assert taken(lane).acks[0] == last


def test_the_bell_rings_once_for_the_target_of_each_lane(tmp_path: Path) -> None:
    """Also where the mark is there already, as it came over another connection."""
    bell = new_bell()
    row = bell.board().row(HOST)
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        last = queue.last_index() or 0
        row.raise_to(APPENDED, last + 1)
        lane = source_lane(queue.tailer(), row=row, target=last)
        with streaming(ends, lane):
            ends.far.sendall(acknowledgement(last - 1))
            assert not is_readable(bell.fileno(), 0.05)
            ends.far.sendall(acknowledgement(last))
            assert is_readable(bell.fileno(), WAIT_S)
            bell.clear()
            queue.append(b"more")
            ends.far.sendall(acknowledgement(last + 1))
            assert not is_readable(bell.fileno(), 0.05)


@pytest.mark.parametrize("can_prove", [True, False])
@pytest.mark.parametrize("sent", [0, 3])
def test_what_was_not_sent_is_not_marked(tmp_path: Path, sent: int, *, can_prove: bool) -> None:
    """Nor is it where something was sent before it: the protocol is left to refuse it; or it is a
    claim, and what comes behind it counts."""
    bell = new_bell()
    board = bell.board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        first, last = queue.first_index() or 0, queue.last_index() or 0
        room = (sent, batch.NO_LIMIT)
        before = first - 1 if sent else -1
        lane = source_lane(
            queue.tailer(),
            room,
            row=board.row(HOST),
            index_sent=before,
            target=first,
            can_prove=can_prove,
        )
        beyond = acknowledgement(first + sent)
        ends.far.sendall(beyond)
        ended, _, left, _ = ends.hear(lane, slice_ms=100)
        assert board.marks(APPENDED) == []
        assert taken(lane).acks == []
        assert first + sent <= last
        assert (ended, left) == ((Ended.UNUSUAL, beyond) if can_prove else (Ended.SLICE, b""))
        assert lane.index_claimed == (-1 if can_prove else first + sent)
        assert not is_readable(bell.fileno())
        if sent and not can_prove:
            ends.far.sendall(acknowledgement(first + 1))
            ends.hear(lane, slice_ms=100)
            assert board.marks(APPENDED) == [(HOST, first + 1)]
            assert taken(lane).acks[0] == first + 1


def test_a_claim_is_raised_in_place_of_the_mark(tmp_path: Path) -> None:
    """A lane raises it in its thread, and wakes who waits for an index of it."""
    board = new_bell().board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        first = queue.first_index() or 0
        row = board.row(HOST).claiming(first + 1)
        lane = source_lane(queue.tailer(), row=row, can_prove=False)
        with streaming(ends, lane):
            ends.far.sendall(acknowledgement(first + 3))
            assert board.wait(first + 3, 1, APPENDED, None, WAIT_S) == Waited.REACHED
        assert board.has(first + 1, 1, APPENDED, None)
        assert not board.has(first, 1, APPENDED, None)
        assert not board.has(first + 4, 1, APPENDED, None)
        assert board.marks(APPENDED) == []


@pytest.mark.parametrize("which", [AckLevel.SYNCED, AckLevel.APPLIED])
def test_a_further_level_is_marked_as_far_as_it_was_acknowledged(
    tmp_path: Path, which: AckLevel
) -> None:
    bell = new_bell()
    board = bell.board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        first = queue.first_index() or 0
        row = board.row(HOST)
        row.raise_to(AckLevel.APPENDED, first - 1)  # what a sink has when it comes counts
        lane = source_lane(queue.tailer(), row=row, index_held=first - 1)
        with streaming(ends, lane):
            ends.far.sendall(CID_DOCUMENT + write_level(which, first - 1))
            assert board.wait(first - 1, 1, which, None, WAIT_S) == Waited.REACHED
            said = acknowledgement(first + 2) + CID_DOCUMENT + write_level(which, first + 2)
            ends.far.sendall(said[:40])
            ends.far.sendall(said[40:])
            assert board.wait(first + 2, 1, which, None, WAIT_S) == Waited.REACHED
        assert board.marks(which) == [(HOST, first + 2)]
        assert taken(lane).acks[0] == first + 2


@pytest.mark.parametrize("which", [AckLevel.SYNCED, AckLevel.APPLIED])
def test_one_of_what_was_not_acknowledged_is_left_to_the_protocol(
    tmp_path: Path, which: AckLevel
) -> None:
    board = new_bell().board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        first = queue.first_index() or 0
        lane = source_lane(queue.tailer(), row=board.row(HOST))
        forged = CID_DOCUMENT + write_level(which, first + 1)
        ends.far.sendall(acknowledgement(first) + forged)
        ended, unsent, left, _ = ends.hear(lane, slice_ms=LONG_MS)
        assert (ended, unsent, left) == (Ended.UNUSUAL, b"", forged)
        assert board.marks(which) == []


def test_a_lane_that_is_mute_marks_nothing(tmp_path: Path) -> None:
    board = new_bell().board()
    with queue_of(tmp_path / "q", 5) as queue, Ends.connected() as ends:
        last = queue.last_index() or 0
        lane = source_lane(queue.tailer(), row=board.row(HOST))
        lane.mute()
        ends.far.sendall(acknowledgement(last))
        ends.far.sendall(CID_DOCUMENT + write_level(AckLevel.SYNCED, last))
        ends.hear(lane, slice_ms=100)
        assert board.marks(APPENDED) == board.marks(AckLevel.SYNCED) == []
        assert taken(lane).acks[0] == last


def test_rings_before_room_is_missed(tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", 8) as queue, Ends.connected() as ends:
        last = queue.last_index() or 0
        lane = source_lane(queue.tailer(), room=(12, batch.NO_LIMIT))
        ends.far.sendall(acknowledgement(last - 4))
        pump = Running(lambda: ends.hear(lane, slice_ms=LONG_MS)[:3])
        assert is_readable(ends.control.bell, WAIT_S)
        acks, count, lengths = taken(lane)
        assert (acks[0], count, len(lengths)) == (last - 4, 8, 4)
        lane.add_room(4, 0)
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")
