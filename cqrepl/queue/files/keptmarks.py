"""The marks of each replica host in a queue's directory: how far it was sent to, and has it all.

Theory of operation. A mark is one long, raised in place by compare-and-set. Each host from 1 to 127
has up to four, under keys of ours in the table store:

    cqrepl.<host>.snt    the greatest index sent to this host; -1: none, or forgotten
    cqrepl.<host>.idx    the greatest index that it has acknowledged
    cqrepl.<host>.syn    that it has said to be on its disk
    cqrepl.<host>.apl    that it has said to be taken by a program there

Java adds no key once the keys end behind 65,536 bytes: a new named tailer then fails after 10 s. A
key of ours takes 32 bytes and is never freed. So none of these is added that would end behind
32,768 bytes; such a mark is in the host's slot of the side file `marks.cqmark` (`markslots`). Keys
are never removed: every process finds a mark in the same place, and where there is a key it counts.
Keys that end behind 49,152 bytes, whichever process added them, are worth a warning.

A key or slot is looked up once for a mark, and added at its first index, as Java's two marks are,
in the table store that they are raised in: it is mapped anew when it has grown. Where that is not
possible, marks are not kept, and the answer is false. Where only the side file cannot be opened, as
something else has its name, it is looked up again, at most once a second.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.markslots import (
    FORGOTTEN,
    HOSTS,
    SLOTS_FILE_BYTES,
    SLOTS_FILE_NAME,
    MarkLevel,
    MarkSlots,
    marks_in_slots,
)
from cqrepl.queue.files.sidefile import read_side_file
from cqrepl.queue.files.tablestore import TableStore, TableValue
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import NEXT_OF_EMPTY
from cqrepl.surroundings import surroundings

KEY_END_MAX: Final = 32_768  # of a mark of ours
LOOK_AGAIN_S: Final = 1.0
KEYS_END_WARNED: Final = 49_152
KEYS_END_JAVA: Final = 65_536  # behind it Java adds none
_KEY: Final = re.compile(r"cqrepl\.([1-9]\d{0,2})\.(snt|idx|syn|apl)")

HostLevels = dict[int, dict[MarkLevel, int]]


class KeptMarks:
    """The marks of all hosts of one queue.

    Args:
        path: the queue's directory.
        chronicle: has its table store open.
    """

    def __init__(self, path: Path, chronicle: ChronicleMarks) -> None:
        self._path = path
        self._chronicle = chronicle
        self._values: dict[tuple[int, MarkLevel], TableValue | None] = {}
        self._slots: MarkSlots | None = None
        self._look_again_at = math.inf  # for those that were not found

    def load(self) -> HostLevels:
        """The marks that are kept now; hosts without a mark, or that are forgotten, are left out.

        Raises:
            OSError, QueueError: the marks cannot be read.
        """
        return marks_of(self._keys(), read_slots(self._path))

    def keys_end(self) -> int:
        """The position at which the keys of the table store end; 0 where there is no table store.

        Raises:
            OSError, QueueError: the table store cannot be read.
        """
        with self._chronicle.read() as table:
            return 0 if table is None else table.keys_end()

    def raise_to(self, host: int, level: MarkLevel, index: int) -> bool:
        """Makes a mark at least `index`; false where it cannot be kept."""
        value = self._value(host, level)
        if value is None:
            return False
        value.raise_to(index)
        return True

    def lower_to(self, host: int, level: MarkLevel, index: int) -> bool:
        """Makes a mark at most `index`; false where it cannot be kept."""
        value = self._value(host, level)
        if value is None:
            return False
        value.lower_to(index)
        return True

    def lower_all(self, index: int) -> None:
        """Makes each mark of each host at most `index`. A host that something was sent to stays
        known, by a mark of zero: it may give back what is lost.

        Raises:
            OSError, QueueError: they cannot be written.
        """
        for host, levels in self.load().items():
            for level, at in levels.items():
                most = max(index, NEXT_OF_EMPTY) if level is MarkLevel.SENT else index
                if at > most and not self.lower_to(host, level, most):
                    raise QueueError("marks of hosts cannot be written", path=self._path)

    def forget(self, host: int) -> None:
        """Lowers all marks of a host, where it has any, to none.

        Raises:
            OSError, QueueError: they cannot be written.
        """
        for level in self.load().get(host, {}):
            if not self.lower_to(host, level, FORGOTTEN):
                raise QueueError("marks of hosts cannot be written", path=self._path)

    def close(self) -> None:
        """Closes the side file. The table store is closed by its owner."""
        self._values.clear()
        if self._slots is not None:
            self._slots.close()
        self._slots = None

    def _keys(self) -> dict[str, int]:
        with self._chronicle.read() as table:
            return {} if table is None else table.keys()

    def _value(self, host: int, level: MarkLevel) -> TableValue | None:
        if host not in HOSTS:
            return None  # and nothing is remembered of it: there may be very many
        if surroundings().monotonic() >= self._look_again_at:
            self._look_again_at = math.inf
            self._values = {key: value for key, value in self._values.items() if value is not None}
        if (host, level) not in self._values:
            self._values[host, level] = self._find(host, level)
        return self._values[host, level]

    def _find(self, host: int, level: MarkLevel) -> TableValue | None:
        table = self._chronicle.table()
        if table is None:
            return None
        try:
            value = table.value_within(f"cqrepl.{host}.{level}", FORGOTTEN, KEY_END_MAX)
            return self._slot(table, host, level) if value is None else value
        except QueueError:
            return None  # full, locked for too long, damaged
        except OSError:  # the side file cannot be written
            again_at = surroundings().monotonic() + LOOK_AGAIN_S
            self._look_again_at = min(self._look_again_at, again_at)
            return None

    def _slot(self, table: TableStore, host: int, level: MarkLevel) -> TableValue:
        if self._slots is None:
            self._slots = MarkSlots(self._path / SLOTS_FILE_NAME)
        with table.locked():
            return self._slots.value(host, level)


def marks_of(keys: Mapping[str, int], slots: bytes) -> HostLevels:
    """The marks of each host that has any, by host.

    Args:
        keys: of the table store, in lower case.
        slots: the bytes of the side file.
    """
    found = marks_in_slots(slots)
    for key, index in keys.items():
        match = mark_key(key)
        if match is not None:
            host, level = match
            found.setdefault(host, {})[level] = index
    return {
        host: marks
        for host, marks in sorted(found.items())
        if any(index > FORGOTTEN for index in marks.values())
    }


def mark_key(key: str) -> tuple[int, MarkLevel] | None:
    """Host and level of a key in lower case; None for a key of something else."""
    match = _KEY.fullmatch(key)
    if match is None or int(match[1]) not in HOSTS:
        return None
    return int(match[1]), MarkLevel(match[2])


def read_slots(path: Path) -> bytes:
    """The bytes of the side file in a queue's directory; none where there is no such file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return read_side_file(path / SLOTS_FILE_NAME, SLOTS_FILE_BYTES)
    except FileNotFoundError:
        return b""
