"""Sums over the items of a storage, by which two hosts compare what they hold."""

import zlib

from cqrepl.persist.errors import PersistError
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.queue import QueueError
from cqrepl.service.fieldwords import FieldWords

_AT_ONCE = 32  # items, of up to 16 MiB, that are read in one step


def sum_of(service: StorageService, asked: FieldWords) -> FieldWords:
    """The answer to a SUM_REQ: the CRC-32 of the items from `first` to before `next`, each behind
    its length; or why there is none. In a thread."""
    id_, first, next_ = (asked.number(name) for name in ("id", "first", "next"))
    crc = 0
    try:
        for at in range(first, next_, _AT_ONCE):
            for item in service.read_here(id_, at, min(at + _AT_ONCE, next_) - 1):
                crc = zlib.crc32(item, zlib.crc32(len(item).to_bytes(4, "little"), crc))
    except (PersistError, QueueError, OSError) as error:
        return FieldWords("SUM", {"id": id_, "why": str(error)[:1000]})
    return FieldWords("SUM", {"id": id_, "crc": crc})
