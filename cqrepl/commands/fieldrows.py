"""Excerpts as rows of fields: CSV for programs, a table with aligned columns for people.

Columns are the fields that were asked for, or those of the queue's schema, or of the first
document. A document with further fields loses them from the rows; how many did is told at the end.
"""

import csv
import io
from typing import Final

from cqrepl.console.output import write_text
from cqrepl.console.payload import cell_text
from cqrepl.console.units import plural
from cqrepl.queue import Excerpt, format_index
from cqrepl.typed.documentfields import ABSENT, field_at, fields_of, leaves_of
from wire.errors import WireError

_CELL_MAX: Final = 40  # characters of a cell that others of its column are aligned with
_ROWS_MAX: Final = 1000  # of a table that are held until their widths are known
Paths = tuple[tuple[str, ...], ...]


class FieldRows:
    """Prints rows. `flush` gives out what is held back for its widths."""

    def __init__(self, form: str, paths: Paths) -> None:
        """
        Args:
            form: `csv` or `table`.
            paths: of the columns; none: those of the first document.
        """
        self._is_table = form == "table"
        self._paths = paths
        self._is_chosen = bool(paths)
        self._is_begun = False
        self._rows: list[list[str]] = []
        self._widths: list[int] = []
        self._wider = 0  # documents with fields that are no columns

    def add(self, excerpt: Excerpt) -> None:
        """Prints an excerpt, or holds it back; one that is no document has empty cells."""
        try:
            fields = fields_of(excerpt.data) or {}
        except WireError:
            fields = {}
        if not self._paths:
            self._paths = tuple(tuple(path.split(".")) for path, _ in leaves_of(fields))
        values = [field_at(fields, path) for path in self._paths]
        cells = ["" if value is ABSENT else cell_text(value) for value in values]
        if not self._is_chosen:
            known = {".".join(path) for path in self._paths}
            self._wider += any(path not in known for path, _ in leaves_of(fields))
        if not self._is_begun:
            self._is_begun = True
            self._put(["index", *(".".join(path) for path in self._paths)])
        self._put([format_index(excerpt.index), *cells])

    def flush(self) -> None:
        """Prints the rows that were held back."""
        rows, self._rows = self._rows, []
        for row in rows:
            for at, cell in enumerate(row):
                if at == len(self._widths):
                    self._widths.append(0)
                self._widths[at] = max(self._widths[at], min(len(cell), _CELL_MAX))
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
            write_text("  ".join(cells).rstrip() + "\n")

    def notes(self) -> list[str]:
        """Lines on what the rows do not show."""
        if not self._wider:
            return []
        count = plural(self._wider, "document")
        return [f"{count} with fields that are no columns: --fields names them"]

    def _put(self, row: list[str]) -> None:
        if self._is_table:
            self._rows.append([cell.replace("\n", "\\n") for cell in row])
            if len(self._rows) >= _ROWS_MAX:
                self.flush()
            return
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        write_text(text.getvalue())
