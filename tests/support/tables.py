"""The words of a queue's table store, read and set from outside of the queue."""

import os
from pathlib import Path

from cqrepl.queue import QueueError
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, WRITE_LOCK_KEY
from cqrepl.queue.files.tablestore import FILE_BYTES, FILE_NAME, TableStore


def keys_of(path: Path) -> dict[str, int]:
    """The keys of a queue's table store, in lower case, with their values."""
    table = TableStore(path / FILE_NAME, writable=False)
    try:
        return table.keys()
    finally:
        table.close()


def set_word(path: Path, key: str, value: int) -> None:
    """Stores a word, though others may be changing it; adds the key where it is not there."""
    table = TableStore(path / FILE_NAME, writable=True)
    try:
        table.value(key, 0).store(value)
    finally:
        table.close()


def fill_keys(path: Path, end: int) -> None:
    """Adds keys of 32 bytes, as named tailers have them, until the last one ends there."""
    table = TableStore(path / FILE_NAME, writable=True)
    try:
        number = 0
        while table.keys_end() < end:
            table.value(f"index.t{number:07}", 0)
            number += 1
    finally:
        table.close()


def grown_by_another(path: Path) -> dict[str, int]:
    """Adds keys as Java does, until the file had to become longer by 65,536 bytes; all keys."""
    other = TableStore(path, writable=True)
    added = {}
    try:
        for number in range(5000):
            name = f"index.a tailer with a long name, number {number}"
            try:
                other.value(name, number)
            except QueueError:  # the file is full
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size + 65_536)
                other.value(name, number)
                added[name] = number
                break
            added[name] = number
        more = {f"index.behind.{number}": number for number in range(100)}
        for name, number in more.items():
            other.value(name, number)
    finally:
        other.close()
    assert path.stat().st_size == FILE_BYTES + 65_536
    return added | more


def lock_words(path: Path) -> dict[str, int]:
    """The locks in a queue's table store, as any process sees them."""
    table = TableStore(path / FILE_NAME, writable=False)
    try:
        found = {key: table.find(key) for key in (APPEND_LOCK_KEY, WRITE_LOCK_KEY)}
        return {key: UNLOCKED if word is None else word.load() for key, word in found.items()}
    finally:
        table.close()


def is_free(path: Path) -> bool:
    """No lock keeps writers of the queue out."""
    return set(lock_words(path).values()) == {UNLOCKED}


def is_fenced(path: Path) -> bool:
    """True when a queue is fenced as during a back copy into it by this process: the append lock
    keeps writers out, and the write lock is free between two batches."""
    words = lock_words(path)
    return words[APPEND_LOCK_KEY] == os.getpid() and words[WRITE_LOCK_KEY] == UNLOCKED
