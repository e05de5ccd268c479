"""The native pumps by themselves: what they pass on, and what they leave to their caller."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cqrepl.kernel import batch as kernel
from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.kernel.live import Ended, Pausing
from cqrepl.protocol.messages import (
    TerminatorHandler,
    write_acknowledgement,
    write_cid,
    write_heartbeat,
    write_registration,
)
from cqrepl.protocol.messages.excerpts import write_stopped
from cqrepl.protocol.messages.levels import write_level
from cqrepl.protocol.messages.names import WireShape
from cqrepl.protocol.messages.queuenames import write_ended
from cqrepl.queue import Appender, Queue, Tailer
from tests.net.live_pumps import (
    CID,
    CID_DOCUMENT,
    LONG_MS,
    NS,
    OTHER_CID,
    PAYLOAD_MAX,
    WAIT_S,
    Ends,
    Running,
    content,
    excerpts_of,
    frames_of,
    received,
    sink_lane,
    source_lane,
    taken,
)

pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")


def filled(path: Path, count: int, *, size: int = 20, seed: int = 1) -> Queue:
    """A queue with `count` excerpts."""
    queue, chance = Queue.open(path, create="FAST_DAILY"), random.Random(seed)
    for _ in range(count):
        queue.append(chance.randbytes(chance.randrange(1, size + 1)))
    return queue


def entered(queue: Queue) -> tuple[Tailer, int]:
    """A tailer that stands at the start of the first file, and where that one's slots begin."""
    tailer = queue.tailer()
    tailer.has_next()
    stand = tailer.stand()
    assert stand is not None
    _, _, slots, _ = stand.recorded
    assert slots is not None
    return tailer, slots[0]


def copy_of(queue: Queue, path: Path, *, room: bool = False) -> tuple[Queue, Appender]:
    """A queue that has the first excerpt of another at its index, and the appender of that; with
    room for the others, which a pump leaves to its caller."""
    copy = Queue.open(path, create=queue.layout)
    batch = queue.tailer().next_batch(count_max=1)
    assert batch is not None
    appender = copy.appender()
    if room:
        whole = queue.tailer().next_batch(bytes_max=1 << 30)
        assert whole is not None
        appender.reserve(whole)
    appender.append_at(batch)
    return copy, appender


# a source's pump


@pytest.mark.parametrize("pausing", list(Pausing))
def test_what_appears_is_sent(tmp_path: Path, pausing: Pausing) -> None:
    with filled(tmp_path / "q", 3) as queue, Ends.connected() as ends:
        tailer = queue.tailer()
        lane = source_lane(tailer)
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS, pausing=pausing))
        frames = frames_of(queue)
        stream = received(ends.far, len(b"".join(frames)))
        queue.append(b"later")
        stream += received(ends.far, len(frames_of(queue)[-1]))
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"")
        assert excerpts_of(stream) == (content(tmp_path / "q"), b"")
        assert taken(lane).excerpts == 4
        tailer.pass_by(4, lane.position, lane.position_last)
        queue.append(b"last")
        last = tailer.next_excerpt()
        assert last is not None
        assert bytes(last) == b"last"


def test_a_source_stops_before_the_end_of_a_file(tmp_path: Path) -> None:
    noon_ms = 1_709_640_000_000
    with Queue.open(tmp_path / "q", create="MINUTELY") as queue, Ends.connected() as ends:
        appender = queue.appender()
        for minute in range(2):
            appender.append([b"a", b"b"], noon_ms + minute * 60_000)
        tailer = queue.tailer()
        assert tailer.next_excerpt() is not None
        lane = source_lane(tailer)
        assert ends.stream(lane, slice_ms=LONG_MS) == (Ended.TAILER, b"")
        assert taken(lane).lengths == [1]
        tailer.pass_by(1, lane.position, lane.position_last)
        assert tailer.stand() is None
        assert [bytes(excerpt) for excerpt in tailer] == [b"a", b"b"]


def test_a_source_leaves_what_is_longer_than_allowed(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue, Ends.connected() as ends:
        for size in (10, 3 << 20, (3 << 20) + 1):
            queue.append(bytes(size))
        lane = source_lane(queue.tailer(), payload_max=3 << 20)
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        stream = received(ends.far, len(b"".join(frames_of(queue)[:2])))
        assert excerpts_of(stream) == (content(tmp_path / "q")[:2], b"")
        assert pump.ended() == (Ended.TAILER, b"")
        assert taken(lane).lengths == [10, 3 << 20]


def test_a_source_leaves_what_an_index_slot_contradicts(tmp_path: Path) -> None:
    """It sends what the slot before proves, and no more."""
    with filled(tmp_path / "q", 600) as queue, Ends.connected() as ends:
        tailer, slots = entered(queue)
        frames, expected = frames_of(queue)[:256], content(tmp_path / "q")[:256]
        (file,) = (tmp_path / "q").glob("*.cq4")
        with file.open("r+b") as store:
            store.seek(slots + 2 * 8)  # of sequence 512
            store.write((4711 * 4).to_bytes(8, "little"))
        lane = source_lane(tailer, certain_end=0)
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        stream = received(ends.far, len(b"".join(frames)))
        assert excerpts_of(stream) == (expected, b"")
        assert pump.ended() == (Ended.TAILER, b"")
        assert taken(lane).excerpts == 256


@pytest.mark.parametrize(("count", "shift"), [(9, -4), (9, 4000), (200, 4), (200, 40)])
def test_a_source_sends_nothing_on_the_strength_of_a_walk_alone(
    tmp_path: Path, count: int, shift: int
) -> None:
    """One length is wrong in a file of fewer excerpts than a slot spans: it could be any."""
    with filled(tmp_path / "q", count) as queue, Ends.connected() as ends:
        tailer = queue.tailer()
        tailer.has_next()
        batch = tailer.next_batch()
        assert batch is not None
        at = batch.offsets[4] - 4
        (file,) = (tmp_path / "q").glob("*.cq4")
        with file.open("r+b") as store:
            store.seek(at)
            length = int.from_bytes(store.read(4), "little")
            store.seek(at)
            store.write((length + shift).to_bytes(4, "little"))
        tailer.give_back(batch, 0)
        lane = source_lane(tailer, certain_end=0)
        assert ends.stream(lane, slice_ms=LONG_MS) == (Ended.TAILER, b"")
        assert not taken(lane).excerpts


@pytest.mark.parametrize("seed", range(1, 8, 2))
def test_whatever_length_is_wrong_what_a_source_sends_was_written(
    tmp_path: Path, seed: int
) -> None:
    """With all slots, and with only some of them set, in runs longer than one look."""
    chance = random.Random(seed)
    size = chance.choice([20, 60])
    with filled(tmp_path / "q", 1800, size=size, seed=seed) as queue, Ends.connected() as ends:
        expected = content(tmp_path / "q")
        tailer = queue.tailer()
        headers = []
        while (batch := tailer.next_batch()) is not None:
            headers += [offset - 4 for offset in batch.offsets]
        tailer, slots = entered(queue)
        nth = chance.randrange(len(headers) - 40)
        ahead = chance.choice([headers[nth + chance.randrange(2, 30)] - headers[nth], 4 * nth + 8])
        (file,) = (tmp_path / "q").glob("*.cq4")
        with file.open("r+b") as store:
            for slot in range(1, 8):
                if chance.random() < seed / 8:
                    store.seek(slots + slot * 8)
                    store.write(bytes(8))
            store.seek(headers[nth])
            store.write((ahead - 4).to_bytes(4, "little"))
        lane = source_lane(tailer, certain_end=0)
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        assert pump.ended()[0] is Ended.TAILER
        sent = taken(lane).excerpts
        assert sent <= nth
        ends.near.shutdown(socket.SHUT_WR)
        assert excerpts_of(received(ends.far, 1 << 30)) == (expected[:sent], b"")


def test_a_source_goes_on_from_one_index_page_to_the_next(tmp_path: Path) -> None:
    """A buffer ends before a page does, so that only the next page's slots prove what is behind."""
    payloads = [bytes([1 + nth % 255]) * 10_000 for nth in range(150)]
    with Queue.open(tmp_path / "q", create="TEST2_DAILY") as queue, Ends.connected() as ends:
        queue.append_many(payloads)
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        stream = received(ends.far, len(b"".join(frames_of(queue))))
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"")
        assert [payload for _, payload in excerpts_of(stream)[0]] == payloads


def test_a_source_leaves_what_should_be_the_next_index_page(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="TEST2_DAILY") as queue, Ends.connected() as ends:
        queue.append_many([bytes(10_000)] * 50)
        (file,) = (tmp_path / "q").glob("*.cq4")
        _, at = entered(queue)
        second = at - 16 - 16 * 8  # of the page of pages, which stands before the first page
        image = file.read_bytes()
        second = image.index(image[second:at].rpartition(b"index")[1], at)
        with file.open("r+b") as store:
            store.seek(second)
            store.write(b"xedni")
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        assert pump.ended() == (Ended.TAILER, b"")
        assert 0 < taken(lane).excerpts <= 32


def test_a_peer_that_takes_nothing_keeps_nobody(tmp_path: Path) -> None:
    """The excerpt is longer than all that the system keeps for a peer: the pump has to wait."""
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue, Ends.connected() as ends:
        ends.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        ends.far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        queue.append_many([bytes(1 << 23), b"next"])
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        assert ends.far.recv(1, socket.MSG_PEEK)  # it has begun, and cannot end
        assert pump.result is None
        ends.control.interrupt()
        ended, *rest = pump.ended()
        assert ended is Ended.INTERRUPTED
        (unsent,) = rest
        assert unsent
        ends.near.shutdown(socket.SHUT_WR)
        stream = received(ends.far, 1 << 30) + unsent
        found, left = excerpts_of(stream)
        assert left == b""
        assert found
        assert found == content(tmp_path / "q")[: len(found)]


# a sink's pump


def acknowledgements(stream: bytes) -> list[int]:
    """The indexes that a stream of nothing else acknowledges."""
    length = len(CID_DOCUMENT) + len(write_acknowledgement(0, NS))
    found = []
    for at in range(0, len(stream), length):
        part = stream[at : at + length]
        index = int.from_bytes(part[len(CID_DOCUMENT) + 9 :][:8], "little")
        assert part == CID_DOCUMENT + write_acknowledgement(index, NS)
        found.append(index)
    return found


def test_what_comes_is_stored_and_acknowledged(tmp_path: Path) -> None:
    with filled(tmp_path / "q", 50) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        lane = sink_lane(appender)
        pump = Running(lambda: ends.receive(lane, slice_ms=LONG_MS))
        stream, chance = b"".join(frames_of(queue)[1:]), random.Random(2)
        while stream:
            size = chance.randrange(1, 200)
            ends.far.sendall(stream[:size])
            stream = stream[size:]
        length = len(CID_DOCUMENT) + len(write_acknowledgement(0, NS))
        said: list[int] = []
        while not said or said[-1] != queue.last_index():
            said += acknowledgements(received(ends.far, length))
        assert said == sorted(said)
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")
        assert lane.take_stored()[0] == 49
        appender.append_one(b"behind")  # it goes on from there
        copy.close()
        assert content(tmp_path / "copy")[:-1] == content(tmp_path / "q")


def test_a_level_is_said_behind_the_acknowledgement(tmp_path: Path) -> None:
    """At once for what was acknowledged; the rest when that is."""
    with filled(tmp_path / "q", 6) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        frames = frames_of(queue)
        first = queue.first_index() or 0
        lane = sink_lane(appender, held=first)
        synced, applied = AckLevel.SYNCED, AckLevel.APPLIED
        pump = Running(lambda: ends.receive(lane, slice_ms=LONG_MS))

        def said(*levels: tuple[AckLevel, int]) -> None:
            expected = b"".join(CID_DOCUMENT + write_level(*each) for each in levels)
            assert received(ends.far, len(expected)) == expected

        lane.say_level(synced, first)
        lane.say_level(applied, first)
        ends.control.send(b"")
        said((synced, first), (applied, first))
        lane.say_level(synced, first + 3)  # nothing of these may be said yet, whenever it looks
        lane.say_level(applied, first + 1)
        ends.far.sendall(b"".join(frames[1:3]))
        acknowledged = CID_DOCUMENT + write_acknowledgement(first + 2, NS)
        assert received(ends.far, len(acknowledged)) == acknowledged
        said((synced, first + 2), (applied, first + 1))
        assert lane.told == (first + 2, first + 2, first + 1)
        ends.far.sendall(frames[3])
        received(ends.far, len(acknowledged))
        said((synced, first + 3))
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")
        copy.close()


def test_a_file_grows_while_it_is_written(tmp_path: Path) -> None:
    """In long runs, and without coming back, as far as the file is mapped; then it can be mapped
    anew before it must be."""
    count = 7400
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue, Ends.connected() as ends:
        chance = random.Random(3)
        for _ in range(count):
            queue.append(chance.randbytes(chance.randrange(500, 1500)))
        copy, appender = copy_of(queue, tmp_path / "copy")
        lane = sink_lane(appender, acknowledged=False)
        appender.reserve_ahead()  # nothing: there is room
        (file,) = (tmp_path / "copy").glob("*.cq4")
        before = file.stat()
        pump = Running(lambda: ends.receive(lane, slice_ms=LONG_MS))
        ends.far.sendall(b"".join(frames_of(queue)[1:]))
        stored = 0
        while stored < count - 1:
            stored += lane.take_stored()[0]
            pump.join(0.01)
            assert pump.result is None
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")
        after = file.stat()
        assert after.st_size == before.st_size
        assert after.st_blocks * 512 > 7_000_000 > before.st_blocks * 512
        appender.reserve_ahead()
        assert file.stat().st_size > 2 * after.st_size
        assert appender.pen is not None
        assert appender.pen.append_one(b"behind") > 0  # it goes on from there
        copy.close()
        assert content(tmp_path / "copy")[:-1] == content(tmp_path / "q")


def test_a_gap_is_left(tmp_path: Path) -> None:
    with filled(tmp_path / "q", 8) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        frames = frames_of(queue)
        other = frames[6] + frames[4]
        lane = sink_lane(appender)
        ends.far.sendall(b"".join(frames[1:4]) + other)
        ended, left, unsent = ends.receive(lane, slice_ms=LONG_MS)
        assert (ended, left) == (Ended.UNUSUAL, other)
        assert lane.take_stored()[0] == 3
        said = unsent or received(ends.far, len(CID_DOCUMENT) + 29)
        assert acknowledgements(said)[-1:] == [content(tmp_path / "q")[3][0]]
        copy.close()
        assert content(tmp_path / "copy") == content(tmp_path / "q")[:4]


def test_a_heartbeat_is_handed_over(tmp_path: Path) -> None:
    """For another handler as for the lane's own; what comes behind it is stored."""
    with filled(tmp_path / "q", 8) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        others = [write_cid(OTHER_CID) + write_heartbeat(), CID_DOCUMENT + write_heartbeat()]
        frames = frames_of(queue)
        frames[2:2], frames[5:5] = [others[0]], [others[1]]
        ends.far.sendall(b"".join(frames[1:]))
        ended, left, _ = ends.receive(sink_lane(appender), slice_ms=200)
        assert (ended, left) == (Ended.SLICE, b"")
        assert ends.control.take_handed() == b"".join(others)
        copy.close()
        assert content(tmp_path / "copy") == content(tmp_path / "q")


@pytest.mark.parametrize(
    "other",
    [
        write_registration("/", OTHER_CID, TerminatorHandler(), WireShape.NETWORK),
        write_cid(OTHER_CID) + write_ended("why"),
        CID_DOCUMENT + write_ended("why"),
        write_cid(OTHER_CID) + write_stopped("gap", "why"),
    ],
)
def test_what_changes_a_queue_is_left(tmp_path: Path, other: bytes) -> None:
    """A handler that comes or goes, and what is said of a stream: no lane is what it was."""
    with filled(tmp_path / "q", 4) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        rest = other + frames_of(queue)[2]
        ends.far.sendall(frames_of(queue)[1] + rest)
        ended, left, _ = ends.receive(sink_lane(appender), slice_ms=LONG_MS)
        assert ended is Ended.UNUSUAL
        assert ends.control.take_handed() + left == rest
        assert left != b""
        copy.close()


@pytest.mark.parametrize("code", [0xB7, 0xB9, 0xC0, 0xC3, 0xE0])
def test_a_frame_of_another_shape_is_left(tmp_path: Path, code: int) -> None:
    """The tasks store it; at no time do two store for one queue."""
    with filled(tmp_path / "q", 2) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        other = bytearray(frames_of(queue)[1])
        other[len(CID_DOCUMENT) + 4] = code
        ended, left, _ = ends.receive(sink_lane(appender), data=bytes(other), slice_ms=LONG_MS)
        assert (ended, left) == (Ended.UNUSUAL, bytes(other))
        assert ends.control.take_handed() == b""
        copy.close()


def test_the_end_of_the_stream_is_told(tmp_path: Path) -> None:
    with filled(tmp_path / "q", 3) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        frames = frames_of(queue)
        ends.far.sendall(frames[1] + frames[2][:-1])
        ends.far.shutdown(socket.SHUT_WR)
        ended, left, _ = ends.receive(sink_lane(appender), slice_ms=LONG_MS)
        assert (ended, left) == (Ended.END_OF_STREAM, frames[2][:-1])
        copy.close()


def test_more_than_a_pump_has_room_for_is_left(tmp_path: Path) -> None:
    """So it is of a long excerpt that comes slowly: what came is for the caller to take."""
    with filled(tmp_path / "q", 1) as queue, Ends.connected() as ends:
        queue.append(bytes(1_000_000))
        copy, appender = copy_of(queue, tmp_path / "copy")
        came = frames_of(queue)[1][:-1]
        ends.control.send(b"said")
        outcome = ends.receive(sink_lane(appender), data=came, slice_ms=LONG_MS)
        assert outcome == (Ended.UNUSUAL, came, b"")
        assert received(ends.far, 4) == b"said"
        copy.close()
        assert content(tmp_path / "copy") == content(tmp_path / "q")[:1]


def test_what_a_sink_hands_back_unread_was_not_heard(tmp_path: Path) -> None:
    with filled(tmp_path / "q", 3) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, tmp_path / "copy")
        lane, (_, first, second) = sink_lane(appender), frames_of(queue)
        for half in (5, len(CID_DOCUMENT), len(first) - 1):
            came = ends.take(lane, data=first[:half], slice_ms=10)
            assert came == (Ended.SLICE, first[:half], b"", (None, None))
        # more of it comes: that is heard, and the frame has begun long ago all the same
        ends.far.sendall(first[5:7])
        _, left, _, heard = ends.take(lane, data=first[:5], slice_ms=60)
        assert left == first[:7]
        assert heard.last_ns is not None
        assert heard.began_ns is None
        # it ends, and another begins
        ends.far.sendall(first[7:] + second[:9])
        _, left, _, heard = ends.take(lane, data=first[:7], slice_ms=60)
        assert left == second[:9]
        assert lane.take_stored()[0] == 1
        assert heard.last_ns is not None
        assert heard.began_ns is not None
        copy.close()


def test_two_queues_take_turns(tmp_path: Path) -> None:
    queues = [filled(tmp_path / f"q{nth}", 20, seed=nth) for nth in range(2)]
    copies = [copy_of(queue, tmp_path / f"copy{nth}") for nth, queue in enumerate(queues)]
    cids = [77, OTHER_CID]
    stream = b"".join(
        first + second
        for first, second in zip(
            *(frames_of(queue, cid)[1:] for queue, cid in zip(queues, cids, strict=True)),
            strict=True,
        )
    )
    with Ends.connected() as ends:
        lanes = [
            sink_lane(appender, cid=cid) for (_, appender), cid in zip(copies, cids, strict=True)
        ]
        ends.far.sendall(stream[100:])
        ends.far.shutdown(socket.SHUT_WR)
        assert ends.receive(*lanes, data=stream[:100], slice_ms=LONG_MS)[:2] == (
            Ended.END_OF_STREAM,
            b"",
        )
    for nth, queue in enumerate((*queues, *(copy for copy, _ in copies))):
        queue.close()
        assert nth > 1 or content(tmp_path / f"copy{nth}") == content(tmp_path / f"q{nth}")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cut=st.integers(0, 400),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    noise=st.binary(max_size=60),
)
def test_hostile_bytes_store_what_the_batch_kernel_would(
    tmp_path_factory: pytest.TempPathFactory,
    cut: int,
    edits: list[tuple[int, int]],
    noise: bytes,
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    with filled(folder / "q", 12) as queue, Ends.connected() as ends:
        copy, appender = copy_of(queue, folder / "copy")
        stream = bytearray(b"".join(frames_of(queue)[1:]))
        for at, byte in edits:
            stream[at % len(stream)] = byte
        data = bytes(stream[: len(stream) - cut] + noise)
        expected = content(folder / "copy")
        scanned = kernel.scan_frames(data, 0, CID_DOCUMENT, payload_max=PAYLOAD_MAX)
        taken = 0
        if scanned is not None and scanned.index_first == expected[0][0] + 1:
            expected += excerpts_of(data[: scanned.end])[0]
            taken = scanned.end
        ends.far.sendall(data)
        ends.far.shutdown(socket.SHUT_WR)
        ended, left, _ = ends.receive(sink_lane(appender), slice_ms=LONG_MS)
        copy.close()
        assert ended in (Ended.UNUSUAL, Ended.END_OF_STREAM)
        left = ends.control.take_handed() + left
        assert left == data[taken:][: len(left)]
        assert content(folder / "copy") == expected


# both ways


@dataclass
class Both:
    """The ends of a connection, the lanes of each, and the queue that goes out from there."""

    ends: tuple[Ends, Ends]
    lanes: list[tuple[live.SourceLane, live.SinkLane]]
    queues: list[Queue]

    def run(self) -> list[Running]:
        """A pump at each end."""
        return [Running(partial(self._pump, nth)) for nth in range(2)]

    def _pump(self, nth: int) -> tuple[Ended, bytes, bytes]:
        out, into = self.lanes[nth]
        return self.ends[nth].pump([out], [into], slice_ms=LONG_MS)[:3]

    def wait(self, nth: int) -> None:
        """Until the other side has acknowledged all that went out here."""
        last, until = self.queues[nth].last_index(), time.monotonic() + WAIT_S
        acknowledged: list[int] = []
        while acknowledged[-1:] != [last]:
            assert time.monotonic() < until
            acknowledged += taken(self.lanes[nth][0]).acks[::3]
            time.sleep(0.001)


@contextmanager
def two_ways(tmp_path: Path, count: int, *, size: int = 20) -> Iterator[Both]:
    """Two hosts, each with a queue that goes out and the copy of the other's."""
    queues = [filled(tmp_path / f"q{nth}", count, size=size, seed=nth) for nth in range(2)]
    copies = [copy_of(each, tmp_path / f"copy{nth}", room=True) for nth, each in enumerate(queues)]
    with Ends.connected() as ends:
        ends.far.setblocking(False)
        far = Ends(ends.far, ends.near, live.LiveControl())
        lanes, cids = [], (CID, OTHER_CID)
        for nth in range(2):
            tailer = queues[nth].tailer()
            assert tailer.next_excerpt() is not None
            into = sink_lane(copies[1 - nth][1], cid=cids[1 - nth])
            lanes.append((source_lane(tailer, cid=cids[nth]), into))
        yield Both((ends, far), lanes, queues)
    for copy, _ in copies:
        copy.close()
    for queue in queues:
        queue.close()
    for nth in range(2):
        assert content(tmp_path / f"copy{nth}") == content(tmp_path / f"q{nth}")


def test_two_full_sockets_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each side has more to send than fits into all buffers on the way."""
    with two_ways(tmp_path, 600, size=60_000) as both:
        pumps = both.run()
        for nth in range(2):
            both.wait(nth)
        for end, pump in zip(both.ends, pumps, strict=True):
            end.control.interrupt()
            assert pump.ended() == (Ended.INTERRUPTED, b"", b"")


def test_what_is_said_goes_out_between_two_frames(tmp_path: Path) -> None:
    """Also while the peer takes little: no document comes between the halves of another one."""
    with filled(tmp_path / "q", 400, size=40_000) as queue, Ends.connected() as ends:
        said, frames = write_cid(OTHER_CID) + write_heartbeat(), frames_of(queue)
        lane = source_lane(queue.tailer())
        pump = Running(lambda: ends.hear(lane, slice_ms=LONG_MS)[:3])
        stream, count = b"", 0
        while len(stream) < len(b"".join(frames)) + count * len(said):
            if count < 50:
                ends.control.send(said)
                count += 1
            stream += ends.far.recv(100_000)
        ends.control.interrupt()
        assert pump.ended() == (Ended.INTERRUPTED, b"", b"")
        assert stream.count(said) == count
        assert excerpts_of(stream.replace(said, b"")) == (content(tmp_path / "q"), b"")
