"""A model of the page cache and the disk: records a writer, and replays what a power cut may leave.

    with recording(folder) as recorder:     the writer runs for real, on real files
        ..                                  after every store and sync the files are looked at
    state = recorder.state(rng, time)       one of the things that may be on the disk then
    state.lay(path)                         made real, to be opened

Of every page of 4 KiB all versions are kept that it ever had. A sync makes the pages it asks for
durable, and the file's size; a sync of a directory its names. A power cut leaves of each page the
version that was durable, or any later one, independent of other pages; of a size and of the
names likewise. The model has no pages that tear, and no disks that say they have written what they
have not. The write position, the table store and the index pages are ordinary pages.
"""

import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pytest

from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.write import fastappend, storewriter

T = TypeVar("T")
PAGE: Final = 4096
_LOOKED_AT: Final = 64 * PAGE  # of each file; the rest stays empty, which is checked in the end
_STORES: Final[tuple[tuple[Any, str], ...]] = (
    (Words, "store_4"),
    (Words, "store_8"),
    (Words, "put_8"),
    (Words, "exchange_4"),
    (Words, "exchange_8"),
    (Mapping, "write"),
    (Mapping, "reserve"),
    (storewriter, "lay_excerpts"),
    (shutil, "copyfile"),
    (os, "open"),
    (os, "posix_fallocate"),
    (os, "pwrite"),
    (os, "rename"),
    (os, "link"),
    (os, "unlink"),
)


class History(Generic[T]):
    """The versions of one thing, and when which of them was made durable."""

    def __init__(self, initial: T) -> None:
        self._times, self._values, self._syncs = [0], [initial], [0]

    @property
    def newest(self) -> T:
        return self._values[-1]

    def put(self, time: int, value: T) -> None:
        if value != self.newest:
            self._times.append(time)
            self._values.append(value)

    def sync(self, time: int) -> None:
        self._syncs.append(time)

    def possible(self, time: int) -> list[T]:
        """The values that may be left: the durable one, then the later ones up to a time."""
        synced = self._syncs[bisect_right(self._syncs, time) - 1]
        first = bisect_right(self._times, synced) - 1
        return self._values[first : bisect_right(self._times, time)]


class Recorded:
    """One file, under any name: sizes, and pages (empty ones are left out)."""

    def __init__(self) -> None:
        self.size = History(0)
        self.pages: dict[int, History[bytes]] = {}
        self._content = b""

    def look(self, time: int, content: bytes, size: int) -> None:
        self.size.put(time, size)
        if content == self._content:
            return
        for start in range(0, len(content), PAGE):
            page = content[start : start + PAGE]
            if page != self._content[start : start + PAGE]:
                history = self.pages.setdefault(start // PAGE, History(b""))
                history.put(time, page.rstrip(b"\0"))
        self._content = content

    def sync(self, time: int, start: int, end: int) -> None:
        """Bytes were synced; the size, too, without which they could not be found."""
        self.size.sync(time)
        for number, history in self.pages.items():
            if start < (number + 1) * PAGE and number * PAGE < end:
                history.sync(time)


Names = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class State:
    """A directory as it may be found: for each name a size and the pages; None for no directory."""

    files: dict[str, tuple[int, dict[int, bytes]]] | None

    def lay(self, path: Path) -> None:
        """Makes it real."""
        if self.files is None:
            return
        path.mkdir()
        for name, (size, pages) in self.files.items():
            with (path / name).open("wb") as file:
                for number, page in pages.items():
                    file.seek(number * PAGE)
                    file.write(page)
                file.truncate(size)


@dataclass(slots=True)
class Recorder:
    """All that has happened in a directory. Time is the number of looks taken."""

    folder: Path
    time: int = 0
    there: History[bool] = field(default_factory=lambda: History(False))
    names: History[Names] = field(default_factory=lambda: History(()))
    files: dict[int, Recorded] = field(default_factory=dict)
    syncs: int = 0
    _is_looking: bool = False

    def look(self) -> None:
        """Takes down what has changed since the last look."""
        if self._is_looking:
            return
        self._is_looking = True
        self.time += 1
        self.there.put(self.time, self.folder.is_dir())
        if self.there.newest:
            self._look_at_files()
        self._is_looking = False

    def sync(self, mapping: Mapping, start: int, end: int) -> None:
        self.look()
        self.syncs += 1
        if mapping.path.parent == self.folder:
            self.files[os.fstat(mapping.descriptor).st_ino].sync(self.time, start, end)

    def sync_directory(self, path: Path) -> None:
        self.look()
        self.syncs += 1
        if path.absolute() == self.folder:
            self.names.sync(self.time)
        elif path.absolute() == self.folder.parent:
            self.there.sync(self.time)

    def check(self) -> None:
        """Nothing was stored where this model does not look."""
        for path in self.folder.iterdir():
            assert not any(path.read_bytes()[_LOOKED_AT:]), f"look further into {path.name}"

    def state(self, rng: random.Random, time: int) -> State:
        """One state that a power cut at this time may leave."""
        if not rng.choice(self.there.possible(time)):
            return State(None)
        take = _taker(rng)
        names = self._names(rng, time)
        return State({name: self._file(self.files[inode], take, time) for name, inode in names})

    def _look_at_files(self) -> None:
        names = []
        for entry in os.scandir(self.folder):
            names.append((entry.name, entry.inode()))
            file = self.files.setdefault(entry.inode(), Recorded())
            with open(entry.path, "rb") as stream:
                file.look(self.time, stream.read(_LOOKED_AT), os.fstat(stream.fileno()).st_size)
        self.names.put(self.time, tuple(sorted(names)))

    def _names(self, rng: random.Random, time: int) -> Names:
        """Names change in order; but of the new ones, some may be left out."""
        possible = self.names.possible(time)
        durable, found = set(possible[0]), rng.choice(possible)
        if rng.random() < 0.25:
            return tuple(entry for entry in found if entry in durable or rng.random() < 0.5)
        return found

    def _file(self, file: Recorded, take: "Take", time: int) -> tuple[int, dict[int, bytes]]:
        size = take(file.size.possible(time))
        pages = {
            number: take(history.possible(time))[: max(0, size - number * PAGE)]
            for number, history in file.pages.items()
        }
        return size, {number: page for number, page in pages.items() if page}


Take = Callable[[list[Any]], Any]


def _taker(rng: random.Random) -> Take:
    """Chooses among versions: all at random, or with a leaning to the oldest or to the newest."""
    newest = rng.choice((0.0, 0.05, 0.5, 0.95, 1.0))
    between = rng.choice((0.0, 0.3))

    def take(possible: list[Any]) -> Any:
        if len(possible) == 1:
            return possible[0]
        if rng.random() < between:
            return rng.choice(possible)
        return possible[-1] if rng.random() < newest else possible[0]

    return take


@contextmanager
def recording(folder: Path) -> Iterator[Recorder]:
    """Records what happens in a directory, which is not there yet, in the block."""
    recorder = Recorder(folder.absolute())
    with pytest.MonkeyPatch.context() as patch:
        # a pen stores in one call what is looked at store by store here, in the same order
        patch.setattr(fastappend, "pen_type", lambda: None)
        for owner, name in _STORES:
            patch.setattr(owner, name, _looked_after(getattr(owner, name), recorder))
        sync, sync_directory = Mapping.sync, Mapping.sync_directory

        def synced(mapping: Mapping, start: int, end: int) -> None:
            sync(mapping, start, end)
            recorder.sync(mapping, start, end)

        def directory_synced(path: Path) -> None:
            sync_directory(path)
            recorder.sync_directory(path)

        # a new file that is synced before it has its name is taken for one that is not: harder
        patch.setattr(Mapping, "sync", synced)
        patch.setattr(Mapping, "sync_directory", staticmethod(directory_synced))
        yield recorder
    recorder.check()


def _looked_after(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    def stored(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        recorder.look()
        return result

    return stored
