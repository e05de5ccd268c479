"""The index pages of a store file: from a sequence to the position of its excerpt.

Theory of operation. Every `index_spacing`-th excerpt has a slot, in two levels:

    index2index   slot i: position of index page i, 0 if there is none
    index page i  slot j: position of excerpt (i * index_count + j) * index_spacing, 0 if unknown

Pages are meta-data documents between the excerpts; the first is made with the file, each further
one right behind the first excerpt that belongs into it. Each array starts with its capacity and
`used`, the number of slots up to the greatest one in use.

Slots are set after an excerpt is published, and a writer may die before: holes occur, and an
excerpt is then found by walking from the slot before. A slot is trusted only after a walk from the
slot before it has led to exactly that position; otherwise the walk starts at the file's start.
So a damaged page costs time and never shows bytes that are no excerpt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue.files.storefile import START, Place, StoreFile
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Position, Sequence
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from wire.errors import WireError
from wire.header import HEADER_BYTES, body_length, is_metadata, is_ready
from wire.reader import Reader

_LONG_BYTES = 8
_USED = 8  # offset of `used` in an array


class _KnownHead(NamedTuple):
    """The bytes between a page's header word and its array, and their number."""

    data: bytes
    length: int


# the pages of all files of a queue begin alike: a plan over thousands of files would take longer to
# parse them than for all the rest. By header word, name, number of slots, and what the position
# leaves of 8, as the array is aligned to that
_known_heads: dict[tuple[int, str, int, int], _KnownHead] = {}
_KNOWN_MAX: Final = 64


class Indexing:
    """The index pages of one store file."""

    def __init__(self, store: StoreFile) -> None:
        self._store = store
        self._words = store.mapping  # its `words` change as the file grows
        self._count = store.header.index_count
        self._spacing = store.header.index_spacing
        self._arrays: dict[int, int] = {}  # page -> position of its array; pages never move
        self._pages_array: int | None = None

    def place_before(self, sequence: int = NO_LIMIT) -> Place:
        """The nearest place at or before a sequence from which to walk; checked."""
        places = self._indexed_before(sequence)
        try:
            found = next(places, START)
            if found == START or self._leads_to(next(places, START), found):
                return found
        except QueueDamaged:
            pass
        return START

    def guess_before(self, sequence: int) -> Place:
        """The place that the nearest slot at or before a sequence names, unchecked: the walk from
        there checks it."""
        try:
            found = next(self._indexed_before(sequence), START)
        except QueueDamaged:
            return START
        return found if self._is_within(found) else START

    def position_of(self, sequence: int) -> int:
        """The position of an excerpt, as the slot of its sequence has it. The sequence is a
        multiple of the spacing.

        0 where it is not known: the slot is not set yet, or its writer died before it was, or there
        is no such page.

        Raises:
            QueueDamaged: what the page of pages names is no index page.
        """
        page, slot = divmod(sequence // self._spacing, self._count)
        array = self.array_of(page)
        return 0 if array is None else self._slot(array, slot)

    def slots_for(self, sequence: int) -> tuple[int, int, int, int] | None:
        """The index page that a sequence belongs into: position of its first slot, sequence of that
        one, how many there are, and the spacing; None while there is no such page."""
        page = self.page_of(sequence)
        array = self.array_of(page)
        if array is None:
            return None
        return array + ARRAY_HEAD_BYTES, self.page_start(page), self._count, self._spacing

    @property
    def pages_array(self) -> int | None:
        """The position of the array of the page of pages; None when there is no such page.

        Raises:
            QueueDamaged: what should be that page is none.
        """
        return self._pages()

    def page_of(self, sequence: int) -> int:
        """Number of the page that a sequence belongs into."""
        return sequence // self._spacing // self._count

    def page_start(self, page: int) -> int:
        """The first sequence of a page."""
        return page * self._count * self._spacing

    def page_end(self, page: int) -> int:
        """The first sequence behind those of a page."""
        return self.page_start(page + 1)

    def has_page(self, page: int) -> bool:
        """True when this page exists."""
        return self.array_of(page) is not None

    def set_page(self, page: int, position: int) -> None:
        """Records the position of a new page's header."""
        assert 0 <= page < self._count
        pages = self._pages()
        assert pages is not None
        self._set_slot(pages, page, position)

    def set_places(self, marks: list[tuple[int, int]]) -> None:
        """Records the (sequence, position) of excerpts in pages that exist."""
        for sequence, position in marks:
            page, slot = divmod(sequence // self._spacing, self._count)
            array = self.array_of(page)
            assert array is not None
            self._set_slot(array, slot, position)
        if marks:
            words, header = self._store.mapping.words, self._store.header
            words.raise_8(header.last_index, marks[-1][0] + self._spacing)

    def forget_from(self, place: Place) -> None:
        """Empties the slots of excerpts and pages that a power cut took. A slot that it left
        to an excerpt or page is in use, even where `used` says that it is not.

        Args:
            place: where the documents end.
        """
        pages = self._pages()
        if pages is None:
            return
        words, last = self._store.mapping.words, place.sequence // self._spacing
        self._arrays.clear()
        for page in range(self._count):
            position = self._slot(pages, page)
            if not position:
                continue
            try:
                array = self._array_at(position, "index") if position < place.position else None
            except QueueDamaged:
                array = None
            if array is None:
                words.store_8(pages + ARRAY_HEAD_BYTES + page * _LONG_BYTES, 0)
                continue
            first = last + (place.sequence % self._spacing > 0) - page * self._count
            first = min(max(first, 0), self._count)
            for slot in range(first, self._count):
                if self._slot(array, slot):
                    words.store_8(array + ARRAY_HEAD_BYTES + slot * _LONG_BYTES, 0)
            # the sector of `used` may be older than those of the slots
            kept = next((slot for slot in range(first - 1, -1, -1) if self._slot(array, slot)), -1)
            words.raise_8(array + _USED, kept + 1)

    def _set_slot(self, array: int, slot: int, position: int) -> None:
        words = self._store.mapping.words
        at = array + ARRAY_HEAD_BYTES + slot * _LONG_BYTES
        if not words.exchange_8(at, 0, position):
            words.store_8(at, position)  # the same, or damage: readers would refuse the excerpt
        words.raise_8(array + _USED, slot + 1)

    def _indexed_before(self, sequence: int) -> Iterator[Place]:
        """Places of the slots in use, from `sequence` downwards; not checked."""
        page, slot = divmod(sequence // self._spacing, self._count)
        pages = self._pages()
        page_last = -1 if pages is None else self._last_used(pages)
        if page > page_last:
            page, slot = page_last, self._count - 1
        while page >= 0:
            array = self.array_of(page)
            if array is not None:
                for at in range(min(slot, self._last_used(array)), -1, -1):
                    position = self._slot(array, at)
                    if position:
                        sequence = (page * self._count + at) * self._spacing
                        yield Place(Sequence(sequence), Position(position))
            page, slot = page - 1, self._count - 1

    def _leads_to(self, start: Place, place: Place) -> bool:
        """True when walking on from `start` finds the excerpt of `place` exactly there."""
        if not (self._is_within(start) and self._is_within(place)):
            return False
        walked = self._store.walk(start, place.sequence + 1)
        return walked.place.sequence > place.sequence and walked.position_last == place.position

    def _is_within(self, place: Place) -> bool:
        """True when a header can stand there. The walk from there looks whether the file was cut
        meanwhile."""
        return self._store.can_stand_at(place.position)

    def _pages(self) -> int | None:
        """The position of the array of the page of pages; None when there is no such page."""
        if self._pages_array is None:
            position = self._store.mapping.words.load_8(self._store.header.pages)
            if position:
                self._pages_array = self._array_at(position, "index2index")
        return self._pages_array

    def array_of(self, page: int) -> int | None:
        """The position of the array of an index page; None when there is no such page."""
        if page not in self._arrays:
            pages = self._pages()
            position = 0 if pages is None or page >= self._count else self._slot(pages, page)
            if not position:
                return None
            self._arrays[page] = self._array_at(position, "index")
        return self._arrays[page]

    def _array_at(self, position: int, name: str) -> int:
        """The position of the array of the page with its header at `position`."""
        store = self._store
        word = 0
        if position > 0 and position % store.header.alignment == 0:
            word = store.word_at(position)
        end = position + HEADER_BYTES + body_length(word)
        if not (is_ready(word) and is_metadata(word) and store.mapping.cover(end)):
            raise QueueDamaged(f"expected an {name} page", path=store.path, position=position)
        begin, data = position + HEADER_BYTES, store.mapping.data
        key = word, name, self._count, position % _LONG_BYTES
        known = _known_heads.get(key)
        if known is not None and data[begin : begin + known.length] == known.data:
            array = begin + known.length
            if store.mapping.words.load_8(array) == self._count:
                return array
        reader = Reader(data, begin, end)
        try:
            found = reader.read_name()
            array = reader.read_bound_array()
        except WireError as error:
            raise QueueDamaged(
                f"expected an {name} page: {error}", path=store.path, position=position
            ) from error
        capacity = store.mapping.words.load_8(array) if array % _LONG_BYTES == 0 else 0
        if found != name or capacity != self._count:
            raise QueueDamaged(
                f"expected an {name} page of {self._count} slots, found {found!r} of {capacity}",
                path=store.path,
                position=position,
            )
        if len(_known_heads) >= _KNOWN_MAX:
            _known_heads.clear()
        _known_heads[key] = _KnownHead(bytes(data[begin:array]), array - begin)
        return array

    def _slot(self, array: int, slot: int) -> int:
        return self._store.mapping.words.load_8(array + ARRAY_HEAD_BYTES + slot * _LONG_BYTES)

    def _last_used(self, array: int) -> int:
        """The greatest slot that may be in use: `used` itself lags by one when a writer died."""
        used = self._store.mapping.words.load_8(array + _USED)
        return min(max(used, 0), self._count - 1)
