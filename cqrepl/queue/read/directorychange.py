"""The word of a queue's table store that is another one after every change of its directory.

Writers, Java's and ours, count a new store file there as soon as it has its name. A tailer that
waits for the next file lists the directory after it has taken the word, and then only has to look
at the word. A queue without a table store has no such word, nor has one whose writers keep none.
"""

import os
from contextlib import suppress
from pathlib import Path

from cqrepl.kernel.memory import WatchedWord
from cqrepl.queue.files.listing import CHANGES_KEY
from cqrepl.queue.files.mapping import identity_in
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueError


class DirectoryChange:
    """The word of one queue that changes with its directory. The table store is opened when the
    word is first asked for."""

    def __init__(self, table_path: Path) -> None:
        self._path = table_path
        self._table: TableStore | None = None

    def watched(self) -> WatchedWord | None:
        """The word, as it stands there now; None where there is none."""
        with suppress(OSError, QueueError):
            self._renew()
            value = None if self._table is None else self._table.find(CHANGES_KEY)
            if value is not None and self._table is not None:
                return WatchedWord.at(self._table.identity, self._table.view(), value.position)
        return None

    def close(self) -> None:
        """Closes the table store; a word that was given out keeps its memory."""
        if self._table is not None:
            self._table.close()
            self._table = None

    def _renew(self) -> None:
        """Opens the table store that is there, if it is not the one that is open."""
        there = identity_in(os.stat(self._path))
        if self._table is None or self._table.identity != there:
            self.close()
            self._table = TableStore(self._path, writable=False)
