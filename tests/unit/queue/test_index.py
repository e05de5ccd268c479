import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import cycle_of, format_index, index_of, is_next, parse_index, sequence_of
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Cycle, Index, Sequence

shifts = st.integers(32, 40)
cycles = st.integers(0, (1 << 23) - 1)
sequences = st.integers(0, (1 << 32) - 1)


@given(shifts, cycles, sequences)
def test_an_index_gives_back_its_cycle_and_sequence(shift: int, cycle: int, sequence: int) -> None:
    index = index_of(Cycle(cycle), Sequence(sequence), shift)
    assert (cycle_of(index, shift), sequence_of(index, shift)) == (cycle, sequence)


@given(st.integers(0, (1 << 63) - 1))
def test_text_gives_back_the_index(index: int) -> None:
    assert parse_index(format_index(index)) == index


def test_indexes_show_in_hexadecimal() -> None:
    assert format_index(index_of(Cycle(0x4516), Sequence(4), 32)) == "0x451600000004"
    assert parse_index("451600000004") == 0x451600000004


@pytest.mark.parametrize("text", ["-1", "0x8000000000000000", "", "12x"])
def test_what_is_no_index_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_index(text)


@pytest.mark.parametrize(
    ("index", "follows"),
    [
        (0x500000004, True),  # the next one
        (0x500000003, False),
        (0x500000005, False),
        (0x600000000, True),  # the first of a higher cycle
        (0x900000000, True),
        (0x600000001, False),
        (0x400000000, False),  # never back
        (0x500000000, False),
        (-1, False),
        (1 << 63, False),
    ],
)
def test_only_the_next_or_a_higher_cycle_follows(index: int, follows: bool) -> None:
    assert is_next(Index(0x500000004), Index(index), 32) is follows


@given(cycles, sequences)
def test_an_empty_queue_takes_the_first_of_any_cycle(cycle: int, sequence: int) -> None:
    index = index_of(Cycle(cycle), Sequence(sequence), 32)
    assert is_next(NEXT_OF_EMPTY, index, 32) is (sequence == 0)
