"""The window: excerpts that were sent and not acknowledged are counted exactly, and bounded."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from cqrepl.protocol.sendwindow import ALONE_MAX, BYTES_MAX, EXCERPTS_MAX, SendWindow, SentRun
from tests.support.peer import index


def run(index_first: int, *lengths: int) -> SentRun:
    return SentRun.of(index_first, array("q", lengths))


def is_empty(window: SendWindow) -> bool:
    return window.is_empty


def is_full(window: SendWindow) -> bool:
    return window.is_full


def test_an_acknowledgement_in_a_later_cycle_covers_the_earlier_ones() -> None:
    window = SendWindow()
    window.add(run(index(5), 1, 2))
    window.add(run(index(0, cycles=1), 4, 8))
    window.add(run(index(0, cycles=3), 16))
    assert window.acknowledge(index(0, cycles=1)) == (3, 7)
    assert window.acknowledge(index(0, cycles=3)) == (2, 24)


def test_what_was_sent_twice_is_counted_twice() -> None:
    window = SendWindow()
    window.add(run(index(4), 1, 1))
    window.add(run(index(3), 1, 1))
    assert window.acknowledge(index(5)) == (4, 4)
    assert is_empty(window)


def test_it_is_full_at_its_bytes_and_at_its_excerpts() -> None:
    by_bytes = SendWindow()
    by_bytes.add(run(index(0), BYTES_MAX - 1))
    assert not is_full(by_bytes)
    by_bytes.add(run(index(1), 1))
    assert is_full(by_bytes)
    by_bytes.acknowledge(index(0))
    assert not is_full(by_bytes)

    by_count = SendWindow()
    by_count.add(run(index(0), *[0] * ALONE_MAX))
    assert is_full(by_count)
    by_count.acknowledge(index(0))
    assert not is_full(by_count)


@given(
    runs=st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=5), max_size=8),
    steps=st.lists(st.integers(0, 45), max_size=10),
)
def test_it_agrees_with_a_list(runs: list[list[int]], steps: list[int]) -> None:
    window = SendWindow()
    left: list[tuple[int, int]] = []
    at = 0
    for values in runs:
        window.add(run(at, *values))
        left += [(at + place, length) for place, length in enumerate(values)]
        at += len(values)
    for step in steps:
        known = [length for each, length in left if each <= step]
        left = [(each, length) for each, length in left if each > step]
        assert window.acknowledge(step) == (len(known), sum(known))
        assert is_empty(window) == (not left)


def test_excerpts_that_are_settled_have_no_lengths() -> None:
    """They go with the next acknowledgement; those around them are told apart from them."""
    window = SendWindow()
    window.add(run(0, 1, 2))
    window.add(SentRun(2, array("q"), 70, settled=3))
    window.add(run(5, 4))
    window.add(run(6, 8))
    assert (window.excerpts, window.acknowledge(0)) == (7, (1, 1))
    assert window.acknowledge(5) == (5, 2 + 70 + 4)
    assert window.acknowledge(6) == (1, 8)
    assert window.is_empty
    assert window.budget.free == EXCERPTS_MAX
