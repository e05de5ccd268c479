"""Checkpoints: states of a service that were saved on this host, each in a file of its own.

Theory of operation. A checkpoint says what a service had made of the excerpts before a position. It
stands in `snapshots/` in the directory of the queue, as `EPOCH_INDEX.cqsnap` (`3_4cdb00000000`):

    | at            | bytes | what                                                  |
    | 0             | 8     | `CQSNAP1` and a zero                                  |
    | 8             | 8     | number of the epoch of the last excerpt, little-endian|
    | 16            | 8     | the first index that is not in it                     |
    | 24            | 2     | length of the name of the group                       |
    | 26            | ...   | that name, then the state as the service wrote it     |
    | end - 32      | 32    | SHA-256 of everything before                          |

It is written under another name (`.part`), synced, renamed once what it holds is safe, and its
directory is synced. So a kill at any step leaves the ones before. One that cannot be read, or whose
hash is another one, is put aside (`.bad`), and the older one counts: as that one may be needed, no
store file goes before the older one that is kept has passed it (`queue.write.retention`).
"""

import hashlib
import io
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from cqrepl.queue.files.sidefile import open_side_file
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.logpos import LogPos
from cqrepl.surroundings import make_synced, surroundings, sync_path

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

FOLDER_NAME: Final = "snapshots"
SUFFIX: Final = ".cqsnap"
PART_SUFFIX: Final = ".part"
BAD_SUFFIX: Final = ".bad"
JOINED_NAME: Final = "joined"  # a file beside them: the copy came without the start of the queue
GROUP_NAME_MAX: Final = 1024  # bytes
_MAGIC: Final = b"CQSNAP1\0"
_HEAD: Final = struct.Struct("<8sQQH")
_SUM_BYTES: Final = 32
_PIECE_BYTES: Final = 1 << 16
_READ_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"([0-9]{1,19})_([0-9a-f]{1,16})\.cqsnap")


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """A checkpoint by its name; the greater one is the newer one."""

    pos: LogPos
    path: Path


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """All that have their names, the newest first; none where there is no such folder."""
    found = []
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None:
                pos = LogPos(int(match[1]), Index(int(match[2], 16)))
                found.append(Checkpoint(pos, path))
    return sorted(found, reverse=True)


def is_name(text: str) -> bool:
    """True for the name of the file of a checkpoint."""
    return _NAME.fullmatch(text) is not None


def name_of(pos: LogPos) -> str:
    """The name of the file of a checkpoint."""
    return f"{pos.epoch}_{pos.index:x}{SUFFIX}"


def write_part(folder: Path, group: str, pos: LogPos, write: Callable[[BinaryIO], None]) -> Path:
    """Writes a checkpoint that has no name yet; its path, which `give_name` takes.

    Args:
        write: writes the state.

    Raises:
        OSError: it may not be on the disk.
    """
    make_synced(folder)
    path = folder / (name_of(pos) + PART_SUFFIX)
    name = group.encode()
    assert len(name) <= GROUP_NAME_MAX
    surroundings().unlink(path, missing_ok=True)
    descriptor = open_side_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        out = _Summed(descriptor)
        out.write(_HEAD.pack(_MAGIC, pos.epoch, pos.index, len(name)) + name)
        write(cast(BinaryIO, out))
        out.end()
        surroundings().sync(descriptor)
    finally:
        os.close(descriptor)
    return path


def give_name(part: Path) -> Checkpoint:
    """The checkpoint that was written, which counts from now on.

    Raises:
        OSError: its name may not be on the disk.
    """
    path = part.with_suffix("")
    surroundings().rename(part, path)
    sync_path(path.parent)
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return Checkpoint(LogPos(int(match[1]), Index(int(match[2], 16))), path)


def put_aside(checkpoint: Checkpoint) -> Path:
    """It counts no more; its path from now on.

    Raises:
        OSError: it cannot be renamed.
    """
    bad = checkpoint.path.with_name(checkpoint.path.name + BAD_SUFFIX)
    surroundings().rename(checkpoint.path, bad)
    sync_path(bad.parent)
    return bad


def remove_parts(folder: Path) -> None:
    """Removes what was written and got no name, as by a process that was killed.

    Raises:
        OSError: that may not be done.
    """
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name.endswith(SUFFIX + PART_SUFFIX):
                surroundings().unlink(path, missing_ok=True)


def open_checkpoint(path: Path, group: str | None = None) -> tuple[LogPos, BinaryIO]:
    """The position and the state of a checkpoint, which is read back as a whole first; the caller
    closes it.

    Args:
        group: of which it is to be; None: of any.

    Raises:
        QueueDamaged: it is not as it was written, or is of another group.
        OSError: it cannot be read.
    """
    descriptor = open_side_file(path, os.O_RDONLY)
    try:
        pos, start, end = _checked(descriptor, path, group)
    except BaseException:
        os.close(descriptor)
        raise
    return pos, io.BufferedReader(_State(descriptor, start, end), _PIECE_BYTES)


def passed_by_checkpoints(queue: Path) -> Index | None:
    """The index that this host's older kept checkpoint of a queue stands at, as it is read back
    now; 0 where fewer than two can be read. None for a queue of which no service saves its state.

    Raises:
        OSError: they cannot be listed.
    """
    folder = queue / FOLDER_NAME
    if not folder.is_dir():
        return None
    good = _good_in(folder)
    next(good, None)  # the newest one may be found damaged when it is needed
    return next(good, Index(0))


def _good_in(folder: Path) -> Iterator[Index]:
    for each in checkpoints_in(folder):
        with suppress(QueueDamaged, OSError):
            pos, state = open_checkpoint(each.path)
            state.close()
            if pos == each.pos:
                yield pos.index


def _checked(descriptor: int, path: Path, group: str | None) -> tuple[LogPos, int, int]:
    """The position, and where the state begins and ends."""
    size = os.fstat(descriptor).st_size
    end = size - _SUM_BYTES
    head = os.pread(descriptor, _HEAD.size + GROUP_NAME_MAX, 0)
    if end < _HEAD.size or head[: len(_MAGIC)] != _MAGIC:
        raise _bad(path, "found another file")
    _, epoch, index, length = _HEAD.unpack_from(head)
    start = _HEAD.size + length
    if start > end:
        raise _bad(path, "found one that was cut")
    found = head[_HEAD.size : start]
    if group is not None and found != group.encode():
        other = found.decode("utf-8", "replace")
        raise QueueDamaged(f"expected a checkpoint of group {group!r}, got {other!r}", path=path)
    digest, at = hashlib.sha256(), 0
    while at < end:
        data = os.pread(descriptor, min(_READ_BYTES, end - at), at)
        if not data:
            raise _bad(path, "found one that was cut")
        digest.update(data)
        at += len(data)
    if digest.digest() != os.pread(descriptor, _SUM_BYTES, end):
        raise _bad(path, "found other bytes: its SHA-256 is another one")
    return LogPos(epoch, Index(index)), start, end


def _bad(path: Path, found: str) -> QueueDamaged:
    return QueueDamaged(f"expected a checkpoint as it was written, {found}", path=path)


class _Summed(io.RawIOBase):
    """Writes to a file, and sums up all that was written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0
        self._waiting = bytearray()
        self._sum = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        size = len(self._waiting)
        self._waiting += data
        written = len(self._waiting) - size
        if len(self._waiting) >= _PIECE_BYTES:
            self._put()
        return written

    def end(self) -> None:
        """Writes the sum behind everything."""
        self._put()
        self._waiting += self._sum.digest()
        self._put()

    def _put(self) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        surroundings().write(self._descriptor, data, self._at)
        self._sum.update(data)
        self._at += len(data)


class _State(io.RawIOBase):
    """Reads a part of a file."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._at = start
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        room = memoryview(buffer).cast("B")
        data = os.pread(self._descriptor, min(len(room), self._end - self._at), self._at)
        room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
