"""The usual text of a queue file: each document with position, header and index."""

from typing import Final

from cqrepl.dump.documentreader import BODY_MAX, Document
from cqrepl.dump.entries import excerpt_suffix
from cqrepl.dump.excerptnumbers import Numbering
from cqrepl.dump.quickform import HEX_KIND


class AnnotatedForm:
    """Numbers the excerpts as they come; `Numbering.entry(...).text()`, only faster."""

    body_max: Final = BODY_MAX
    folds_unused: Final = True

    def __init__(self, numbering: Numbering, *, aligned: bool) -> None:
        self.aligned = aligned
        self._numbering = numbering
        cycle = numbering.cycle
        self._index_first = None if cycle is None else cycle.index_first

    def hex_line(self, position: int, length: int) -> str:
        """The lines before the items or the hex dump of an excerpt, or of data in a table store."""
        first, sequence = self._index_first, self._numbering.sequence
        if sequence is not None:
            self._numbering.sequence = sequence + 1
        index = None if first is None or sequence is None else first + sequence
        known = excerpt_suffix(index, sequence)
        plural = "" if length == 1 else "s"
        return (
            f"# position: {position}, header: 0x{length:08x} data, {length} byte{plural}{known}\n"
            f"{HEX_KIND}"
        )

    def whole(self, document: Document) -> str:
        """The text of any document."""
        return self._numbering.entry(document).text()
