"""Holds the index pages of a store file against a walk over its documents.

Theory of operation. The walk says where every `index_spacing`-th excerpt stands; a page is compared
as a whole once the walk has passed all that belongs into it, so its slots have been set by then,
but for the last few of a file that is being written. What differs is looked at again at the end.

A slot that is 0 is a hole: nothing contradicts the walk, and it can be filled. A slot that names
another position contradicts it, and one of the two is wrong. The walk is, when the length of an
excerpt was damaged so that it went astray and found its way back; all sequences behind are wrong
then, and so are all slots behind. Hence a wrong slot may be set right only if something behind it
agrees with the walk: a later slot, or the sequence word of the file's header.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from cqrepl.queue.files.filebytes import LONG_BYTES, FileBytes
from cqrepl.queue.files.storefile import StoreHeader
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES, page_image
from cqrepl.queue.inspection.documentwalk import INDEX, INDEX2INDEX, DocumentWalk, End, Stretch
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind, Repair
from wire.codes import Code
from wire.errors import WireError
from wire.header import HEADER_BYTES, align4, body_length, is_metadata, is_ready
from wire.reader import Reader

_USED: Final = 8  # offset of `used` in an array
_HEAD_MAX: Final = 64  # name, padding and capacity of a page lie within so many bytes


class _Difference(NamedTuple):
    """Neighbouring slots that do not say what the walk found."""

    sequence: int  # of the first slot
    position: int  # of the first slot
    found: "array[int]"
    expected: "array[int]"


class Lost(NamedTuple):
    """An excerpt that an index slot names, behind where the walk ended."""

    sequence: int
    position: int


class PageScan:
    """The check of one store file's index pages. `take` every stretch, then `finish`.

    Args:
        index_first: the index of the file's first excerpt.
    """

    def __init__(self, file: FileBytes, header: StoreHeader, index_first: Index) -> None:
        self._file = file
        self._header = header
        self._count, self._spacing = header.index_count, header.index_spacing
        self._index_first = index_first
        self._header_end = HEADER_BYTES + body_length(file.word(0))
        self._marks: array[int] = array("q")  # positions of what belongs into page `_page`
        self._page = 0
        self._held: dict[int, array[int]] = {}  # of pages that could not be found yet
        self._differences: list[_Difference] = []
        self._findings: list[Finding] = []
        self._referenced: set[int] = set()
        self._arrays: dict[int, int] = {}  # where the arrays of pages are that were compared
        self._pages_array = self._array_at(file.long(header.pages), INDEX2INDEX)
        self.agreed = -1  # the greatest sequence whose slot says what the walk found
        self.is_astray = False  # wrong slots, and nothing behind them agrees with the walk
        self.lost: Lost | None = None

    def take(self, stretch: Stretch) -> None:
        """Takes up where the excerpts of a stretch stand."""
        first = -stretch.sequence % self._spacing
        shift = stretch.base - HEADER_BYTES
        for offset in stretch.offsets[first :: self._spacing]:
            if len(self._marks) == self._count:
                self._compare(self._page, self._marks)
                self._page, self._marks = self._page + 1, array("q")
            if self._page < self._count:
                self._marks.append(offset + shift)

    def finish(self, walk: DocumentWalk, sequence_agreed: int) -> list[Finding]:
        """The findings about the index pages, after the last stretch was taken.

        Args:
            sequence_agreed: a sequence at which the file's header agrees with the walk; -1: none.
        """
        if self._marks or self._page == 0:
            self._compare(self._page, self._marks)
        marks_count = self._page * self._count + len(self._marks)
        self._find_held(walk)
        pages_count = max(1, -(-marks_count // self._count))
        self._check_behind(walk, marks_count, pages_count)
        self._check_numbers(walk, marks_count)
        self.agreed = max(self.agreed, sequence_agreed)
        for difference in self._differences:
            self._report(difference)
        return self._findings

    def _compare(self, page: int, marks: "array[int]") -> None:
        """Holds the slots of one page against the walk; keeps the marks if it is not found."""
        position = self._page_position(page)
        array_at = self._array_at(position, INDEX)
        if array_at is None:
            self._held[page] = marks
            return
        self._referenced.add(position)
        self._compare_array(page, array_at, marks)

    def _compare_array(self, page: int, array_at: int, marks: "array[int]") -> None:
        self._arrays[page] = array_at
        slots = self._file.longs(array_at + ARRAY_HEAD_BYTES, len(marks))
        first = page * self._count
        if slots == marks:
            if marks:
                self.agreed = max(self.agreed, (first + len(marks) - 1) * self._spacing)
        else:
            for begin, end in _unequal_runs(slots, marks):
                at = array_at + ARRAY_HEAD_BYTES + begin * LONG_BYTES
                difference = _Difference(
                    (first + begin) * self._spacing, at, slots[begin:end], marks[begin:end]
                )
                self._differences.append(difference)
            agreeing = [nth for nth, slot in enumerate(slots) if slot == marks[nth]]
            if agreeing:
                self.agreed = max(self.agreed, (first + agreeing[-1]) * self._spacing)
        self._check_used(array_at, len(marks), f"index page {page}")

    def _check_used(self, array_at: int, count: int, what: str) -> None:
        used = self._file.long(array_at + _USED)
        if not count <= used <= self._count:
            self._hint(array_at + _USED, used, count, f"{what} has {count} slots, {used} recorded")

    def _find_held(self, walk: DocumentWalk) -> None:
        """Looks among the documents walked for pages that nothing led to."""
        if not self._held:
            return
        if self._pages_array is None:
            self._pages_array = self._find_pages_array(walk)
        spare = [
            page.position
            for page in walk.pages
            if page.name == INDEX
            and page.position not in self._referenced
            and self._array_at(page.position, INDEX) is not None
        ]
        known = {page.position for page in walk.pages}
        for number, marks in sorted(self._held.items()):
            there = self._page_position(number)
            # or a writer has made it since the walk ended
            is_page = there in known or (there >= walk.place.position and self._has_moved(walk))
            array_at = self._array_at(there, INDEX) if is_page else None
            if array_at is not None:
                spare = [position for position in spare if position != there]
            else:
                array_at = self._rewritten(walk, there, INDEX)
            if array_at is None:
                place = spare.pop(0) if spare else 0
                self._report_page(number, there, place, marks)
                array_at = self._array_at(place, INDEX)
            if array_at is not None:
                self._compare_array(number, array_at, marks)
        self._held.clear()

    def _find_pages_array(self, walk: DocumentWalk) -> int | None:
        """The page of pages, that the header does not lead to."""
        at = self._header.pages
        found = self._file.long(at)
        for page in walk.pages:
            array_at = self._array_at(page.position, INDEX2INDEX)
            if array_at is not None:
                text = f"the header says {found}, the page of index pages stands at {page.position}"
                self._damage(at, found, page.position, text)
                return array_at
        array_at = self._rewritten(walk, found, INDEX2INDEX)
        if array_at is None:
            text = f"there is no page of index pages, recorded is {found}"
            self._findings.append(self._finding(FindingKind.DAMAGE, at, None, text))
        return array_at

    def _report_page(self, page: int, there: int, place: int, marks: "array[int]") -> None:
        sequence = page * self._count * self._spacing
        if self._pages_array is None:
            return  # said once for all of them
        at = self._pages_array + ARRAY_HEAD_BYTES + page * LONG_BYTES
        if place:
            kind = FindingKind.DAMAGE if there else FindingKind.HINT
            text = f"index page {page} stands at {place}, recorded is {there}"
            self._findings.append(self._finding(kind, at, sequence, text, there, place))
        elif there:
            text = f"no index page stands at {there}, where page {page} is recorded"
            self._findings.append(self._finding(FindingKind.DAMAGE, at, sequence, text, there, 0))
        elif marks:
            text = f"index page {page} is missing: its excerpts are found by walking"
            self._findings.append(self._finding(FindingKind.HINT, at, sequence, text))

    def _rewritten(self, walk: DocumentWalk, position: int, name: str) -> int | None:
        """The array of a page whose head cannot be read, but is to be set right; None: no page."""
        documents = (*walk.pages, *walk.metadata)
        if position <= 0 or not any(each.position == position for each in documents):
            return None
        image, array_at = page_image(name, position, self._count)
        if body_length(self._file.word(position)) + HEADER_BYTES not in (
            len(image),
            array_at + ARRAY_HEAD_BYTES + self._count * LONG_BYTES - position,
        ):
            return None
        start, end = position + HEADER_BYTES, array_at + LONG_BYTES
        found = self._file.read(start, end - start)
        written = bytes(image[HEADER_BYTES : end - position])
        reason = f"the head of an {name} page is damaged"
        repair = Repair(
            path=self._file.path, position=start, found=found, written=written, reason=reason
        )
        self._findings.append(
            Finding(
                kind=FindingKind.DAMAGE, path=self._file.path, position=start,
                index=None, text=reason, repair=repair, part=FilePart.PAGE,
            )
        )  # fmt: skip
        return array_at

    def _check_behind(self, walk: DocumentWalk, marks_count: int, pages_count: int) -> None:
        """Slots behind those of the last excerpt are 0."""
        last = pages_count - 1
        array_at = self._arrays.get(last)
        used = marks_count - last * self._count
        if array_at is not None:
            start = array_at + ARRAY_HEAD_BYTES + used * LONG_BYTES
            slots = self._file.longs(start, self._count - used)
            self._check_empty(walk, slots, start, marks_count * self._spacing, self._spacing)
        if self._pages_array is not None:
            start = self._pages_array + ARRAY_HEAD_BYTES + pages_count * LONG_BYTES
            slots = self._file.longs(start, self._count - pages_count)
            per_page = self._count * self._spacing
            self._check_empty(walk, slots, start, pages_count * per_page, per_page)
            self._check_used(self._pages_array, pages_count, INDEX2INDEX)

    def _check_empty(
        self, walk: DocumentWalk, slots: "array[int]", start: int, sequence: int, spacing: int
    ) -> None:
        if not any(slots) or self._has_moved(walk):
            return
        for begin, end in _unequal_runs(slots, array("q", bytes(len(slots) * LONG_BYTES))):
            first, found = sequence + begin * spacing, slots[begin]
            at = start + begin * LONG_BYTES
            if found > walk.place.position and is_ready(self._file.word(found)):
                self.lost = self.lost or Lost(first, found)
                text = f"the slot names an excerpt at {found}, the documents end before"
                self._findings.append(self._finding(FindingKind.DAMAGE, at, first, text))
                continue
            text = f"the slot names {found}, there is no such excerpt"
            wrong = slots[begin:end]
            zeros = bytes(len(wrong) * LONG_BYTES)
            self._findings.append(
                self._bytes_finding(FindingKind.DAMAGE, at, first, text, wrong.tobytes(), zeros)
            )

    def _has_moved(self, walk: DocumentWalk) -> bool:
        """True when an excerpt has come since the walk ended: marks are read before this."""
        is_there = is_ready(self._file.word(walk.place.position))
        return is_there and walk.end is not End.BROKEN

    def _check_numbers(self, walk: DocumentWalk, marks_count: int) -> None:
        at, expected = self._header.last_index, marks_count * self._spacing
        found = self._file.long(at)
        if found == expected or self._has_moved(walk):
            return
        text = f"the next sequence to be indexed is {expected}, recorded is {found}"
        if found > expected or found % self._spacing:
            self._damage(at, found, expected, text)  # a writer would leave excerpts out
        else:
            self._hint(at, found, expected, text)

    def _report(self, difference: _Difference) -> None:
        sequence, at, found, expected = difference
        if self._file.longs(at, len(found)) == expected:
            return  # set meanwhile
        count = len(found)
        many = f"{count} slots are" if count > 1 else "the slot is"
        if not any(found):
            kind, text = FindingKind.HINT, f"{many} empty"
        else:
            kind = FindingKind.DAMAGE
            text = f"{many} wrong: the excerpt stands at {expected[0]}, the slot says {found[0]}"
        is_sure = self.agreed >= sequence + (count - 1) * self._spacing
        if is_sure or not any(found):
            self._findings.append(
                self._bytes_finding(kind, at, sequence, text, found.tobytes(), expected.tobytes())
            )
            return
        self.is_astray = True
        text += "; or the lengths of excerpts before are, and indexes from here on"
        self._findings.append(self._finding(kind, at, sequence, text))

    def _page_position(self, page: int) -> int:
        if self._pages_array is None:
            return 0
        return self._file.long(self._pages_array + ARRAY_HEAD_BYTES + page * LONG_BYTES)

    def _array_at(self, position: int, name: str) -> int | None:
        """The position of the array of the page with its header at `position`; None where there is
        no such page."""
        if position <= 0 or position % self._header.alignment:
            return None
        word = self._file.word(position)
        if not (is_ready(word) and is_metadata(word)):
            return None
        head = self._file.read(position + HEADER_BYTES, _HEAD_MAX)
        reader = Reader(head)
        try:
            if reader.read_name() != name or reader.peek_code() != Code.I64_ARRAY:
                return None
        except WireError:
            return None
        array_at = position + HEADER_BYTES + reader.position + 1
        end = array_at + ARRAY_HEAD_BYTES + self._count * LONG_BYTES
        fits = align4(position + HEADER_BYTES + body_length(word)) >= end <= self._file.size()
        capacity = self._file.long(array_at)
        if array_at % LONG_BYTES or not fits or capacity != self._count:
            return None
        return array_at

    def _hint(self, at: int, found: int, expected: int, text: str) -> None:
        finding = self._finding(FindingKind.HINT, at, None, text, found, expected)
        self._findings.append(finding)

    def _damage(self, at: int, found: int, expected: int, text: str) -> None:
        finding = self._finding(FindingKind.DAMAGE, at, None, text, found, expected)
        self._findings.append(finding)

    def _finding(
        self,
        kind: FindingKind,
        at: int,
        sequence: int | None,
        text: str,
        found: int | None = None,
        expected: int = 0,
    ) -> Finding:
        if found is None:
            return Finding(
                kind=kind, path=self._file.path, position=at,
                index=self._index_of(sequence), text=text, part=self._part_of(at),
            )  # fmt: skip
        return self._bytes_finding(
            kind, at, sequence, text, long_bytes(found), long_bytes(expected)
        )

    def _bytes_finding(
        self,
        kind: FindingKind,
        at: int,
        sequence: int | None,
        text: str,
        found: bytes,
        written: bytes,
    ) -> Finding:
        path = self._file.path
        repair = Repair(path=path, position=at, found=found, written=written, reason=text)
        return Finding(
            kind=kind, path=path, position=at, index=self._index_of(sequence),
            text=text, repair=repair, part=self._part_of(at),
        )  # fmt: skip

    def _part_of(self, position: int) -> FilePart:
        return FilePart.HEADER if position < self._header_end else FilePart.PAGE

    def _index_of(self, sequence: int | None) -> int | None:
        return None if sequence is None else self._index_first + sequence


def long_bytes(value: int) -> bytes:
    """A signed 64-bit word as it lies in a file."""
    return value.to_bytes(LONG_BYTES, "little", signed=True)


def _unequal_runs(found: "array[int]", expected: "array[int]") -> Iterator[tuple[int, int]]:
    """The runs of slots in which the two differ, as start and end; a run has only empty slots, or
    only filled ones."""
    begin = -1
    for nth, value in enumerate(expected):
        same = nth < len(found) and found[nth] == value
        breaks = begin >= 0 and nth < len(found) and (found[nth] == 0) != (found[begin] == 0)
        if begin >= 0 and (same or breaks):
            yield begin, nth
            begin = -1
        if not same and begin < 0:
            begin = nth
    if begin >= 0:
        yield begin, len(expected)
