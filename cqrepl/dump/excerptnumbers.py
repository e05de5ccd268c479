"""The indexes of the excerpts of a store file.

Theory of operation. A store file does not say its own cycle: its name does, together with the roll
cycle that the table store beside it keeps. Without a table store the name alone tells the roll
cycle. Of a file with another name, and of standard input, only the sequences are known. Every
ready data document is an excerpt; they are counted from 0.
"""

from dataclasses import dataclass
from pathlib import Path

from cqrepl.dump.documentreader import Document
from cqrepl.dump.entries import Entry
from wire.errors import WireError
from wire.header import is_metadata, is_ready
from wire.reader import Reader

_INDEX_PAGES = ("index2index", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The cycle of a store file; `shift` is how many bits of an index hold the sequence."""

    number: int
    shift: int

    @property
    def index_first(self) -> int:
        """The index of sequence 0."""
        return self.number << self.shift


class Numbering:
    """Counts the excerpts of one store file.

    Args:
        cycle: where it is known.
        sequence: of the next excerpt; None when that is not known.
    """

    def __init__(self, cycle: Cycle | None, sequence: int | None = 0) -> None:
        self.cycle = cycle
        self.sequence = sequence

    def entry(self, document: Document) -> Entry:
        """The next document of the file with its index or sequence."""
        sequence = self.sequence
        if sequence is None or not is_ready(document.word) or is_metadata(document.word):
            return Entry(document=document, is_index_page=is_index_page(document))
        self.sequence = sequence + 1
        index = None if self.cycle is None else self.cycle.index_first + sequence
        return Entry(document=document, index=index, sequence=sequence)


def is_index_page(document: Document) -> bool:
    """True for the meta-data documents that lead from sequences to positions."""
    if not is_metadata(document.word) or document.is_last:
        return False
    try:
        return Reader(document.body).read_name() in _INDEX_PAGES
    except WireError:
        return False


def cycle_of_file(path: Path) -> Cycle | None:
    """The cycle of the store file at `path`; None when its name does not tell."""
    from cqrepl.queue.files.storefile import SUFFIX
    from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
    from cqrepl.queue.format import rollcycle
    from cqrepl.queue.format.errors import QueueError

    if path.suffix != SUFFIX:
        return None
    name = path.name.removesuffix(SUFFIX)
    try:
        table = TableStore(path.parent / FILE_NAME, writable=False)
        layout = table.layout
        table.close()
        roll_cycle, epoch = layout.roll_cycle, layout.epoch
    except (QueueError, OSError):
        try:
            roll_cycle, epoch = rollcycle.by_file_name(name), 0
        except ValueError:
            return None
    number = roll_cycle.cycle_of_name(name, epoch)
    return None if number is None else Cycle(number=number, shift=roll_cycle.shift)
