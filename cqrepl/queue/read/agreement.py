"""Finds how far a walk over a store file agrees with what its writers recorded.

Theory of operation. Excerpts have no checksums, and a walk finds them by their lengths alone: one
that is wrong shifts all that comes behind it, and may come into step again, with every index from
there on wrong by one. So a walk is believed only up to a place that was recorded independently:

    an index slot   names the position of every `index_spacing`-th excerpt
    the end         no header is ready behind the last excerpt, and the write position, with the
                    sequence beside it, names that excerpt, or one before it that was passed

A slot that is not set says nothing: neither that the walk is right nor that it is wrong. Mostly the
last slot of a run agrees, and the few excerpts behind it can come with the next run. Where that
would leave too little, it is walked on, over headers alone, to the next place that says something.
How far that has led is kept, so each header is looked at twice at most.
"""

from bisect import bisect_left

from cqrepl.kernel.batch import FindStop, Found
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import Place, StoreFile
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Position, Sequence
from wire.header import HEADER_BYTES, aligned

_WALK_COUNT_MIN = 64  # excerpts in one step of the walk ahead, if slots are nearer than that
_WALK_COUNT_MAX = 65_536
_ENOUGH_NUMERATOR, _ENOUGH_DENOMINATOR = 3, 4  # such a part of a run is given without the rest
_GROWTH_SHIFT = 7  # a run grows by this little until it is cut, as excerpts may become shorter
_ENDS = (FindStop.NOT_READY, FindStop.END_OF_FILE)


class Agreement:
    """The certain part of one store file: every header before the position `end` is certain."""

    def __init__(self, store: StoreFile, indexing: Indexing) -> None:
        self._store = store
        self._indexing = indexing
        self.end = 0
        self._spacing = store.header.index_spacing
        self._run = 0  # about so many excerpts fill a run; 0 while that is not known

    def run_max(self, sequence: int, count_max: int) -> int:
        """The number of excerpts to look for at once: a run that ends right before an excerpt with
        a slot needs no cut.

        Args:
            sequence: of the first of them.
        """
        count = self._run - (sequence + self._run) % self._spacing
        return min(count, count_max) if count > 0 else count_max

    def certain_count(self, start: Place, found: Found, *, is_whole: bool = True) -> int:
        """The number of excerpts of a run that are certain: at least one.

        Args:
            start: of the first excerpt of the run; a place that a certain walk has led to.
            is_whole: the whole run is wanted, if it is right; else most of it will do, where that
                saves the walk ahead.

        Raises:
            QueueDamaged: the walk has gone astray, or what was recorded has.
        """
        offsets = found.offsets
        if offsets[-1] - HEADER_BYTES < self.end:
            return len(offsets)
        count = len(offsets)
        enough = count - 1 if is_whole else count * _ENOUGH_NUMERATOR // _ENOUGH_DENOMINATOR
        self._extend(start, found, offsets[enough] - HEADER_BYTES)
        if self.end > offsets[-1]:
            self._run += self._run >> _GROWTH_SHIFT
            return count
        self._run = max(0, count - self._spacing // 2)
        return bisect_left(offsets, self.end + HEADER_BYTES)

    def _extend(self, start: Place, found: Found, wanted: int) -> None:
        """Moves `end` behind the header at `wanted`, or as far as what was recorded agrees."""
        first = found.offsets[0] - HEADER_BYTES
        sequence: int
        sequence, count = start.sequence, _WALK_COUNT_MIN
        behind = sequence + len(found.offsets)
        position = aligned(found.position, self._store.header.alignment)
        if behind % self._spacing == 0 and self._indexing.position_of(behind) == position:
            self.end = position
            return
        last = start  # for a run that is not empty it is replaced before it is used
        try:
            while True:
                if found.offsets:
                    self._hold_slots(sequence, found)
                    sequence += len(found.offsets)
                    position = Position(found.offsets[-1] - HEADER_BYTES)
                    last = Place(Sequence(sequence - 1), position)
                if found.stop in _ENDS and self._ends(start, found, last):
                    self.end = max(self.end, found.position)
                if self.end > wanted:
                    return
                to_slot = -sequence % self._spacing + 1
                found = self._store.find(found.position, count_max=max(to_slot, count))
                count = min(2 * count, _WALK_COUNT_MAX)
        except QueueDamaged:
            if self.end <= first:
                raise

    def _hold_slots(self, sequence: int, found: Found) -> None:
        """Moves `end` to the last excerpt of a run that stands where its slot says.

        Raises:
            QueueDamaged: a slot behind that one says something else.
        """
        spacing = self._spacing
        damaged = None
        first, last = sequence + -sequence % spacing, sequence + len(found.offsets) - 1
        for indexed in range(last - last % spacing, first - 1, -spacing):
            recorded = self._indexing.position_of(indexed)
            position = found.offsets[indexed - sequence] - HEADER_BYTES
            if recorded == position:
                self.end = max(self.end, position)
                break
            if recorded:
                damaged = QueueDamaged(
                    f"expected excerpt {indexed} at {recorded}, as its index slot says",
                    path=self._store.path,
                    position=position,
                )
        if damaged is not None:
            raise damaged

    def _ends(self, start: Place, found: Found, last: Place) -> bool:
        """True when what was recorded agrees that the file ends here; false when more has come.

        Raises:
            QueueDamaged: it names an excerpt that the walk did not find, or as another one.
        """
        if not self._store.check_end(found.position, last):
            return False
        recorded = self._store.write_position()
        if not found.offsets or not start.position <= recorded < last.position:
            return True
        body = recorded + HEADER_BYTES
        if body > found.offsets[0] and body not in found.offsets:
            raise QueueDamaged(
                "expected the excerpt that was recorded last, passed no header there",
                path=self._store.path,
                position=recorded,
            )
        return True
