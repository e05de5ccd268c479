"""The side files `epoch.cqmark`, `merged.cqmark` and `members.cqmark`: the epochs of a queue, see
`format.epochs`.

Theory of operation. A promise counts only if it outlives a power cut: the host that has heard it
may have begun to write. So the file is written anew under another name, synced, and renamed, and
its directory is synced, before any host hears of what is in it. There is an old file or a new one,
and never half of one: a file whose sum is wrong is damaged, and not as good as none. Without a file
nothing was promised.

Once epochs have merged, the history stands in a second file. The first one has it for versions that
know of no merged epochs (`unmerged`), and tells whether the second one goes with it: a version that
does not know that one, or a power cut between the two, leaves an older one there, which says
nothing. The second one is written first.

Members of a queue that names them stand in a third file, which older versions do not know. It is
written last, and says which epoch they are of: after a power cut between the two files the members
of the promised epoch are not known here, and no promise was heard.

All numbers are little-endian, of 8 bytes.

    position   epoch.cqmark
           0   "cqepochs"
           8   the epoch that was promised
          16   the host that it was promised to; with none promised the one that streamed it last
          24   number of epochs in the history, at most 64
          32   of each, the oldest first: its number, its leader, its first index
               CRC-32 of all bytes before

    position   merged.cqmark
           0   "cqmerged"
           8   number of entries in the history, at most 64
          16   of each, the oldest first: its number, its leader, its first index, and the number of
               the last epoch that has merged into it, 0 for none
               CRC-32 of all bytes before

    position   members.cqmark
           0   "cqmember"
           8   the epoch that they are of
          16   the number of them, at most 127
          24   the ids of the hosts, rising
               CRC-32 of all bytes before

The names are none that Java takes for a store file.
"""

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from cqrepl.queue.files.sidefile import read_side_file, replace_side_file
from cqrepl.queue.format.epochs import (
    EPOCHS_MAX,
    Epoch,
    Epochs,
    History,
    check_history,
    has_merged,
    unmerged,
)
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Index
from cqrepl.surroundings import surroundings, sync_path

EPOCH_FILE_NAME: Final = "epoch.cqmark"
MERGED_FILE_NAME: Final = "merged.cqmark"
MEMBERS_FILE_NAME: Final = "members.cqmark"
_MAGIC: Final = b"cqepochs"
_MERGED_MAGIC: Final = b"cqmerged"
_HEAD: Final = struct.Struct("<8sqqq")
_EPOCH: Final = struct.Struct("<qqq")
_MEMBERS_MAGIC: Final = b"cqmember"
_MEMBERS_HEAD: Final = struct.Struct("<8sqq")
_MEMBERS_MAX: Final = 127
_MERGED_HEAD: Final = struct.Struct("<8sq")
_MERGED: Final = struct.Struct("<qqqq")
_SUM: Final = struct.Struct("<Q")
_BYTES_MAX: Final = _HEAD.size + EPOCHS_MAX * _EPOCH.size + _SUM.size
_MERGED_BYTES_MAX: Final = _MERGED_HEAD.size + EPOCHS_MAX * _MERGED.size + _SUM.size


def load_epochs(path: Path) -> Epochs:
    """The epochs of the queue in a directory; none where there is no file.

    Raises:
        OSError: a file cannot be read.
        QueueDamaged: a file is not what was written.
    """
    file = path / EPOCH_FILE_NAME
    try:
        data = read_side_file(file, _BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Epochs()
    found = _read(data)
    if found is None:
        raise _damaged(file)
    found = _with_members(path / MEMBERS_FILE_NAME, found)
    if len(found.history) < EPOCHS_MAX:
        return found
    history = _load_merged(path / MERGED_FILE_NAME)
    return replace(found, history=history) if unmerged(history) == found.history else found


def store_epochs(path: Path, epochs: Epochs) -> None:
    """Puts them in the place of those that are there, and returns when they are on the disk. Makes
    the directory, where a copy is to come.

    Raises:
        OSError: that cannot be done, or may not be on the disk.
    """
    path.mkdir(parents=True, exist_ok=True)
    if has_merged(epochs.history):
        data = _MERGED_HEAD.pack(_MERGED_MAGIC, len(epochs.history))
        data += b"".join(_MERGED.pack(*each) for each in epochs.history)
        sealed = data + _SUM.pack(zlib.crc32(data))
        replace_side_file(path / MERGED_FILE_NAME, sealed, is_synced=True)
    history = unmerged(epochs.history)
    data = _HEAD.pack(_MAGIC, epochs.promised, epochs.promised_to, len(history))
    data += b"".join(_EPOCH.pack(each.number, each.leader, each.start) for each in history)
    replace_side_file(path / EPOCH_FILE_NAME, data + _SUM.pack(zlib.crc32(data)), is_synced=True)
    if epochs.members:
        ids = sorted(epochs.members)
        data = _MEMBERS_HEAD.pack(_MEMBERS_MAGIC, epochs.listed, len(ids))
        data += struct.pack(f"<{len(ids)}q", *ids)
        sealed = data + _SUM.pack(zlib.crc32(data))
        replace_side_file(path / MEMBERS_FILE_NAME, sealed, is_synced=True)
    sync_path(path)


def check_writable(path: Path) -> None:
    """Looks whether a promise could be kept beside a queue now, by one that is not kept. Makes no
    directory: where there is none, it looks where that would be made.

    Raises:
        OSError: it could not.
    """
    while not path.is_dir() and path != path.parent:
        path = path.parent
    with TemporaryFile(
        dir=path
    ) as tried:  # without a name: of two at once, or killed, none is left
        surroundings().write(tried.fileno(), bytes(_BYTES_MAX), 0)
        surroundings().sync(tried.fileno())


def _read(data: bytes) -> Epochs | None:
    if not _HEAD.size + _SUM.size <= len(data) <= _BYTES_MAX:
        return None
    magic, promised, promised_to, count = _HEAD.unpack_from(data)
    body, end = data[: -_SUM.size], _HEAD.size + count * _EPOCH.size
    if magic != _MAGIC or end != len(body) or _SUM.unpack_from(data, end)[0] != zlib.crc32(body):
        return None
    each = _EPOCH.iter_unpack(body[_HEAD.size :])
    try:
        history = tuple(Epoch(number, leader, Index(start)) for number, leader, start in each)
        return Epochs(promised=promised, promised_to=promised_to, history=history)
    except ValueError:
        return None


def _load_merged(file: Path) -> History:
    """The history in a second file; empty without one.

    Raises:
        OSError: it cannot be read.
        QueueDamaged: it is not what was written.
    """
    try:
        data = read_side_file(file, _MERGED_BYTES_MAX + 1)
    except FileNotFoundError:
        return ()
    body = data[: -_SUM.size]
    entries = body[_MERGED_HEAD.size :]
    if len(body) < _MERGED_HEAD.size or data[-_SUM.size :] != _SUM.pack(zlib.crc32(body)):
        raise _damaged(file)
    magic, count = _MERGED_HEAD.unpack_from(body)
    if magic != _MERGED_MAGIC or len(entries) != count * _MERGED.size:
        raise _damaged(file)
    history = tuple(
        Epoch(number, leader, Index(start), last)
        for number, leader, start, last in _MERGED.iter_unpack(entries)
    )
    try:
        check_history(history)
    except ValueError:
        raise _damaged(file) from None
    return history


def _with_members(file: Path, epochs: Epochs) -> Epochs:
    """The epochs with the members that a third file has; without, where there is no such file, or
    it is of an epoch that was not promised, as after a version that does not know it.

    Raises:
        OSError: it cannot be read.
        QueueDamaged: it is not what was written.
    """
    try:
        data = read_side_file(file, _MEMBERS_HEAD.size + 8 * _MEMBERS_MAX + _SUM.size + 1)
    except FileNotFoundError:
        return epochs
    body = data[: -_SUM.size]
    if len(body) < _MEMBERS_HEAD.size or data[-_SUM.size :] != _SUM.pack(zlib.crc32(body)):
        raise _damaged(file)
    magic, listed, count = _MEMBERS_HEAD.unpack_from(body)
    if magic != _MEMBERS_MAGIC or len(body) != _MEMBERS_HEAD.size + 8 * count:
        raise _damaged(file)
    if listed > epochs.promised:
        return epochs
    members = frozenset(struct.unpack_from(f"<{count}q", body, _MEMBERS_HEAD.size))
    try:
        return replace(epochs, members=members, listed=listed)
    except ValueError:
        raise _damaged(file) from None


def _damaged(file: Path) -> QueueDamaged:
    return QueueDamaged(
        "expected the epochs that were promised, found a file that is not as it was written",
        path=file,
    )
