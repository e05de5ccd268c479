"""The queues of one connection fairly share a bound on what is sent and not acknowledged."""

import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.protocol.sendwindow import ALONE_MAX, EXCERPTS_MAX, SendBudget, SendWindow, SentRun
from tests.support.peer import index


def windows(count: int) -> list[SendWindow]:
    budget = SendBudget()
    return [SendWindow(budget) for _ in range(count)]


def send(window: SendWindow, count: int) -> int:
    """Sends that many, or as many as there is room for."""
    count = min(count, window.room[0])
    if count:
        window.add(SentRun.of(index(window.excerpts), array("q", [0]) * count))
    return count


def test_a_queue_alone_has_nearly_all() -> None:
    (window,) = windows(1)
    assert send(window, EXCERPTS_MAX) == ALONE_MAX == EXCERPTS_MAX * 7 // 8
    assert (window.is_full, window.room[0]) == (True, 0)


@pytest.mark.parametrize("count", [2, 10, 1000])
def test_queues_that_are_never_acknowledged_share_it_alike(count: int) -> None:
    all_of_them = windows(count)
    piece = EXCERPTS_MAX // count // 16 + 1
    while sum(send(each, piece) for each in all_of_them):
        assert sum(each.excerpts for each in all_of_them) <= EXCERPTS_MAX
    held = [each.excerpts for each in all_of_them]
    assert max(held) - min(held) <= piece
    further = SendWindow(all_of_them[0].budget)
    assert send(further, EXCERPTS_MAX) >= max(held) // 10 > 0, "one that comes later goes on"


def test_a_window_of_one_excerpt_goes_on_with_each_acknowledgement() -> None:
    budget = SendBudget()
    budget.free = 1  # as `Connection.hold_few` has it
    first, second = SendWindow(budget), SendWindow(budget)
    assert send(first, 5) == 1
    assert (send(first, 1), send(second, 1)) == (0, 0)
    first.acknowledge(index(0))
    assert send(second, 5) == 1


@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(1, EXCERPTS_MAX), st.booleans())),
    cleared=st.integers(0, 4),
)
def test_whatever_is_sent_and_acknowledged_the_budget_is_what_is_left(
    steps: list[tuple[int, int, bool]], cleared: int
) -> None:
    all_of_them = windows(5)
    budget, sent = all_of_them[0].budget, [0] * 5
    for nth, count, is_acknowledged in steps:
        window = all_of_them[nth]
        if is_acknowledged:
            window.acknowledge(index(min(count, sent[nth])) - 1)
        elif count := min(count, window.room[0]):
            window.add(SentRun.of(index(sent[nth]), array("q", [0]) * count))
            sent[nth] += count
        held = sum(each.excerpts for each in all_of_them)
        assert budget.free == EXCERPTS_MAX - held >= 0
    all_of_them[cleared].clear()
    assert all_of_them[cleared].is_empty
    assert budget.free == EXCERPTS_MAX - sum(each.excerpts for each in all_of_them)


@pytest.mark.parametrize("piece", [1, 3, 1000, 2000])
def test_an_excerpt_costs_little_more_than_its_length(piece: int) -> None:
    count = 60_000 // piece
    tracemalloc.start()
    try:
        (window,) = windows(1)
        before, _ = tracemalloc.get_traced_memory()
        for nth in range(count):
            lengths = array("q", [64]) * piece
            window.add(SentRun.of(index(nth * piece), lengths))
        del lengths
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / (count * piece) < 10
    assert window.acknowledge(index(count * piece - 1)) == (count * piece, 64 * count * piece)
    assert window.is_empty


def test_what_is_put_together_changes_nothing_of_the_callers() -> None:
    (window,) = windows(1)
    first, second = array("q", [1, 2]), array("q", [3])
    window.add(SentRun.of(index(0), first))
    window.add(SentRun.of(index(2), second))
    window.add(SentRun.of(index(3), array("q", [4])))
    assert (list(first), list(second)) == ([1, 2], [3])
    assert [window.acknowledge(index(nth)) for nth in (0, 2, 3)] == [(1, 1), (2, 5), (1, 4)]
