"""The moves of native lanes: the tables of both sides, and those of real pumps and real hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from cqrepl.kernel import live
from cqrepl.kernel.live import Ended
from cqrepl.net.lanemoves import SINK_LANES, SOURCE_LANES, LaneMoves
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.states import (
    SINK_LANE_MOVES,
    SOURCE_LANE_MOVES,
    SinkLaneMove,
    SinkLaneState,
    SourceLaneMove,
    SourceLaneState,
)
from cqrepl.queue import Queue
from tests.net.live_pumps import LONG_MS, Ends, Running, frames_of, sink_lane, source_lane
from tests.net.test_live_acks import reset

NOON_MS = 1_709_640_000_000
MINUTE_MS = 60_000
Out, OutMove = SourceLaneState, SourceLaneMove
In, InMove = SinkLaneState, SinkLaneMove

pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")


def made_out(lane: live.SourceLane) -> set[tuple[Enum, Enum]]:
    """The moves of a lane that goes out, since it was asked last; each is in the table."""
    found = set(SOURCE_LANES.of(lane.take_moves()))
    assert found <= SOURCE_LANE_MOVES.keys()
    return found


def made_in(lane: live.SinkLane) -> set[tuple[Enum, Enum]]:
    """The same for one that comes in."""
    found = set(SINK_LANES.of(lane.take_moves()))
    assert found <= SINK_LANE_MOVES.keys()
    return found


def test_the_tables_are_those_of_the_crate() -> None:
    """Names in their order, as a lane tells them by number, and what is allowed."""
    from cqrepl._native import lane_tables

    ours: list[tuple[type[Enum], type[Enum], Mapping[Any, Enum]]] = [
        (SourceLaneState, SourceLaneMove, SOURCE_LANE_MOVES),
        (SinkLaneState, SinkLaneMove, SINK_LANE_MOVES),
    ]
    for (states, moves, table), theirs in zip(ours, lane_tables(), strict=True):
        assert theirs[0] == [state.name for state in states]
        assert theirs[1] == [move.name for move in moves]
        numbered = {state: nth for nth, state in enumerate(states)}
        numbered |= {move: nth for nth, move in enumerate(moves)}
        allowed = {(numbered[a], numbered[b], numbered[c]) for (a, b), c in table.items()}
        assert set(theirs[2]) == allowed
        assert len(theirs[2]) == len(allowed)


def test_a_move_that_is_in_no_table_is_an_error() -> None:
    table = {pair: after for pair, after in SOURCE_LANE_MOVES.items() if OutMove.LEND not in pair}
    lanes = LaneMoves(table, SourceLaneState, SourceLaneMove, "here")

    class Made:
        def __init__(self, *pairs: tuple[Enum, Enum]) -> None:
            self._bits = sum(1 << lanes._pairs.index(pair) for pair in pairs)

        def take_moves(self) -> int:
            return self._bits

    fine = Made((Out.KEPT, OutMove.LEND_BEHIND), (Out.BEHIND, OutMove.COME_BACK))
    lanes.check([fine, fine])
    with pytest.raises(LocalProtocolError, match=r"found LEND while KEPT \(here\)"):
        lanes.check([fine, Made((Out.KEPT, OutMove.LEND)), fine])


def test_a_lane_that_goes_out_is_lent_and_comes_back(tmp_path: Path) -> None:
    with Queue.open(tmp_path, create="FAST_DAILY") as queue, Ends.connected() as ends:
        queue.append_many([b"one", b"two"])
        lane = source_lane(queue.tailer())
        assert lane.state == list(Out).index(Out.KEPT)
        running = Running(lambda: ends.stream(lane, slice_ms=LONG_MS))
        assert ends.far.recv(1)
        assert lane.state == list(Out).index(Out.LIVE)
        with pytest.raises(ValueError, match="no other pump"):
            Ends(ends.near, ends.far, live.LiveControl()).stream(lane)
        lane.let_go()  # nothing, while a pump has it
        ends.control.interrupt()
        running.ended()
        assert lane.state == list(Out).index(Out.KEPT)
        assert made_out(lane) == {(Out.KEPT, OutMove.LEND), (Out.LIVE, OutMove.COME_BACK)}
        lane.let_go()
        lane.let_go()
        assert lane.state == list(Out).index(Out.LET_GO)
        assert made_out(lane) == {(Out.KEPT, OutMove.LET_GO)}


@contextmanager
def drained(ends: Ends) -> Iterator[None]:
    """The far end takes whatever comes, until the block ends and the near end is closed."""

    def drain() -> None:
        while ends.far.recv(1 << 20):
            pass

    draining = threading.Thread(target=drain)
    draining.start()
    try:
        yield
    finally:
        ends.near.close()
        draining.join()


@pytest.mark.parametrize("has_much", [False, True])
def test_one_that_has_more_than_a_buffer_is_behind_until_it_comes_up(
    tmp_path: Path, has_much: bool
) -> None:
    with Queue.open(tmp_path, create="FAST_DAILY") as queue, Ends.connected() as ends:
        queue.append_many([bytes(4000)] * 400)
        lane = source_lane(queue.tailer(), has_much=has_much)
        with drained(ends):
            while lane.position_last == 0 or lane.has_much:
                assert ends.stream(lane)[0] is Ended.SLICE
        first = OutMove.LEND_BEHIND if has_much else OutMove.LEND
        expected = {(Out.KEPT, first), (Out.BEHIND, OutMove.COME_UP)}
        expected |= {(Out.LIVE, OutMove.COME_BACK)}
        found = made_out(lane)
        assert found >= expected
        assert has_much or (Out.LIVE, OutMove.FALL_BEHIND) in found


@pytest.mark.parametrize("has_much", [False, True])
def test_one_that_meets_the_end_of_its_file_is_for_its_tailer(
    tmp_path: Path, has_much: bool
) -> None:
    with Queue.open_for_append(tmp_path, create="MINUTELY") as queue, Ends.connected() as ends:
        appender, tailer = queue.appender(), queue.tailer()
        appender.append([b"one"], NOON_MS)
        lane = source_lane(tailer, has_much=has_much)
        appender.append([b"two"], NOON_MS + MINUTE_MS)
        assert ends.stream(lane, slice_ms=LONG_MS)[0] is Ended.TAILER
        state = Out.BEHIND if has_much else Out.LIVE
        first = OutMove.LEND_BEHIND if has_much else OutMove.LEND
        assert made_out(lane) == {
            (Out.KEPT, first),
            (state, OutMove.MEET_OTHER),
            (Out.FOR_TAILER, OutMove.COME_BACK),
        }
        assert lane.has_much == has_much


def receive(
    folder: Path, stream: Callable[[list[bytes]], list[bytes]], ended: Ended, **options: bool
) -> set[tuple[Enum, Enum]]:
    """The moves of a lane that takes some frames of nine in."""
    with Queue.open(folder / "q", create="FAST_DAILY") as queue, Ends.connected() as ends:
        queue.append_many([b"%d" % nth for nth in range(9)])
        with Queue.open(folder / "copy", create=queue.layout) as copy:
            batch = queue.tailer().next_batch(count_max=1)
            assert batch is not None
            appender = copy.appender()
            appender.append_at(batch)
            lane = sink_lane(appender, **options)
            assert lane.state == list(In).index(In.KEPT)
            data = b"".join(stream(frames_of(queue)))
            assert ends.receive(lane, data=data, slice_ms=50)[0] is ended
            assert lane.state == list(In).index(In.KEPT)
            return made_in(lane)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_lane_that_comes_in_owes_an_acknowledgement_until_it_goes_out(
    tmp_path: Path, acknowledged: bool
) -> None:
    found = receive(tmp_path, lambda frames: frames[1:5], Ended.SLICE, acknowledged=acknowledged)
    assert found == {
        (In.KEPT, InMove.LEND),
        (In.QUIET, InMove.STORE),
        (In.DUE, InMove.ACKNOWLEDGE),
        (In.QUIET, InMove.COME_BACK),
    }


def test_one_that_refuses_says_before_what_it_has_stored(tmp_path: Path) -> None:
    found = receive(tmp_path, lambda frames: [*frames[1:3], frames[6]], Ended.UNUSUAL)
    assert found == {
        (In.KEPT, InMove.LEND),
        (In.QUIET, InMove.STORE),
        (In.DUE, InMove.REFUSE),
        (In.REFUSED_DUE, InMove.ACKNOWLEDGE),
        (In.REFUSED, InMove.COME_BACK),
    }


def test_one_that_refuses_at_once_has_nothing_to_say(tmp_path: Path) -> None:
    found = receive(tmp_path, lambda frames: [frames[6]], Ended.UNUSUAL)
    assert found == {
        (In.KEPT, InMove.LEND),
        (In.QUIET, InMove.REFUSE),
        (In.REFUSED, InMove.COME_BACK),
    }


def test_one_whose_connection_breaks_is_lost(tmp_path: Path) -> None:
    with Queue.open(tmp_path, create="FAST_DAILY") as queue, Ends.connected() as ends:
        appender = queue.appender()
        appender.append([b"one"])
        lane = sink_lane(appender)
        reset(ends.far)
        with pytest.raises(OSError, match=r".+"):
            ends.receive(lane, slice_ms=LONG_MS)
        assert lane.state == list(In).index(In.LOST)
        assert made_in(lane) == {(In.KEPT, InMove.LEND), (In.QUIET, InMove.LOSE)}
