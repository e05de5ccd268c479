"""Compares any number of copies of a queue, index by index, while they may be written.

Theory of operation. Each copy's store files are read forward in step, cycle by cycle, by `pread`.
What is compared are lengths and payload bytes of as many excerpts as all copies have at hand, in
two comparisons of whole buffers; only a batch in which these differ is looked at excerpt by
excerpt. So index pages, gaps and hints may lie differently in each copy, and memory stays bounded.

Ranges come out in the order of their indexes, neighbours of one kind joined. A copy that cannot be
followed lacks what is behind that place; that it could not be read is reported besides.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path

from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, cycle_of, format_index, index_of
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.documentwalk import DocumentWalk, End, Stretch
from cqrepl.queue.inspection.overview import QueueInfo, inspect_queue
from cqrepl.queue.inspection.storescan import PayloadDigest, StoreReport, read_header


class RangeKind(Enum):
    """What holds for all excerpts of a range."""

    SAME = "same"  # in every copy, and equal
    DIFFERENT = "different"  # in several copies, and not equal in all of them
    MISSING = "missing"  # not in every copy; equal where it is


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRange:
    """Consecutive indexes of which the same holds.

    Args:
        present: which of the copies have them, in the order of the paths.
        lengths: of the first excerpt in each copy, None where it is missing; for a difference.
        byte_first: the offset of the first byte that differs in the first excerpt; the shorter
            one's length where it is the beginning of the longer one.
    """

    kind: RangeKind
    index_first: int
    index_last: int
    present: tuple[bool, ...]
    lengths: tuple[int | None, ...] = ()
    byte_first: int | None = None

    @property
    def is_same(self) -> bool:
        """True when there is nothing to report."""
        return self.kind is RangeKind.SAME

    def __str__(self) -> str:
        first, last = format_index(self.index_first), format_index(self.index_last)
        text = f"{first} .. {last}: {self.kind.value}"
        if self.kind is RangeKind.MISSING:
            only = [str(nth + 1) for nth, there in enumerate(self.present) if there]
            return f"{text}, only in copy {', '.join(only)}"
        if self.kind is RangeKind.DIFFERENT:
            sizes = ", ".join("none" if size is None else str(size) for size in self.lengths)
            return f"{text}, first at byte {self.byte_first}, lengths {sizes}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDigests:
    """A compared cycle: number and digest of the excerpts compared in each copy; None: no file."""

    cycle: Cycle
    counts: tuple[int | None, ...]
    digests: tuple[str | None, ...]

    @property
    def is_same(self) -> bool:
        """True when every copy has the same excerpts; a copy without excerpts needs no file."""
        held = {digest for digest in self.digests if digest is not None}
        return len(held) <= 1 and (None not in self.digests or not any(self.counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutsDiffer:
    """The copies give other indexes to the same excerpts: nothing can be compared."""

    layouts: tuple[QueueLayout, ...]
    is_same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A store file that cannot be followed from a place on."""

    path: Path
    position: int
    index: Index
    text: str
    is_same: bool = False


Outcome = ComparedRange | CycleDigests | LayoutsDiffer | Unreadable


def verify(
    paths: Sequence[Path | str], *, index_first: int = 0, index_last: int | None = None
) -> Iterator[Outcome]:
    """What is alike in copies of a queue and what is not; each outcome tells by `is_same`.

    Args:
        index_last: excerpts behind this one are left out: for copies that are being written.

    Raises:
        QueueError: one of them is no queue, as `inspect_queue`.
    """
    copies = [inspect_queue(path) for path in paths]
    layouts = tuple(copy.layout for copy in copies)
    if any(not _alike(layouts[0], layout) for layout in layouts):
        yield LayoutsDiffer(layouts=layouts)
        return
    shift = layouts[0].roll_cycle.shift
    first = cycle_of(Index(index_first), shift)
    last = None if index_last is None else cycle_of(Index(index_last), shift)
    cycles = {file.cycle for copy in copies for file in copy.files}
    for cycle in sorted(cycles):
        if cycle >= first and (last is None or cycle <= last):
            yield from _ComparedCycle(copies, cycle, index_first, index_last).outcomes()


def last_common_index(paths: Sequence[Path | str]) -> Index | None:
    """The least last index of the copies: up to there all may be compared; None: one is empty.

    Raises:
        QueueError: as `verify`.
    """
    lasts = [inspect_queue(path).last_index for path in paths]
    found = [last for last in lasts if last is not None]
    return min(found) if len(found) == len(lasts) else None


def _alike(one: QueueLayout, other: QueueLayout) -> bool:
    """True when the same moments and excerpts get the same indexes."""
    return one.roll_cycle.name == other.roll_cycle.name and one.epoch == other.epoch


class _CopyPart:
    """Excerpts of one copy: lengths and payload bytes, or a single one that is read in pieces."""

    def __init__(self, lengths: "array[int]", payloads: bytes, large: Stretch | None) -> None:
        self.lengths = lengths
        self.payloads = payloads
        self.large = large

    def cut(self, count: int) -> tuple["_CopyPart", "_CopyPart"]:
        """The first excerpts, and the rest."""
        if count == len(self.lengths):
            return self, _NOTHING
        size = sum(self.lengths[:count])
        return (
            _CopyPart(self.lengths[:count], self.payloads[:size], None),
            _CopyPart(self.lengths[count:], self.payloads[size:], None),
        )

    def pieces(self) -> Iterator[bytes]:
        """The payload bytes, in pieces of bounded size."""
        if self.large is None:
            yield self.payloads
        else:
            yield from self.large.payload_pieces()


_NOTHING = _CopyPart(array("q"), b"", None)


class _CycleReader:
    """The excerpts of one cycle of one copy."""

    def __init__(self, file: FileBytes, index_first: Index) -> None:
        self.file = file
        self.walk = DocumentWalk(file)
        self.digest = PayloadDigest(index_first)
        self._stretches = self.walk.stretches()
        self._part = _NOTHING

    def available(self) -> int:
        """How many excerpts are at hand; 0 at the end."""
        if not self._part.lengths:
            stretch = next(self._stretches, None)
            if stretch is None:
                return 0
            is_large = not len(stretch.data)
            payloads = b"" if is_large else b"".join(stretch.payload_pieces())
            self._part = _CopyPart(stretch.lengths, payloads, stretch if is_large else None)
        return len(self._part.lengths)

    def take(self, count: int) -> _CopyPart:
        """The next excerpts, `count` of those at hand."""
        part, self._part = self._part.cut(count)
        return part

    def count_in(self, part: _CopyPart) -> None:
        """Adds excerpts that were compared to the digest."""
        lengths = part.lengths
        for piece in part.pieces():
            self.digest.take(lengths, piece)
            lengths = lengths[:0]


class _ComparedCycle:
    """The comparison of one cycle."""

    def __init__(
        self, copies: list[QueueInfo], cycle: Cycle, index_first: int, index_last: int | None
    ) -> None:
        self._cycle = cycle
        self._cycle_first = index_of(cycle, SEQUENCE_FIRST, copies[0].layout.roll_cycle.shift)
        self._index = self._cycle_first
        self._digest_first = max(self._index, Index(index_first))
        self._index_first = index_first
        self._index_last = index_last
        self._readers: list[_CycleReader | None] = []
        self._unreadable: list[Unreadable] = []
        self._files = [
            next((file for file in copy.files if file.cycle == cycle), None) for copy in copies
        ]

    def outcomes(self) -> Iterator[Outcome]:
        """Ranges, then what could not be read, then the digests."""
        try:
            for file in self._files:
                self._readers.append(None if file is None else self._open(file))
            yield from _joined(self._ranges())
            self._note_broken()
            yield from self._unreadable
            yield self._digests()
        finally:
            for reader in self._readers:
                if reader is not None:
                    reader.file.close()

    def _open(self, seen: StoreReport) -> _CycleReader | None:
        try:
            file = FileBytes(seen.path)
        except FileNotFoundError:
            return None
        header = read_header(file, self._cycle, self._index)
        if isinstance(header, StoreReport):
            file.close()
            # the inspection knows what the file held
            for finding in (header if seen.count is not None else seen).findings:
                self._unreadable.append(
                    Unreadable(path=seen.path, position=0, index=self._index, text=finding.text)
                )
            return None
        return _CycleReader(file, self._digest_first)

    def _note_broken(self) -> None:
        for reader in self._readers:
            if reader is None or reader.walk.end is not End.BROKEN:
                continue
            sequence, position = reader.walk.place
            self._unreadable.append(
                Unreadable(
                    path=reader.file.path,
                    position=position,
                    index=Index(self._cycle_first + sequence),
                    text="a document ends behind the end of the file",
                )
            )

    def _ranges(self) -> Iterator[ComparedRange]:
        """The ranges of each step, not yet joined."""
        while self._index_last is None or self._index <= self._index_last:
            counts = [0 if reader is None else reader.available() for reader in self._readers]
            count = min((each for each in counts if each), default=0)
            if count == 0:
                return
            if self._index < self._index_first:
                count = min(count, self._index_first - self._index)
            elif self._index_last is not None:
                count = min(count, self._index_last - self._index + 1)
            parts = [
                reader.take(count) if reader is not None and each else None
                for reader, each in zip(self._readers, counts, strict=True)
            ]
            if self._index >= self._index_first:
                for reader, part in zip(self._readers, parts, strict=True):
                    if reader is not None and part is not None:
                        reader.count_in(part)
                yield from _compare(parts, self._index, count)
            self._index = Index(self._index + count)

    def _digests(self) -> CycleDigests:
        readers = self._readers
        return CycleDigests(
            cycle=self._cycle,
            counts=tuple(None if reader is None else reader.digest.count for reader in readers),
            digests=tuple(None if reader is None else reader.digest.text() for reader in readers),
        )


def _compare(parts: list[_CopyPart | None], index: int, count: int) -> Iterator[ComparedRange]:
    """The ranges of `count` excerpts, which the copies that are not None have."""
    present = tuple(part is not None for part in parts)
    held = [part for part in parts if part is not None]
    kind = RangeKind.SAME if all(present) else RangeKind.MISSING
    first = held[0]
    if all(_equal(first, other) for other in held[1:]):
        yield ComparedRange(
            kind=kind, index_first=index, index_last=index + count - 1, present=present
        )
        return
    starts = [None if part is None else _starts(part) for part in parts]
    for nth in range(count):
        ones = [
            None if part is None or start is None else _single(part, start, nth)
            for part, start in zip(parts, starts, strict=True)
        ]
        byte = _first_difference([one for one in ones if one is not None])
        yield ComparedRange(
            kind=kind if byte is None else RangeKind.DIFFERENT,
            index_first=index + nth,
            index_last=index + nth,
            present=present,
            lengths=()
            if byte is None
            else tuple(None if one is None else one.lengths[0] for one in ones),
            byte_first=byte,
        )


def _equal(one: _CopyPart, other: _CopyPart) -> bool:
    if one.lengths != other.lengths:
        return False
    if one.large is None and other.large is None:
        return one.payloads == other.payloads
    return all(a == b for a, b in zip(one.pieces(), other.pieces(), strict=False))


def _starts(part: _CopyPart) -> list[int]:
    return [0, *accumulate(part.lengths)]


def _single(part: _CopyPart, starts: list[int], nth: int) -> _CopyPart:
    if part.large is not None:
        return part
    payload = part.payloads[starts[nth] : starts[nth + 1]]
    return _CopyPart(part.lengths[nth : nth + 1], payload, None)


def _first_difference(parts: list[_CopyPart]) -> int | None:
    """The least offset at which one of the single excerpts differs from the first; None: none."""
    found = [_difference(parts[0], other) for other in parts[1:]]
    return min((offset for offset in found if offset is not None), default=None)


def _difference(one: _CopyPart, other: _CopyPart) -> int | None:
    mine, theirs = one.pieces(), other.pieces()
    at, left, right = 0, b"", b""
    while True:
        left, right = left or next(mine, b""), right or next(theirs, b"")
        size = min(len(left), len(right))
        if size == 0:
            return at if len(left) != len(right) else None
        if left[:size] != right[:size]:
            return at + next(nth for nth in range(size) if left[nth] != right[nth])
        at, left, right = at + size, left[size:], right[size:]


def _joined(ranges: Iterator[ComparedRange]) -> Iterator[ComparedRange]:
    """The ranges, neighbours of one kind in the same copies made one."""
    last: ComparedRange | None = None
    for each in ranges:
        if last is not None and (last.kind, last.present) == (each.kind, each.present):
            last = ComparedRange(
                kind=last.kind, index_first=last.index_first, index_last=each.index_last,
                present=last.present, lengths=last.lengths, byte_first=last.byte_first,
            )  # fmt: skip
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last
