"""Registered readers: they still need excerpts, though they keep their positions elsewhere.

    cqrepl.reader.<name>    next index that the reader needs; -1: not registered any more

A copy, a job or a sink that remembers by itself how far it has come is unknown to the queue, and
retention would delete what it has not read. So it registers, and says from time to time how far it
is. A key of a table store is never removed; a reader that unregisters leaves it with -1. The key is
ours: Java leaves it alone. A table store has one byte for a character of a key, so what is beyond
Latin-1 is kept as `\\u20ac`: no two readers may share a position.
"""

from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import NEXT_OF_EMPTY

_KEY: Final = "cqrepl.reader."
_UNREGISTERED: Final = -1
_NAME_MAX: Final = 256  # a table store has 64 KiB for all keys


def registered_readers(table: TableStore) -> dict[str, int]:
    """The next index that each registered reader needs; names as they are kept."""
    return {
        table.written(key)[len(_KEY) :]: value
        for key, value in table.keys().items()
        if key.startswith(_KEY) and value != _UNREGISTERED
    }


def lower_readers(table: TableStore, index: int) -> None:
    """Takes all registered readers back to a next index that lies behind it: what they have read
    from there on is not the queue's any more."""
    for name in registered_readers(table):
        value = table.find(_KEY + name)
        if value is not None:
            value.lower_to(index)


class Readers:
    """Registers readers of one queue. Every call may come from any process."""

    def __init__(self, cycles: Cycles) -> None:
        self._path = cycles.table_path

    def register(self, name: str, index: int = NEXT_OF_EMPTY) -> int:
        """Makes a reader known that needs all from `index` on; where it is, if it is known already.

        Raises:
            QueueError: the name is empty or too long, or there is no room for it.
            OSError: there is no table store, or it may not be written.
        """
        assert index >= 0
        table = self._open(name)
        try:
            value = table.value(_key(name), index)
            value.exchange(_UNREGISTERED, index)
            return value.load()
        finally:
            table.close()

    def advance(self, name: str, index: int) -> None:
        """Records that the reader needs only what is from `index` on; never goes back.

        Raises:
            QueueError: no reader of this name is registered.
            OSError: as `register`.
        """
        table = self._open(name)
        try:
            value = table.find(_key(name))
            now = _UNREGISTERED if value is None else value.load()
            while value is not None and _UNREGISTERED != now < index:
                value.exchange(now, index)  # an `unregister` in between wins
                now = value.load()
            if now == _UNREGISTERED:
                raise QueueError(f"expected a registered reader, found no {name}", path=self._path)
        finally:
            table.close()

    def unregister(self, name: str) -> bool:
        """Forgets a reader; false when there was none of this name.

        Raises:
            OSError: as `register`.
        """
        table = self._open(name)
        try:
            value = table.find(_key(name))
            was_there = value is not None and value.load() != _UNREGISTERED
            if value is not None:
                value.store(_UNREGISTERED)
            return was_there
        finally:
            table.close()

    def _open(self, name: str) -> TableStore:
        if not 0 < len(_key(name)) - len(_KEY) <= _NAME_MAX:
            raise QueueError(
                f"expected a name of 1 to {_NAME_MAX} bytes, found {name!r}", path=self._path
            )
        atomics.require()
        return TableStore(self._path, writable=True)


def _key(name: str) -> str:
    """The key of a reader's name."""
    return _KEY + name.encode("latin-1", "backslashreplace").decode("latin-1")
