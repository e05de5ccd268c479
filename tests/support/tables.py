"""The words of a queue's table store, read and set from outside of the queue."""

from pathlib import Path

from cqrepl.queue.files.tablestore import FILE_NAME, TableStore


def keys_of(path: Path) -> dict[str, int]:
    """The keys of a queue's table store, in lower case, with their values."""
    table = TableStore(path / FILE_NAME, writable=False)
    try:
        return table.keys()
    finally:
        table.close()


def set_word(path: Path, key: str, value: int) -> None:
    """Stores a word, whoever may be about to change it; adds the key where it is not there."""
    table = TableStore(path / FILE_NAME, writable=True)
    try:
        table.value(key, 0).store(value)
    finally:
        table.close()
