"""Compares one cycle of any number of copies, and names what differs.

Theory of operation. The store files are read forward in step. As many excerpts as all copies have
at hand are compared as memory; only where these differ is the first difference found by halving,
and named (`diagnosis`). Ranges come out in the order of their indexes, neighbours of one kind
joined; then what is wrong within each copy; then how much was compared.

A copy that cannot be followed lacks what is behind that place; why is told besides.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.mapping import identity_in
from cqrepl.queue.files.storefile import StoreHeader
from cqrepl.queue.format.errors import NotAQueue, QueueDamaged
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, format_index, index_of
from cqrepl.queue.inspection.copyreader import CopyPart, CycleReader, are_equal, equal_count
from cqrepl.queue.inspection.diagnosis import (
    diagnose,
    diagnose_alone,
    hold_the_same,
    least_byte,
    side_of,
)
from cqrepl.queue.inspection.differences import (
    CopySide,
    CycleDigests,
    DifferenceKind,
    Flaw,
    NamedDifference,
    OneFile,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.documentwalk import End
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from cqrepl.queue.inspection.lostend import LostEnd
from cqrepl.queue.inspection.neighbours import joined
from cqrepl.queue.inspection.notedchains import Noted, QueueNotes
from cqrepl.queue.inspection.overview import QueueInfo
from cqrepl.queue.inspection.storescan import StoreReport, read_header

Progress = Callable[[int, int], None]  # so many more excerpts and bytes of a copy were compared

_DIAGNOSED_MAX: Final = 100  # differences of a cycle around which excerpts are read again
_SHIFTED: Final = (DifferenceKind.DROPPED, DifferenceKind.INSERTED)


@dataclass(frozen=True, slots=True)
class ComparedCopy:
    """One of the queues that are compared; `lost` is why its end is not known."""

    path: Path
    info: QueueInfo
    notes: QueueNotes
    lost: LostEnd | None = None

    def file_of(self, cycle: Cycle) -> StoreReport | None:
        """The report that a quick look made of a cycle's store file; None where there is none."""
        files = self.info.files  # in the order of their cycles
        at = bisect_left(files, cycle, key=lambda file: file.cycle)
        return files[at] if at < len(files) and files[at].cycle == cycle else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSpan:
    """The span of indexes that is compared, from the first to the last, both included.

    Args:
        index_last: None compares to the end.
        with_digests: the outcome tells the chain over the excerpts that were compared.
        is_common: the last index is the end of the shortest copy; that end has to be known.
    """

    index_first: int = 0
    index_last: int | None = None
    with_digests: bool = False
    is_common: bool = False


class CycleComparison:
    """The comparison of one cycle."""

    def __init__(
        self, copies: list[ComparedCopy], cycle: Cycle, span: ComparedSpan, progress: Progress
    ) -> None:
        self._copies = copies
        self._cycle = cycle
        self._span = span
        self._progress = progress
        shift = copies[0].info.layout.roll_cycle.shift
        self._cycle_first = index_of(cycle, SEQUENCE_FIRST, shift)
        self._index = self._cycle_first
        self._readers: list[CycleReader | None] = []
        self._noted: list[list[Noted]] = []
        self._agreed = [0] * len(copies)  # the sequence up to which notes are known to be true
        self._compared = [0] * len(copies)
        self._flaws: list[Flaw] = []
        self._all: DifferenceKind | None = None  # what explains all that follows in the cycle
        self._exchanged: dict[int, str] = {}
        self._is_same = True
        self._diagnosed = 0

    def outcomes(self) -> Iterator[Outcome]:
        """Ranges, then what is wrong within the copies, then what was compared."""
        try:
            for nth, copy in enumerate(self._copies):
                self._readers.append(self._open(nth, copy))
            yield from self._one_files()
            for each in joined(self._pieces(), _are_one):
                self._is_same = self._is_same and each.is_same
                yield each
            yield from self._ends()
            for nth, reader in enumerate(self._readers):
                if reader is not None and reader.has_ended:
                    self._check_all_noted(nth, reader)
                    self._take_findings(nth, reader.report(self._cycle))
            yield from self._flaws
            yield self._digests()
        finally:
            for reader in self._readers:
                if reader is not None:
                    reader.file.close()

    def _open(self, nth: int, copy: ComparedCopy) -> CycleReader | None:
        self._noted.append([])
        report = copy.file_of(self._cycle)
        if report is None:
            return None
        try:
            file = FileBytes(report.path)
        except FileNotFoundError:
            return None
        except (QueueDamaged, OSError):
            self._take_findings(nth, report)
            return None
        header = _header_or_report(file, report, self._cycle_first)
        if isinstance(header, StoreReport):
            file.close()
            self._take_findings(nth, header)
            return None
        self._noted[nth] = copy.notes.of(report.path, self._cycle)
        with_chain = has_chains() and (self._span.with_digests or bool(self._noted[nth]))
        return CycleReader(file, header, self._cycle_first, with_chain=with_chain)

    def _take_findings(self, nth: int, report: StoreReport) -> None:
        self._flaws += [Flaw(copy=nth, finding=finding) for finding in report.findings]

    def _one_files(self) -> Iterator[OneFile]:
        """Copies whose store file is another copy's, by a link."""
        found: dict[tuple[int, int], list[Path]] = {}
        for reader in self._readers:
            if reader is not None:
                found.setdefault(identity_in(os.stat(reader.file.path)), []).append(
                    reader.file.path
                )
        yield from (OneFile(paths=tuple(paths)) for paths in found.values() if len(paths) > 1)

    def _pieces(self) -> Iterator[SameRange | NamedDifference]:
        """The ranges of each step, not yet joined."""
        span = self._span
        while span.index_last is None or self._index <= span.index_last:
            counts = [0 if reader is None else reader.available() for reader in self._readers]
            if not any(counts):
                return
            count = self._step(counts)
            parts = [
                reader.take(count) if reader is not None and each else None
                for reader, each in zip(self._readers, counts, strict=True)
            ]
            held = [part for part in parts if part is not None]
            is_equal = all(are_equal(held[0], other) for other in held[1:])
            self._follow_chains(parts, is_equal=is_equal)
            if self._index >= span.index_first:
                self._count(parts)
                yield from self._compare(parts, count, is_equal=is_equal)
            self._index = Index(self._index + count)

    def _step(self, counts: list[int]) -> int:
        """The number of excerpts to take: all at hand, but none beyond a place where a copy, the
        span or a noted chain ends."""
        count = min(each for each in counts if each)
        if self._index < self._span.index_first:
            count = min(count, self._span.index_first - self._index)
        elif self._span.index_last is not None:
            count = min(count, self._span.index_last - self._index + 1)
        for reader, noted in zip(self._readers, self._noted, strict=True):
            if reader is not None and noted and noted[0].sequence > reader.sequence:
                count = min(count, noted[0].sequence - reader.sequence)
        return count

    def _count(self, parts: list[CopyPart | None]) -> None:
        for nth, part in enumerate(parts):
            if part is not None:
                self._compared[nth] += part.count
        held = next(part for part in parts if part is not None)
        self._progress(held.count, held.payload_bytes())

    def _follow_chains(self, parts: list[CopyPart | None], *, is_equal: bool) -> None:
        """Takes the parts into the chains, and holds these against what is noted."""
        made: dict[bytes, bytes] = {}  # equal excerpts lead from equal chains to equal ones
        for nth, (reader, part) in enumerate(zip(self._readers, parts, strict=True)):
            if reader is None or part is None or reader.chain is None:
                continue
            before = reader.chain
            if is_equal and before in made:
                reader.chain = made[before]
            else:
                reader.extend_chain(part)
                made[before] = reader.chain
            self._check_noted(nth, reader)

    def _check_noted(self, nth: int, reader: CycleReader) -> None:
        noted = self._noted[nth]
        while noted and noted[0].sequence <= reader.sequence:
            place = noted.pop(0)
            if place.sequence < reader.sequence or place.chain == reader.chain:
                self._agreed[nth] = place.sequence
                continue
            first = self._index_at(self._agreed[nth])
            last = self._index_at(place.sequence - 1)
            self._add_damage(
                nth, reader, first,
                f"at least one excerpt up to {format_index(last)} is not what it was when it was"
                f" appended, as {place.path.name} says",
            )  # fmt: skip
            noted.clear()

    def _check_all_noted(self, nth: int, reader: CycleReader) -> None:
        """Says so where the file ends before what is noted of it."""
        path, info = reader.file.path, self._copies[nth].info
        is_told = any(
            each.part is FilePart.DIRECTORY and each.path == path for each in info.findings
        )
        if self._noted[nth] and not is_told:
            place = self._noted[nth][-1]
            text = f"{place.path.name} says {place.sequence} excerpts, {reader.sequence} are there"
            self._add_damage(nth, reader, self._index_at(reader.sequence), text)

    def _add_damage(self, nth: int, reader: CycleReader, index: Index, text: str) -> None:
        finding = Finding(
            kind=FindingKind.DAMAGE, path=reader.file.path, position=None, index=index, text=text
        )
        self._flaws.append(Flaw(copy=nth, finding=finding))

    def _index_at(self, sequence: int) -> Index:
        return Index(self._cycle_first + sequence)

    def _compare(
        self, parts: list[CopyPart | None], count: int, *, is_equal: bool
    ) -> Iterator[SameRange | NamedDifference]:
        """The ranges of excerpts that the copies that are not None have."""
        at = 0
        while at < count:
            held = [part.cut(at, count - at) for part in parts if part is not None]
            equal = count - at if is_equal else equal_count(held)
            first, at = self._index + at, at + equal
            if equal:
                yield self._same(parts, first, equal)
            if at < count:
                ones = [None if part is None else part.cut(at, 1) for part in parts]
                yield self._differing(ones, self._index + at)
                at += 1

    def _same(
        self, parts: list[CopyPart | None], first: int, count: int
    ) -> SameRange | NamedDifference:
        """Equal excerpts, that may be missing in a copy."""
        last = first + count - 1
        if None not in parts:
            return SameRange(index_first=first, index_last=last)
        lacking = [nth for nth, part in enumerate(parts) if part is None]
        has_file = all(self._copies[nth].file_of(self._cycle) is not None for nth in lacking)
        kind = DifferenceKind.MISSING if has_file else DifferenceKind.FILE_MISSING
        return NamedDifference(
            kind=kind, cycle=self._cycle, index_first=first, index_last=last,
            present=tuple(part is not None for part in parts),
            sides=tuple(self._side(nth, part, None) for nth, part in enumerate(parts)),
            text="; ".join(self._why_missing(nth) for nth in lacking),
        )  # fmt: skip

    def _why_missing(self, nth: int) -> str:
        copy, reader = self._copies[nth], self._readers[nth]
        if reader is not None:
            where = f"at position {reader.walk.place.position}"
            return f"{reader.file.path} ends before, {where} ({reader.walk.end.value})"
        report = copy.file_of(self._cycle)
        if report is not None:
            return f"{report.path} cannot be read"
        files = copy.info.files
        is_below = bool(files) and self._cycle < files[0].cycle
        return f"{copy.path} has no store file" + (", its first one is later" if is_below else "")

    def _side(self, nth: int, part: CopyPart | None, byte: int | None) -> CopySide | None:
        if part is not None:
            return side_of(part.cut(0, 1), byte)
        reader = self._readers[nth]
        if reader is None:
            return None
        return CopySide(path=reader.file.path, position=reader.walk.place.position, length=None)

    def _differing(self, parts: list[CopyPart | None], index: int) -> NamedDifference:
        """One excerpt that is not the same in all copies that have it."""
        held = [(nth, part) for nth, part in enumerate(parts) if part is not None]
        byte = least_byte([part for _, part in held])
        kind, text = self._named(held, index, byte)
        return NamedDifference(
            kind=kind, cycle=self._cycle, index_first=index, index_last=index,
            present=tuple(part is not None for part in parts),
            sides=tuple(self._side(nth, part, byte) for nth, part in enumerate(parts)),
            byte_first=byte, text=text,
        )  # fmt: skip

    def _named(
        self, held: list[tuple[int, CopyPart]], index: int, byte: int | None
    ) -> tuple[DifferenceKind, str]:
        """Kind and text of a difference, told of the first copy that differs from the first."""
        if self._all is not None:
            return self._all, "as before"
        if index in self._exchanged:
            return DifferenceKind.EXCHANGED, self._exchanged[index]
        reference, one = held[0]
        other_nth, other = next(each for each in held[1:] if not are_equal(one, each[1]))
        whole = self._file_elsewhere(reference, other_nth) if index == self._cycle_first else None
        if whole is not None:
            self._all = DifferenceKind.FILE_EXCHANGED
            return self._all, whole
        self._diagnosed += 1
        look = diagnose if self._diagnosed <= _DIAGNOSED_MAX else diagnose_alone
        found = look(one, other)
        here, there = self._copies[reference].path, self._copies[other_nth].path
        if found.kind in _SHIFTED:
            self._all = found.kind
            many = f"{found.many} excerpt" + ("s" if found.many > 1 else "")
            is_less = found.kind is DifferenceKind.DROPPED
            less, more = (there, here) if is_less else (here, there)
            return found.kind, f"{less} lacks {many} of {more}; the rest stands as many lower"
        if found.kind is DifferenceKind.EXCHANGED:
            partner = index + found.many
            self._exchanged[partner] = f"exchanged with {format_index(index)}"
            return found.kind, f"exchanged with {format_index(partner)} in {there}"
        if found.kind is DifferenceKind.TORN:
            return found.kind, f"sectors of zeros, as a power cut leaves them, from byte {byte}"
        return found.kind, f"first byte that differs: {byte}"

    def _file_elsewhere(self, reference: int, other: int) -> str | None:
        """Says so where the other copy's store file is that of another cycle of the first one."""
        reader = self._readers[other]
        assert reader is not None
        report = self._copies[other].file_of(self._cycle)
        for file in self._copies[reference].info.files:
            is_like = report is not None and file.count == report.count and file.count
            if file.cycle == self._cycle or not is_like:
                continue
            with FileBytes(file.path) as there:
                if hold_the_same(reader.file, there):
                    return f"{reader.file.path} holds what {file.path} does, of another cycle"
        return None

    def _ends(self) -> Iterator[NamedDifference]:
        """The cycle is closed in one copy, and open in another with the same excerpts."""
        readers = [reader for reader in self._readers if reader is not None]
        if not all(reader.has_ended for reader in readers):
            return
        closed = {reader.walk.end is End.CLOSED for reader in readers}
        if len(closed) < 2 or len({reader.sequence for reader in readers}) > 1:
            return
        open_ones = [
            nth
            for nth, reader in enumerate(self._readers)
            if reader is not None and reader.walk.end is not End.CLOSED
        ]
        is_note = all(self._is_last_of(nth) for nth in open_ones)
        self._is_same = self._is_same and is_note
        index = self._index_at(readers[0].sequence)
        yield NamedDifference(
            kind=DifferenceKind.END, cycle=self._cycle, index_first=index, index_last=index,
            present=tuple(reader is not None for reader in self._readers),
            sides=tuple(self._side(nth, None, None) for nth in range(len(self._readers))),
            text="the cycle is not closed in "
            + ", ".join(str(self._copies[nth].path) for nth in open_ones),
            is_note=is_note,
        )  # fmt: skip

    def _is_last_of(self, nth: int) -> bool:
        files = self._copies[nth].info.files
        return not any(file.cycle > self._cycle and file.count for file in files)

    def _digests(self) -> CycleDigests:
        readers = self._readers
        with_digests = self._span.with_digests
        return CycleDigests(
            cycle=self._cycle,
            counts=tuple(
                None if reader is None else count
                for reader, count in zip(readers, self._compared, strict=True)
            ),
            digests=tuple(
                None if reader is None or reader.chain is None or not with_digests
                else reader.chain.hex()
                for reader in readers
            ),
            is_same=self._is_same,
        )  # fmt: skip


def _header_or_report(
    file: FileBytes, seen: StoreReport, index_first: Index
) -> StoreHeader | StoreReport:
    """The header; a report of what is wrong where it cannot be read.

    Args:
        seen: what the inspection has found: it knows what the file held.
    """
    try:
        header = read_header(file, seen.cycle, index_first)
    except NotAQueue:  # the header of another version
        return seen
    return seen if isinstance(header, StoreReport) and seen.count is None else header


def _are_one(first: SameRange | NamedDifference, second: SameRange | NamedDifference) -> bool:
    """One kind in the same copies."""
    return _key(first) == _key(second)


def _key(piece: SameRange | NamedDifference) -> tuple[object, ...]:
    if isinstance(piece, SameRange):
        return ("same",)
    return piece.kind, piece.present
