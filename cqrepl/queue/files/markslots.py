"""The side file `marks.cqmark`: marks of the hosts for which the table store has no room of ours.

Theory of operation. The file has 128 slots of 64 bytes, host h's at h * 64; no host has id 0. All
numbers are little-endian, and each stands on a multiple of 8.

    position  bytes
           0      8   index sent, -1 for none                `snt`
           8      8   index acknowledged, -1 for none        `idx`
          16      8   index synced, -1 for none                `syn`
          24      8   index applied, -1 for none               `apl`
          32     24   -1 three times: for marks to come
          56      8   the seal: "cqmark", the version 1, the host; stored last, once

A slot counts while its seal is right. A process that is killed before leaves a slot that never was;
the next one that needs it begins anew, under the lock of the table store. From then on each mark is
one aligned long, raised by compare-and-set from any number of processes as the longs of the table
store are: a kill leaves the old number or the new one. A slot does not cross a sector of the disk:
what a power cut leaves of the file is older, or holes, whose slots do not count. Nor do those that
were cut off, in whole or in part: the seal goes first.

The name is none that Java takes for a store file.
"""

import os
import struct
from enum import StrEnum
from pathlib import Path
from typing import Final

from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.sidefile import open_side_file
from cqrepl.queue.files.tablestore import TableValue

SLOTS_FILE_NAME: Final = "marks.cqmark"
HOSTS: Final = range(1, 128)
FORGOTTEN: Final = -1
SLOT_BYTES: Final = 64
SLOTS_FILE_BYTES: Final = SLOT_BYTES * (HOSTS[-1] + 1)
_LONG_BYTES: Final = 8
_LONGS: Final = struct.Struct("<7q")
_NONE: Final = _LONGS.pack(*[FORGOTTEN] * 7)
_MAGIC: Final = b"cqmark\x01"


class MarkLevel(StrEnum):
    """The level of a mark: how far a host has come with all up to it. The value is the name of the
    level in keys, as on the wire."""

    SENT = "snt"
    ACKNOWLEDGED = "idx"
    SYNCED = "syn"
    APPLIED = "apl"


_LEVELS: Final = tuple(MarkLevel)  # in the order of their longs


class MarkSlots:
    """The side file of one queue, open for writing."""

    def __init__(self, path: Path) -> None:
        """Opens the file, and makes it if there is none.

        Raises:
            OSError: no space, the directory may not be written to, or there is something else under
                that name.
        """
        os.close(open_side_file(path, os.O_RDWR | os.O_CREAT))
        self._mapping = Mapping(path, writable=True, keeps_views=True)
        try:
            self._mapping.reserve(0, SLOTS_FILE_BYTES)
        except BaseException:
            self.close()
            raise

    def value(self, host: int, level: MarkLevel) -> TableValue:
        """A mark, in place. The lock of the table store is held."""
        assert host in HOSTS
        slot = host * SLOT_BYTES
        sealed = int.from_bytes(_seal(host), "little")
        seal = slot + _LONGS.size
        if self._mapping.words.load_8(seal) != sealed:
            self._mapping.words.store_8(seal, 0)
            self._mapping.write(slot, _NONE)
            self._mapping.words.store_8(seal, sealed)
        return TableValue(self._mapping, slot + _LEVELS.index(level) * _LONG_BYTES)

    def close(self) -> None:
        """Unmaps the file; its values must not be used any more."""
        self._mapping.close()


def marks_in_slots(data: bytes) -> dict[int, dict[MarkLevel, int]]:
    """The marks in the bytes of such a file, by host; of the slots that count."""
    found = {}
    for host in HOSTS:
        slot = data[host * SLOT_BYTES : (host + 1) * SLOT_BYTES]
        if slot[_LONGS.size :] == _seal(host):
            longs = _LONGS.unpack_from(slot)
            found[host] = dict(zip(_LEVELS, longs, strict=False))
    return found


def _seal(host: int) -> bytes:
    return _MAGIC + bytes([host])
