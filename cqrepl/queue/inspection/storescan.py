"""Reads a whole store file, by `pread`, and says what is in it and what is wrong with it.

Theory of operation. What a walk over the documents finds is held against everything that writers
recorded beside them: write position and sequence word in the header, index pages, `lastIndex`.
Writers record after they publish, and may die in between, so a mark that lags is a hint, not
damage. A mark that is ahead of the walk is damage of one of two kinds:

    the mark        it alone is wrong: it can be set right
    the documents   a header word was lost, so the walk ends early or goes astray; the excerpts
                    behind may still lie there, and nothing of the file must be changed then, least
                    of all closed with an end-of-file mark, which would hide them for good

They are told apart by whether two marks that are stored separately agree. Another process may be
writing meanwhile: what looks wrong is read again, and is no finding once the end has moved.
"""

import hashlib
import os
import time
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cqrepl.queue.files.filebytes import LONG_BYTES, FileBytes
from cqrepl.queue.files.orphanfile import remains
from cqrepl.queue.files.storefile import (
    END_MARK,
    HEADER_MAX,
    START,
    Place,
    StoreHeader,
    parse_header,
)
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Cycle, Index, Position, Sequence
from cqrepl.queue.format.rollcycle import sequence_bits
from cqrepl.queue.format.storeimage import store_image
from cqrepl.queue.inspection.bisection import first_difference
from cqrepl.queue.inspection.documentwalk import DocumentWalk, End, MetadataDocument, Stretch
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind, Repair
from cqrepl.queue.inspection.pagescan import PageScan, long_bytes
from wire.header import END_OF_FILE, HEADER_BYTES, body_length, is_ready

_CHEAP_CHUNK_BYTES: Final = 1 << 14
_DIGEST_BYTES: Final = 32
_LOOK_PAUSE_S: Final = 0.001
_LOOKS: Final = 3  # a mark that lags is looked at so often: its writer may be just storing it


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """One store file. `count` is None when its header cannot be read.

    `digest` covers index, length and bytes of every excerpt: equal for equal excerpts under equal
    indexes, in any layout of the files. `is_whole` is false when excerpts seem to lie behind
    the place where the documents end, or indexes cannot be trusted. `sha256` is that of a closed
    file of which one was noted.
    """

    path: Path
    cycle: Cycle
    size_bytes: int
    allocated_bytes: int
    index_first: Index
    index_count: int | None = None
    index_spacing: int | None = None
    count: int | None = None
    position_end: int = 0
    end: End = End.NOTHING
    bytes_at_end: bytes = b""  # of a whole reading only
    is_whole: bool = True
    metadata_count: int | None = None
    metadata: tuple[MetadataDocument, ...] = ()
    digest: str | None = None
    sha256: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def index_last(self) -> Index | None:
        """Index of the last excerpt; None when there is none."""
        return Index(self.index_first + self.count - 1) if self.count else None


def scan_store(path: Path, cycle: Cycle, index_first: Index) -> StoreReport:
    """Reads a store file from its first byte to the end of its documents.

    Args:
        index_first: the index of sequence 0.

    Raises:
        FileNotFoundError: there is no file.
    """
    with FileBytes(path) as file:
        header = read_header(file, cycle, index_first)
        if isinstance(header, StoreReport):
            return header
        walk, scan = DocumentWalk(file), StoreScan(file, header, index_first)
        digest = PayloadDigest(index_first)
        for stretch in walk.stretches():
            scan.take(stretch)
            lengths = stretch.lengths
            for piece in stretch.payload_pieces():
                digest.take(lengths, piece)
                lengths = lengths[:0]
        return scan.report(walk, cycle, digest.text())


def glance_store(path: Path, cycle: Cycle, index_first: Index) -> StoreReport:
    """Count and end of a store file, by what writers recorded in it and a walk from there.

    It takes the same time however many excerpts there are, unless the marks are gone.

    Raises:
        FileNotFoundError: there is no file.
    """
    with FileBytes(path) as file:
        header = read_header(file, cycle, index_first)
        if isinstance(header, StoreReport):
            return header
        walk = DocumentWalk(file, _recorded(file, header), chunk_bytes=_CHEAP_CHUNK_BYTES)
        walk.run()
        if not walk.position_last and walk.place.sequence:  # the mark leads to no excerpt
            walk = DocumentWalk(file)
            walk.run()
        return StoreReport(
            path=path,
            cycle=cycle,
            size_bytes=file.size(),
            allocated_bytes=file.allocated(),
            index_first=index_first,
            index_count=header.index_count,
            index_spacing=header.index_spacing,
            count=walk.place.sequence,
            position_end=walk.place.position,
            end=walk.end,
            findings=_end_findings(walk, index_first, is_whole=False),
        )


def read_header(file: FileBytes, cycle: Cycle, index_first: Index) -> StoreHeader | StoreReport:
    """The header of a store file; a report of what is wrong where it cannot be read."""
    word = file.word(0)
    if is_ready(word):
        data = file.read(0, min(HEADER_BYTES + body_length(word), HEADER_MAX))
        try:
            if len(data) < HEADER_BYTES + body_length(word):
                raise QueueDamaged(
                    f"expected the header of a store file, found a document of"
                    f" {body_length(word)} bytes",
                    path=file.path,
                    position=0,
                )
            return parse_header(data, word, file.path)
        except QueueDamaged as error:
            kind, text, repair = FindingKind.DAMAGE, error.reason, None
    elif (position := remains(file.path)) is not None:
        kind, repair = FindingKind.DAMAGE, None
        text = f"the header of the file is lost, excerpts may stand from {position} on"
    else:
        kind = FindingKind.UNFINISHED
        text = "the file has no header: its creator is busy, or died over it"
        repair = Repair(
            path=file.path,
            position=0,
            found=word.to_bytes(HEADER_BYTES, "little"),
            written=b"",
            reason=text,
            renamed_to=f"{file.path.name}-{os.stat(file.path).st_mtime_ns // 1_000_000}.discard",
        )
    finding = Finding(
        kind=kind, path=file.path, position=0, index=index_first, text=text, repair=repair,
        part=FilePart.HEADER,
    )  # fmt: skip
    return StoreReport(
        path=file.path,
        cycle=cycle,
        size_bytes=file.size(),
        allocated_bytes=file.allocated(),
        index_first=index_first,
        is_whole=False,
        findings=(finding,),
    )


@dataclass(slots=True)
class PayloadDigest:
    """A digest of excerpts that does not depend on how they are cut into batches."""

    index_first: Index
    count: int = 0
    _lengths: hashlib.blake2b = field(default_factory=hashlib.blake2b)
    _payloads: hashlib.blake2b = field(default_factory=hashlib.blake2b)

    def take(self, lengths: "array[int]", payloads: bytes) -> None:
        """Adds excerpts, or a further piece of the last one with no lengths."""
        self.count += len(lengths)
        self._lengths.update(lengths.tobytes())
        self._payloads.update(payloads)

    def text(self) -> str:
        """The digest, hexadecimal."""
        whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        whole.update(array("q", [self.index_first, self.count]).tobytes())
        whole.update(self._lengths.digest() + self._payloads.digest())
        return whole.hexdigest()


class StoreScan:
    """Compares a walk over a whole store file with what the file records of itself: its write
    position and its index pages. Call `take` with every stretch, then `report`."""

    def __init__(self, file: FileBytes, header: StoreHeader, index_first: Index) -> None:
        self._file = file
        self._header = header
        self._index_first = index_first
        self._shift = sequence_bits(header.index_count, header.index_spacing)
        self._recorded = file.long(header.write_position)
        self._recorded_sequence = -1  # of the excerpt that stood at `_recorded`; -1: none did
        self._findings: list[Finding] = []
        self._is_astray = False
        self._pages = PageScan(file, header, index_first)

    def take(self, stretch: Stretch) -> None:
        """Takes up where the excerpts of a stretch stand."""
        self._pages.take(stretch)
        self._look_for_recorded(stretch)

    def report(self, walk: DocumentWalk, cycle: Cycle, digest: str | None) -> StoreReport:
        """Says what was found, once the walk has come to its end.

        Args:
            digest: of the excerpts, where one was made.
        """
        file, header, pages = self._file, self._header, self._pages
        self._check_names()
        agreed = self._check_recorded(walk)
        found = pages.finish(walk, agreed)
        is_whole = (
            not self._is_astray
            and not pages.is_astray
            and pages.lost is None
            and walk.end is not End.BROKEN
        )
        findings = self._findings + found
        if not is_whole:
            findings = [self._without_repair(each, pages.agreed) for each in findings]
        return StoreReport(
            path=file.path,
            cycle=cycle,
            size_bytes=file.size(),
            allocated_bytes=file.allocated(),
            index_first=self._index_first,
            index_count=header.index_count,
            index_spacing=header.index_spacing,
            count=walk.place.sequence,
            position_end=walk.place.position,
            end=walk.end,
            bytes_at_end=file.read(walk.place.position, len(END_MARK)).ljust(len(END_MARK), b"\0"),
            is_whole=is_whole,
            metadata_count=walk.metadata_count,
            metadata=tuple(walk.metadata),
            digest=digest,
            findings=(*_end_findings(walk, self._index_first, is_whole), *findings),
        )

    def _check_names(self) -> None:
        """Names and types that Java goes by, and we do not: as Java lays them, or altered."""
        header, longs = self._header, LONG_BYTES
        image = bytearray(store_image(header.index_count, header.index_spacing))
        length = HEADER_BYTES + body_length(self._file.word(0))
        if length != HEADER_BYTES + body_length(int.from_bytes(image[:HEADER_BYTES], "little")):
            return  # of another release: what else is in it is unknown
        found = bytearray(self._file.read(0, length))
        for at, size in (
            (header.write_position, 2 * longs),
            (header.pages, longs),
            (header.last_index, longs),
        ):
            found[at : at + size] = image[at : at + size]
        different = first_difference(bytes(found), bytes(image[:length]))
        if different is not None:
            self._add(different, "a name or type in the header of the file is altered")

    def _look_for_recorded(self, stretch: Stretch) -> None:
        """Notes the sequence of the excerpt that the header calls the last one."""
        offset = self._recorded - stretch.base + HEADER_BYTES
        if stretch.offsets[0] <= offset <= stretch.offsets[-1]:
            nth = bisect_left(stretch.offsets, offset)
            if stretch.offsets[nth] == offset:
                self._recorded_sequence = stretch.sequence + nth

    def _check_recorded(self, walk: DocumentWalk) -> int:
        """Write position and sequence word; a sequence at which they agree with the walk, or -1."""
        last, sequence = walk.position_last, walk.place.sequence - 1
        for _ in range(_LOOKS):
            recorded, word = self._pair()
            if recorded == last or is_ready(self._file.word(walk.place.position)):
                break
            time.sleep(_LOOK_PAUSE_S)
        if is_ready(self._file.word(walk.place.position)) and walk.end is not End.BROKEN:
            return -1  # more came meanwhile: nothing can be said
        at = self._header.write_position
        if recorded == last:
            return self._check_word(last, sequence, word, at + 8)
        # a word of 0 says nothing: it is that of an empty file
        agrees = word is not None and word != 0 and self._names(word, recorded)
        if recorded > last and (agrees or word is None):
            self._is_astray = True
            self._add(at, f"the last excerpt is recorded at {recorded}, the documents end before")
            return -1
        text = f"the last excerpt stands at {last}, recorded is {recorded}"
        was_passed = recorded == self._recorded and self._recorded_sequence >= 0
        # one that has changed since the walk began is a writer's at work
        is_hint = recorded == 0 or was_passed or self._recorded != recorded < last
        kind = FindingKind.HINT if is_hint else FindingKind.DAMAGE
        self._add(at, text, long_bytes(recorded), long_bytes(last), kind)
        if word is None:
            return -1
        expected = self._word_of(last, sequence)
        if word != expected:
            self._add(
                at + 8, "the sequence word belongs to another excerpt",
                long_bytes(word), long_bytes(expected), FindingKind.HINT,
            )  # fmt: skip
        if was_passed and recorded and agrees:
            return self._check_word(recorded, self._recorded_sequence, word, at + 8)
        return sequence if last and word == expected else -1

    def _check_word(self, position: int, sequence: int, word: int | None, at: int) -> int:
        """Holds the sequence word against a walk that found that excerpt at `position`."""
        if word is None:
            return -1
        expected = self._word_of(position, sequence)
        if word == expected:
            return sequence if position else -1
        if position and self._names(word, position):
            self._is_astray = True
            there = word & (1 << self._shift) - 1
            self._add(at, f"the last excerpt is recorded as sequence {there}, walked to {sequence}")
            return -1
        text = "the sequence word belongs to another excerpt than the write position"
        self._add(at, text, long_bytes(word), long_bytes(expected), FindingKind.HINT)
        return -1

    def _pair(self) -> tuple[int, int | None]:
        """Write position and sequence word now."""
        has_sequence = self._header.sequence is not None
        both = self._file.longs(self._header.write_position, 2 if has_sequence else 1)
        recorded = both[0] if both else 0
        return recorded, both[1] if len(both) > 1 else None

    def _word_of(self, position: int, sequence: int) -> int:
        if not position:
            return 0
        mask = (1 << self._shift) - 1
        word = ((position << self._shift) + (sequence & mask)) % (1 << 64)
        return word - (1 << 64) if word >> 63 else word

    def _names(self, word: int, position: int) -> bool:
        """True when the sequence word is that of the excerpt at `position`."""
        mask = (1 << 64 - self._shift) - 1
        return (word % (1 << 64)) >> self._shift == position & mask

    def _add(
        self,
        at: int,
        text: str,
        found: bytes | None = None,
        written: bytes = b"",
        kind: FindingKind = FindingKind.DAMAGE,
    ) -> None:
        path, repair = self._file.path, None
        if found is not None:
            repair = Repair(path=path, position=at, found=found, written=written, reason=text)
        self._findings.append(
            Finding(
                kind=kind,
                path=path,
                position=at,
                index=None,
                text=text,
                repair=repair,
                part=FilePart.HEADER,
            )
        )

    def _without_repair(self, finding: Finding, agreed: int) -> Finding:
        """The finding; only slots of which the walk is sure keep their repair."""
        is_sure = finding.index is not None and finding.index - self._index_first <= agreed
        if finding.repair is None or (is_sure and any(finding.repair.written)):
            return finding
        return Finding(
            kind=finding.kind, path=finding.path, position=finding.position,
            index=finding.index, text=finding.text, part=finding.part,
        )  # fmt: skip


def _recorded(file: FileBytes, header: StoreHeader) -> Place:
    """The last excerpt as recorded in the header; the start where that cannot be believed."""
    if header.sequence is None:
        return START
    position, word = file.longs(header.write_position, 2) or (0, 0)
    shift = sequence_bits(header.index_count, header.index_spacing)
    mask = (1 << 64 - shift) - 1
    there = file.word(position) if position > 0 and position % header.alignment == 0 else 0
    if is_ready(there) and (word % (1 << 64)) >> shift == position & mask:
        return Place(Sequence(word & (1 << shift) - 1), Position(position))
    return START


def _end_findings(walk: DocumentWalk, index_first: Index, is_whole: bool) -> tuple[Finding, ...]:
    sequence, position = walk.place
    path, index = walk.file.path, index_first + sequence
    if walk.end is End.BROKEN:
        length = body_length(walk.file.word(position))
        text = f"a document of {length} bytes ends behind the end of the file"
        return (
            Finding(kind=FindingKind.DAMAGE, path=path, position=position, index=index, text=text),
        )
    if walk.end is not End.NOT_COMPLETE:
        return ()
    word = walk.file.word(position)
    text = f"a header is not complete ({word:#010x}): its writer is busy, or died over it"
    repair = None
    if is_whole and word != END_OF_FILE:
        found = word.to_bytes(HEADER_BYTES, "little")
        repair = Repair(
            path=path, position=position, found=found, written=bytes(HEADER_BYTES), reason=text
        )
    return (
        Finding(
            kind=FindingKind.UNFINISHED, path=path, position=position, index=index,
            text=text, repair=repair,
        ),
    )  # fmt: skip
