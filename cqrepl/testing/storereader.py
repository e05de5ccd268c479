"""A reader of queues for the judge: it shares no code with the queues that it judges.

Theory of operation. The laboratory asks of a copy on a disk: what does it hold, where does it end,
what has it promised, up to where was it on the disk. Where the product's own reader answers, a
mistake in it judges itself. So this module reads the bytes anew, by the description of the format,
slowly and in plain Python: it looks at no index array, at no write position, and at no note of ours
on closed files. It walks over every header word from the start of each store file.

    store file      documents, one behind the other; each a header word and a body
                    word: bits 0 to 29 length, bit 30 meta-data, bit 31 not complete
                    0 or not complete: the end; 0xc0000000: the end, and the cycle is closed
    table store     one document with the roll cycle, then one for each key: name, padding, a long
    epoch.cqmark    "cqepochs", promised, promised to, count; of each epoch number, leader, first
                    index; CRC-32
    merged.cqmark   "cqmerged", count; of each epoch number, leader, first index, number of the last
                    one that merged into it; CRC-32. It goes before the history of 64 epochs in
                    epoch.cqmark that ends with the same one
    synced.cqmark   three slots of 64 bytes, of which two count: "cqsynced", end, start of the
                    machine, counter, doubtful from and to; CRC-32

All numbers are little-endian. A cycle that is not closed is never left: what later files hold does
not belong to what a reader gets, though the queue ends there.
"""

import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

_LENGTH: Final = 0x3FFFFFFF
_METADATA: Final = 0x40000000
_NOT_COMPLETE: Final = 0x80000000
_END_OF_FILE: Final = 0xC0000000
_WORD: Final = struct.Struct("<I")
_DAY_MS: Final = 86_400_000
# by the patterns of names that Java has: the length of a cycle is in the table store, and 32 bits
# of an index are the sequence, but with these
_SHIFTS: Final = {"L": 37, "X": 38, "H": 40, "LS": 34, "LX": 42, "HX": 48}
_SHIFT: Final = 32
_OF_DAYS: Final = frozenset({"L", "X", "H", "HX"})  # the same letters mean less with hours
_OF_HOURS: Final = frozenset({"LS", "LX"})
# by the number of digits in a name, and how long a cycle is at least
_TIMES: Final = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_LENGTHS_MS: Final = {8: _DAY_MS, 10: 3_600_000, 12: 60_000, 14: 1000}
_LETTERS_MS: Final = {
    (10, "II"): 7_200_000,
    (10, "IV"): 14_400_000,
    (10, "VI"): 21_600_000,
    (12, "V"): 300_000,
    (12, "X"): 600_000,
    (12, "XX"): 1_200_000,
    (12, "H"): 1_800_000,
}
_NAME: Final = re.compile(r"(\d{8})(?:-(\d{2,6}))?([A-Z0-9]*)")
_INTEGERS: Final = {0xA1: "<B", 0xA2: "<H", 0xA3: "<I", 0xA4: "<b", 0xA5: "<h", 0xA6: "<i"}
_LONG: Final = 0xA7
_EVENT: Final = 0xB9
_PADDING: Final = 0x8F
_LONG_PADDING: Final = 0x8E
_BEGIN: Final = "cqrepl.begin"
_EPOCH_HEAD: Final = struct.Struct("<8sqqq")
_EPOCH: Final = struct.Struct("<qqq")
_EPOCHS_MAX: Final = 64
_MERGED_HEAD: Final = struct.Struct("<8sq")
_MERGED: Final = struct.Struct("<qqqq")
_SUM: Final = struct.Struct("<Q")
_SLOT: Final = struct.Struct("<8sq16sqqqQ")
_SLOTS: Final = 2


class UnreadableError(Exception):
    """A file is not as the format has it."""


class Begun(NamedTuple):
    """An epoch that has begun: from the index `start` on the queue is the leader's."""

    number: int
    leader: int
    start: int


class Promises(NamedTuple):
    """The content of `epoch.cqmark`."""

    promised: int = 0
    promised_to: int = 0
    history: tuple[Begun, ...] = ()

    @property
    def number(self) -> int:
        """The number of the newest epoch that has begun, as far as the copy knows; 0 for none."""
        return self.history[-1].number if self.history else 0


class OnDisk(NamedTuple):
    """The content of `synced.cqmark`: every excerpt before `end` was on the disk in that start of
    the machine."""

    end: int
    boot: bytes
    doubtful: range


class _Layout(NamedTuple):
    """The rule from the name of a store file to the first index in it."""

    length_ms: int
    epoch_ms: int
    shift: int

    def cycle_of(self, name: str) -> int:
        """The cycle of a store file.

        Raises:
            UnreadableError: the name is none of a store file.
        """
        digits, _ = _parts(name)
        at = datetime.strptime(digits, _TIMES[len(digits)]).replace(tzinfo=UTC)
        whole_days = self.epoch_ms - self.epoch_ms % _DAY_MS  # the time of day is not in the name
        return (int(at.timestamp()) * 1000 - whole_days) // self.length_ms


def excerpts(path: Path, *, behind_open: bool = False) -> Iterator[tuple[int, bytes]]:
    """Index and payload of each excerpt that a reader gets from the start, in order.

    Args:
        behind_open: also what stands behind a cycle that is not closed, where no reader comes.

    Raises:
        UnreadableError: a file is not as the format has it.
    """
    files = _files(path)
    if not files:
        return
    layout, begin = _layout(path, files[0]), table_values(path).get(_BEGIN, 0)
    for file in files:
        first = layout.cycle_of(file.stem) << layout.shift
        with _mapped(file) as data:
            is_closed = False
            for nth, (start, length) in enumerate(_documents(data, file)):
                if length < 0:
                    is_closed = True
                elif first + nth >= begin:
                    yield first + nth, data[start : start + length]
        if not is_closed and not behind_open:
            return


def last_index(path: Path) -> int:
    """The index of the last excerpt in any store file; -1 where there is none.

    Raises:
        UnreadableError: a file is not as the format has it.
    """
    files = _files(path)
    for file in reversed(files):
        with _mapped(file) as data:
            count = sum(length >= 0 for _, length in _documents(data, file))
        if count:
            layout = _layout(path, files[0])
            return (layout.cycle_of(file.stem) << layout.shift) + count - 1
    return -1


def table_values(path: Path) -> dict[str, int]:
    """The longs of the table store, by their keys; none where there is no table store.

    Raises:
        UnreadableError: it is not as the format has it.
    """
    file = path / "metadata.cq4t"
    found: dict[str, int] = {}
    if not file.exists():
        return found
    data, position = file.read_bytes(), 0
    while (word := _word(data, position)) and not word & _NOT_COMPLETE:
        body = data[position + 4 : position + 4 + (word & _LENGTH)]
        if not word & _METADATA:
            name, value = _key(body, file)
            found[name] = value
        position = _aligned(position + 4 + (word & _LENGTH))
    return found


def promises(path: Path) -> Promises:
    """The epochs that the copy in a directory has promised, and knows.

    Raises:
        UnreadableError: the file of them is not as it was written.
    """
    try:
        data = (path / "epoch.cqmark").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Promises()
    body = data[: -_SUM.size]
    if len(data) >= _EPOCH_HEAD.size + _SUM.size:
        magic, promised, promised_to, count = _EPOCH_HEAD.unpack_from(body)
        history = body[_EPOCH_HEAD.size :]
        is_whole = len(history) == count * _EPOCH.size
        if magic == b"cqepochs" and is_whole and data[-8:] == _SUM.pack(zlib.crc32(body)):
            each = tuple(map(Begun._make, _EPOCH.iter_unpack(history)))
            return Promises(promised, promised_to, _merged(path, each))
    raise UnreadableError(f"{path / 'epoch.cqmark'} is not as it was written")


def _merged(path: Path, history: tuple[Begun, ...]) -> tuple[Begun, ...]:
    """The epochs by `merged.cqmark`, of a merged entry the first one; else those that are given."""
    file = path / "merged.cqmark"
    if len(history) < _EPOCHS_MAX or not file.exists():
        return history
    data = file.read_bytes()
    if data[-_SUM.size :] != _SUM.pack(zlib.crc32(data[: -_SUM.size])):
        raise UnreadableError(f"{file} is not as it was written")
    entries = _MERGED.iter_unpack(data[_MERGED_HEAD.size : -_SUM.size])
    found = tuple(Begun(*each[:3]) for each in entries)
    return found if found[-1] == history[-1] else history


def on_disk(path: Path) -> OnDisk | None:
    """The mark of what is on the disk; None where no slot of it is whole."""
    try:
        data = (path / "synced.cqmark").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    found: list[tuple[int, OnDisk]] = []
    for nth in range(_SLOTS):
        slot = data[nth * _SLOT.size : (nth + 1) * _SLOT.size]
        if len(slot) < _SLOT.size:
            break
        magic, end, boot, counter, start, stop, total = _SLOT.unpack(slot)
        if magic == b"cqsynced" and total == zlib.crc32(slot[: -_SUM.size]):
            found.append((counter, OnDisk(end, boot, range(start, stop))))
    return max(found)[1] if found else None


# ---- store files ---------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.cq4"))  # names sort in the order of cycles


@contextmanager
def _mapped(file: Path) -> Iterator[mmap.mmap | bytes]:
    with file.open("rb") as opened:
        try:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # it is empty
            yield b""
            return
        with data:
            yield data


def _documents(data: mmap.mmap | bytes, file: Path) -> Iterator[tuple[int, int]]:
    """Position and length of each payload; at last a length of -1, where the cycle is closed."""
    word, position = _word(data, 0), 0
    header = data[4 : 4 + (word & _LENGTH)] if word and not word & _NOT_COMPLETE else b""
    is_aligned = _number(header, "dataFormat") == 1
    while (word := _word(data, position)) and not word & _NOT_COMPLETE:
        length = word & _LENGTH
        if position + 4 + length > len(data):
            raise UnreadableError(f"{file}: a document of {length} bytes at {position}")
        if not word & _METADATA:
            yield position + 4, length
        position += 4 + length
        position = _aligned(position) if is_aligned else position
    if word == _END_OF_FILE:
        yield position, -1


def _word(data: mmap.mmap | bytes, position: int) -> int:
    if position + _WORD.size > len(data):
        return 0
    word: int = _WORD.unpack_from(data, position)[0]
    return word


def _aligned(position: int) -> int:
    return position + 3 & ~3


# ---- the roll cycle ------------------------------------------------------------------------------


def _layout(path: Path, file: Path) -> _Layout:
    """The rule of a queue: from its table store, else from the name of its first store file."""
    digits, letters = _parts(file.stem)
    length = _LETTERS_MS.get((len(digits), letters), _LENGTHS_MS[len(digits)])
    epoch = 0
    table = path / "metadata.cq4t"
    if table.exists():
        data = table.read_bytes()
        header = data[4 : 4 + (_word(data, 0) & _LENGTH)]
        length, epoch = _number(header, "length") or length, _number(header, "epoch") or 0
    is_sparse = letters in (_OF_DAYS if len(digits) == len("yyyyMMdd") else _OF_HOURS)
    is_sparse &= len(digits) <= len("yyyyMMddHH")
    return _Layout(length, epoch, _SHIFTS[letters] if is_sparse else _SHIFT)


def _parts(name: str) -> tuple[str, str]:
    """The digits of the name of a store file, and the letters behind them."""
    found = _NAME.fullmatch(name)
    digits = "" if found is None else found[1] + (found[2] or "")
    if found is None or len(digits) not in _TIMES:
        raise UnreadableError(f"{name}: no name of a store file")
    return digits, found[3]


# ---- values of the binary wire -------------------------------------------------------------------


def _number(header: bytes, field: str) -> int | None:
    """The integer of a field with a short name; None without such a field."""
    place = header.find(bytes([0xC0 + len(field)]) + field.encode())
    return None if place < 0 else _integer(header, place + 1 + len(field))


def _integer(data: bytes, position: int) -> int:
    """The integer at a position, behind padding."""
    while data[position] in (_PADDING, _LONG_PADDING):
        is_long = data[position] == _LONG_PADDING
        position += 5 + _word(data, position + 1) if is_long else 1
    code = data[position]
    if code < 0x80:
        return code
    form = "<q" if code == _LONG else _INTEGERS.get(code)
    if form is None:
        raise UnreadableError(f"an integer expected, code {code:#x} found")
    value: int = struct.unpack_from(form, data, position + 1)[0]
    return value


def _key(body: bytes, file: Path) -> tuple[str, int]:
    """The name and the long of a document of the table store."""
    if not body or body[0] != _EVENT:
        raise UnreadableError(f"{file}: a key expected, {body[:8].hex()} found")
    position, length, shift = 1, 0, 0
    while True:  # seven bits of the length in each byte
        byte = body[position]
        length, position = length | (byte & 0x7F) << shift, position + 1
        if byte < 0x80:
            break
        shift += 7
    name = body[position : position + length].decode("latin-1")
    return name, _integer(body, position + length)
