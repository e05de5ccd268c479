"""The side file of a store file, `<cycle>.cqchain`: its chain at points.

Theory of operation. The chain at a place is a hash over all excerpts before it (`kernel.chain`),
and costs reading them. A source or a sink reads each excerpt once, after it was appended, and notes
the chain here, once the excerpt is on the disk. So after a restart the chain at any place costs
only what lies behind the last point before it.

A store file can be removed and made anew under its name, or put back from a backup. So the side
file says of which file it is: its inode, its chain behind the first excerpt, and how large and old
it was when it was read last.

All numbers are little-endian.

    position  bytes
           0      8   "cqchain1"
           8      8   the cycle
          16      8   what tells the store file from others of its name (see `surroundings`)
          24      8   its length in bytes
          32      8   when it was changed last (ctime), in nanoseconds since 1970
          40     16   the chain behind its first excerpt
          56      8   number of points
          64     24   each: a sequence, 8 bytes, and the chain over all before it, 16 bytes
                  8   CRC-32 of all before

It is written under another name and renamed, so it is there as a whole, or damaged by a power cut:
then it counts as not there. Removing it costs time, and nothing else.

The name is none that Java takes for a store file.
"""

import os
import struct
import zlib
from collections.abc import Sequence as Row
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.kernel.chain import CHAIN_BYTES
from cqrepl.queue.files.sidefile import read_side_file, replace_side_file
from cqrepl.queue.format.index import Cycle, Sequence
from cqrepl.surroundings import surroundings

CHAIN_SUFFIX: Final = ".cqchain"
POINTS_MAX: Final = 1024
_MAGIC: Final = b"cqchain1"
_HEAD: Final = struct.Struct(f"<8sqqqq{CHAIN_BYTES}sq")
_POINT: Final = struct.Struct(f"<q{CHAIN_BYTES}s")
_SUM: Final = struct.Struct("<Q")

_BYTES_MAX: Final = _HEAD.size + 2 * POINTS_MAX * _POINT.size

Point = tuple[Sequence, bytes]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The number, length and time of change of a store file. They tell it from another file under
    its name, and tell whether it was written since."""

    number: int
    length: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> "StoreState | None":
        """Of the file that is there now; None when there is none."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return cls(surroundings().file_number(path, status), status.st_size, status.st_ctime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFile:
    """The contents of a side file.

    Args:
        store: the state of its store file when that was read last.
        chain_first: the chain behind the first excerpt, 16 bytes.
        points: by rising sequence.
    """

    cycle: Cycle
    store: StoreState
    chain_first: bytes
    points: Row[Point]


def load_chain_file(path: Path) -> ChainFile | None:
    """The contents of a side file; None where there is no file that is whole.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        data = read_side_file(path, _BYTES_MAX)
    except FileNotFoundError:
        return None
    end = len(data) - _SUM.size
    if end < _HEAD.size or zlib.crc32(data[:end]) != _SUM.unpack_from(data, end)[0]:
        return None
    magic, cycle, number, length, changed_ns, first, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or _HEAD.size + count * _POINT.size != end:
        return None
    rows = _POINT.iter_unpack(data[_HEAD.size : end])
    return ChainFile(
        cycle=Cycle(cycle),
        store=StoreState(number, length, changed_ns),
        chain_first=first,
        points=[(Sequence(sequence), chain) for sequence, chain in rows],
    )


def store_chain_file(path: Path, what: ChainFile) -> None:
    """Writes it, in place of the one that is there. It need not reach the disk at once.

    Raises:
        OSError: it cannot be written. The old one stays.
    """
    store = what.store
    numbers = what.cycle, store.number, store.length, store.changed_ns
    data = _HEAD.pack(_MAGIC, *numbers, what.chain_first, len(what.points))
    data += b"".join(_POINT.pack(*point) for point in what.points)
    replace_side_file(path, data + _SUM.pack(zlib.crc32(data)), is_synced=False)
