"""The names of files on the disk of one machine: which changes of them a power cut takes back.

Theory of operation. A system changes names in memory, and writes the changes to its disk later, in
their order. A sync of a directory brings all of them there. On half of the machines a sync of any
file does so too, as where the file system has one journal; on the others it does not. A change that
is old has got there by itself. Each change that may be taken back keeps what it has replaced or
removed, under a name of its own beside the disk.
"""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

AFTER_SECONDS: Final = 5.0  # so long may a change of names not be on the disk
_SHARE_ONE_JOURNAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of names.

    Args:
        name: relative to the disk, as are both: the name that came, or went.
        was: the name that the file had before; empty where it had none, or keeps it.
        kept: the file that had the name before, elsewhere; None where there was none.
    """

    at: float
    name: Path
    was: Path | None
    kept: Path | None


class NameJournal:
    """The changes of names that are not on the disk yet.

    Args:
        folder: for the files that are kept.
        rng: draws how many changes a power cut takes back.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._has_one_journal = rng.random() < _SHARE_ONE_JOURNAL
        self._changes: list[_Change] = []
        self._kept = 0

    @property
    def kept(self) -> list[Path]:
        """The files that are kept."""
        return [change.kept for change in self._changes if change.kept is not None]

    def rename(self, disk: Path, path: Path, to: Path) -> None:
        """Renames a file, and notes that. A directory is renamed for good."""
        if path.is_dir():
            path.rename(to)
            return
        kept = self._keep(to)
        path.rename(to)
        self._note(disk, to, was=path, kept=kept)

    def link(self, disk: Path, path: Path, to: Path) -> None:
        """Gives a file a second name, and notes that."""
        os.link(path, to)
        self._note(disk, to, was=None, kept=None)

    def unlink(self, disk: Path, path: Path) -> None:
        """Removes a name, and notes that."""
        kept = self._keep(path)
        path.unlink()
        self._note(disk, path, was=None, kept=kept)

    def synced(self, *, is_directory: bool) -> None:
        """A sync has come to its end: of the names in a directory, or of a file."""
        if is_directory or self._has_one_journal:
            self._forget(len(self._changes))

    def power_cut(self, disk: Path, restored: Callable[[Path, Path], None]) -> int:
        """Takes back the last changes, so many as the draw says; how many.

        Args:
            disk: as the machine goes on with it.
            restored: is called for each file that has its name again, with the file that was kept.
        """
        self._forget_old()
        count = self._rng.randint(0, len(self._changes)) if self._changes else 0
        for _ in range(count):
            change = self._changes.pop()
            path = disk / change.name
            if change.was is not None and path.exists() and (disk / change.was).parent.exists():
                path.rename(disk / change.was)
            elif change.was is None and change.kept is None:
                path.unlink(missing_ok=True)
            if change.kept is not None and path.parent.exists():
                shutil.copyfile(change.kept, path)
                restored(path, change.kept)
        self._forget(len(self._changes))
        return count

    def _note(self, disk: Path, name: Path, *, was: Path | None, kept: Path | None) -> None:
        self._forget_old()
        here, before = _within(disk, name), None if was is None else _within(disk, was)
        if here is None or (was is not None and before is None):  # a dead process's old disk
            return
        self._changes.append(_Change(trio.current_time(), here, before, kept))

    def _keep(self, path: Path) -> Path | None:
        if not path.exists():
            return None
        self._folder.mkdir(exist_ok=True)
        self._kept += 1
        kept = self._folder / str(self._kept)
        os.link(path, kept)
        return kept

    def _forget_old(self) -> None:
        now = trio.current_time()
        old = sum(now - each.at >= AFTER_SECONDS for each in self._changes)  # they stand in order
        self._forget(old)

    def _forget(self, count: int) -> None:
        for change in self._changes[:count]:
            if change.kept is not None:
                change.kept.unlink(missing_ok=True)
        del self._changes[:count]


def _within(disk: Path, path: Path) -> Path | None:
    """The path relative to the disk; None where it is not below it."""
    try:
        return path.resolve().relative_to(disk.resolve())
    except ValueError:
        return None
