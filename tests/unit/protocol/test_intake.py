"""Received excerpts, sorted by their indexes: known, next, or a gap."""

import pytest

from cqrepl.protocol.events import AppendExcerpts, CompareExcerpts
from cqrepl.protocol.intake import Intake
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, index_of
from cqrepl.queue.format.rollcycle import CYCLE_MAX
from tests.support.peer import CID, CYCLE, NAME, NS, SHIFT, batch, index

Sorted = list[tuple[type, int, int]]


def sort(intake: Intake, first: int, count: int = 1) -> tuple[Sorted, str | None]:
    events, problem = intake.sort(batch(first, *[b"x"] * count), NS)
    for event in events:
        assert (event.cid, event.name, event.ns) == (CID, NAME, NS)
    return [(type(e), e.batch.index_first, len(e.batch)) for e in events], problem


@pytest.fixture
def intake() -> Intake:
    return Intake(CID, NAME, index(5), SHIFT)


def test_the_next_index_is_appended(intake: Intake) -> None:
    assert sort(intake, index(5), 3) == ([(AppendExcerpts, index(5), 3)], None)
    assert intake.next_index == index(8)


@pytest.mark.parametrize("cycles", [1, 2, 1000])
def test_the_start_of_any_later_cycle_is_appended(intake: Intake, cycles: int) -> None:
    assert sort(intake, index(0, cycles), 2) == ([(AppendExcerpts, index(0, cycles), 2)], None)
    assert intake.next_index == index(2, cycles)


def test_an_empty_queue_takes_the_start_of_any_cycle() -> None:
    for cycle in (0, 1, CYCLE, CYCLE_MAX):
        intake = Intake(CID, NAME, 0, SHIFT)
        first = index_of(Cycle(cycle), SEQUENCE_FIRST, SHIFT)
        assert sort(intake, first) == ([(AppendExcerpts, first, 1)], None)


@pytest.mark.parametrize("first", [index(0), index(4), index(3, -1)])
def test_a_known_index_is_compared_and_moves_nothing(intake: Intake, first: int) -> None:
    assert sort(intake, first) == ([(CompareExcerpts, first, 1)], None)
    assert intake.next_index == index(5)


def test_a_run_that_is_known_in_part_is_split(intake: Intake) -> None:
    found = sort(intake, index(3), 4)
    assert found == ([(CompareExcerpts, index(3), 2), (AppendExcerpts, index(5), 2)], None)
    assert intake.next_index == index(7)


def test_the_parts_of_a_split_run_hold_their_payloads(intake: Intake) -> None:
    events, _ = intake.sort(batch(index(4), b"known", b"new"), NS)
    assert [bytes(payload) for event in events for _, payload in event.batch] == [b"known", b"new"]


@pytest.mark.parametrize("first", [index(6), index(1000), index(1, 1), index(7, 2)])
def test_a_gap_is_told_with_both_indexes_and_changes_nothing(intake: Intake, first: int) -> None:
    events, problem = sort(intake, first)
    assert events == []
    assert problem == (
        f"index {index(5):#x} or the start of a later cycle expected, {first:#x} came"
    )
    assert intake.next_index == index(5)


@pytest.mark.parametrize("first", [-1, -(1 << 63)])
def test_a_negative_index_is_no_index(intake: Intake, first: int) -> None:
    assert sort(intake, first) == ([], f"an index expected, {first} came")


def test_an_index_beyond_the_last_cycle_is_a_gap() -> None:
    intake = Intake(CID, NAME, index(5), 24)  # with fewer sequence bits the cycles end earlier
    events, problem = sort(intake, (1 << 63) - 1)
    assert events == []
    assert problem is not None
