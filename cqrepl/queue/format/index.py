"""The 64-bit index of an excerpt: which cycle (store file), and which sequence in it.

    bits 63..shift     bits shift-1..0
    cycle              sequence, from 0 in each cycle

`shift` belongs to the roll cycle. Cycles have 31 bits, so an index is never negative.
"""

from typing import Final, NewType, SupportsIndex

from cqrepl.queue.format.rollcycle import CYCLE_MAX
from cqrepl.queue.format.rollcycle import Cycle as Cycle

# as `Cycle`, plain integers when the program runs; the type checker keeps them apart
Index = NewType("Index", int)  # of an excerpt in its queue, or of the one behind the last
Sequence = NewType("Sequence", int)  # place of an excerpt within its cycle, from 0
Position = NewType("Position", int)  # offset in a store file

INDEX_MAX: Final = (1 << 63) - 1
SEQUENCE_FIRST: Final = Sequence(0)  # of every cycle
NEXT_OF_EMPTY: Final = Index(0)  # what an empty queue names as the next index: its unknown start


def index_of(cycle: Cycle, sequence: Sequence, shift: int) -> Index:
    """The index of the excerpt `sequence` of `cycle`."""
    assert 0 <= cycle <= CYCLE_MAX
    assert 0 <= sequence < 1 << shift
    return Index((cycle << shift) + sequence)


def cycle_of(index: Index, shift: int) -> Cycle:
    """The cycle, that is the store file, an index lies in."""
    return Cycle(index >> shift)


def sequence_of(index: Index, shift: int) -> Sequence:
    """The place of an index within its cycle, from 0."""
    return Sequence(index & ((1 << shift) - 1))


def is_next(index_next: Index, index: Index, shift: int) -> bool:
    """True when `index` may be appended to a queue whose next index is `index_next`.

    That is the next index itself, or the first of any higher cycle: cycles may be skipped,
    sequences may not.
    """
    if not 0 <= index <= (CYCLE_MAX << shift) + (1 << shift) - 1:
        return False
    if index == index_next:
        return True
    return sequence_of(index, shift) == 0 and cycle_of(index, shift) > cycle_of(index_next, shift)


def format_index(index: int) -> str:
    """The index as people see it: hexadecimal, as in `0x451600000004`."""
    return f"{index:#x}"


def parse_index(text: str) -> Index:
    """The index that `format_index` spells; the `0x` may be missing.

    Raises:
        ValueError: not a hexadecimal number from 0 to 2**63 - 1.
    """
    index = int(text, 16)
    if not 0 <= index <= INDEX_MAX:
        raise ValueError(f"expected an index from 0x0 to 0x7fffffffffffffff, got {text!r}")
    return Index(index)


def number_of(index: object, end: str) -> Index:
    """An index that a program gives as the place where a reader is to stand.

    Args:
        end: says what stands for the end of the queue.

    Raises:
        TypeError: something else, as a text.
    """
    if not isinstance(index, SupportsIndex):
        raise TypeError(
            f"expected an index, a number: 0 for the start, {end}, parse_index(text) for one that "
            f"is written down; got {index!r}"
        )
    return Index(index.__index__())
