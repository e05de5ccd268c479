"""Ranges of indexes that follow each other, made one where they say the same."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar


class Range(Protocol):
    """A dataclass of what is found in a range of indexes, both ends included."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def index_last(self) -> int: ...


AnyRange = TypeVar("AnyRange", bound=Range)


def joined(
    ranges: Iterator[AnyRange], are_one: Callable[[AnyRange, AnyRange], bool]
) -> Iterator[AnyRange]:
    """The ranges, neighbours that are one made one: the first of them, to the end of the last."""
    last: AnyRange | None = None
    for each in ranges:
        if last is not None and are_one(last, each):
            last = replace(last, index_last=each.index_last)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last
