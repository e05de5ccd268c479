"""One machine: its clocks, its starts, its processes and its disk.

Theory of operation. The files of a machine are real files, in a directory that stands for all of
its disk. When a process is killed or the power is cut, a copy of the directory as it is at that
instant becomes the disk: what the dead process still does, while its tasks are cancelled, goes to
the old one, which no other process sees again.

After a power cut each page is what was there, or what was there when it last reached the disk: when
its file was synced, or when the system wrote it back, which it does in any order and at any time.
The names in a directory are there, or, as long as they are younger than the last time at which
names reached the disk, may be gone, the youngest first; a file that was replaced or removed may be
back (`namejournal`).

A sync that fails loses pages, as on Linux: the system counts them as written, so that a later sync
says that all is well, and never writes them. A write that fails, or in which its process dies, has
written a part.
"""

import errno
import os
import random
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import trio

from cqrepl.kernel.giventime import give_time
from cqrepl.queue.files.locks import forget_turns
from cqrepl.surroundings import Surroundings
from cqrepl.testing.namejournal import NameJournal
from cqrepl.testing.pages import PAGE, Pages
from cqrepl.testing.story import Story

WALL_NS: Final = 1_709_640_000_000_000_000  # 5 March 2024, noon: when each run begins
_NS: Final = 1_000_000_000
_PIDS: Final = 10_000  # process ids of one host
# a process that has found something looks once more, by its own clock, or waits to be told at once:
# that costs less, and the other meets more of what a pump leaves unfinished
LATE_SECONDS: Final = 0.0005
SHARE_LATE: Final = 1 / 3
SHARE_OF_RARE_CHOICES: Final = 1 / 3  # of a process
SHARE_RARE: Final = 1 / 3  # of the times that such a choice is made
NO_CALL: Final = 0
T = TypeVar("T")
NAMES_AFTER_SECONDS: Final = 5.0  # so long may a new name not be on the disk
_FILES_LEFT: Final = 0.2  # of the files, each time that the system writes back
_PAGES_LEFT: Final = 0.1  # of the pages of the others
_KEPT: Final = (0.0, 0.1, 0.5, 0.9, 1.0)  # of what was not synced, so much survives


class Machine:
    """A host's machine; `path` is its disk as it is now."""

    def __init__(
        self, host: int, folder: Path, rng: random.Random, story: Story, *, name: str = ""
    ) -> None:
        self.host = host
        self.name = name or f"host {host}"
        self.story: Final = story
        self.skew_ns = 0
        self.drift = 0.0  # of the clock that no person sets: so much faster than others
        self.loses_power = True  # if not, no check asks what has reached the disk
        self.is_full = False
        self.slow_s = 0.0  # what work at the disk takes besides
        self.alive: set[int] = set()
        self.rare: random.Random | None = None  # where legal choices are made that are rare
        self.at_power_cut: list[Callable[[], None]] = []  # called once its processes are dead
        self.all_disks = folder.parent
        self._folder = folder
        self._rng = rng
        self.rests_late = _first_of(rng) < SHARE_LATE
        self._boots = 1
        self._processes = 0
        self._generation = 0
        self._error_in = NO_CALL
        self._durable: dict[int, Pages] = {}  # by inode: what reached the disk
        self._given_up: dict[int, dict[int, bytes]] = {}  # pages that a sync has lost, by inode
        self._names_at: dict[str, float] = {}  # when a name was first seen
        self.names = NameJournal(folder / "kept", random.Random(f"names {_first_of(rng)}"))
        self.file_numbers: dict[int, int] = {}  # of copies: the inodes of the first ones
        self.path = folder / "0"
        self.path.mkdir(parents=True)
        self.disk = folder / "disk"  # leads to the path, wherever that is by now
        self.disk.symlink_to(self.path.name)

    @property
    def boot_id(self) -> bytes:
        return b"%d of host %d" % (self._boots, self.host)

    def start(self, what: str) -> "Process":
        """A new process."""
        self._processes += 1
        process = Process(self, self.host * _PIDS + self._processes, what)
        self.alive.add(process.pid)
        forget_turns(process.pid)
        return process

    def killed(self, process: "Process") -> None:
        """The process is no more. The disk goes on as it is now, at another place: the other
        processes of the machine open their files anew."""
        self.alive.discard(process.pid)
        self._go_on()

    def power_cut(self) -> None:
        """No process is left, and of what was not synced not all."""
        self.alive.clear()
        kept = self._rng.choice(_KEPT)
        torn = gone = 0
        self._go_on()
        back = self.names.power_cut(self.path, self._restored)
        now = trio.current_time()
        before = [path.relative_to(self.path) for path in self._files()]
        contents = {
            each: self._durable.get(_inode_of(self.path / each), Pages()) for each in before
        }
        seen = {each: self._names_at.get(str(each), now) for each in before}
        before.sort(key=lambda each: (seen[each], each.suffix == ".cq4", each))
        # a journal keeps the order of names: what reached the disk has brought all before it
        safe = max((nth for nth, each in enumerate(before) if contents[each].size), default=-1)
        for nth, relative in enumerate(before):
            copy, durable = self.path / relative, contents[relative]
            is_new = now - seen[relative] < NAMES_AFTER_SECONDS
            if is_new and nth > safe and (gone or self._rng.random() > kept):
                copy.unlink()
                gone += 1
                continue
            torn += self._tear(copy, durable, kept)
        self._boots += 1
        self._given_up.clear()
        self._durable = {os.stat(path).st_ino: Pages.at(path) for path in self._files()}
        self.story.tell(self.name, f"power cut: {torn} pages and {gone} names are lost")
        if back:
            self.story.tell(self.name, f"power cut: {back} changes of names are taken back")
        for each in self.at_power_cut:
            each()

    def _restored(self, path: Path, kept: Path) -> None:
        """A file that was replaced or removed is there again, as far as it had reached the disk."""
        self._durable[os.stat(path).st_ino] = self._durable.get(os.stat(kept).st_ino, Pages())
        self._names_at[str(path.relative_to(self.path))] = -NAMES_AFTER_SECONDS

    def write_back(self) -> None:
        """The system writes some pages of some files to the disk, as it does at any time."""
        now = trio.current_time()
        for path in self._files():
            self._names_at.setdefault(str(path.relative_to(self.path)), now)
            if self._rng.random() < _FILES_LEFT:
                continue
            content = Pages.at(path)
            durable = self._durable.setdefault(os.stat(path).st_ino, Pages())
            durable.size = max(durable.size, content.size)
            given_up = self._given_up.get(os.stat(path).st_ino, {})
            for number in content.differing(durable):
                is_given_up = given_up.get(number) == content.page(number)
                if self._rng.random() >= _PAGES_LEFT and not is_given_up:
                    durable.put(number, content.page(number))

    def synced(self, descriptor: int) -> None:
        """A file is on the disk as it is now."""
        if not self.loses_power:
            return
        # a file open for writing only is read through its other name
        now, inode = Pages.at(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_ino
        for number, page in self._given_up.get(inode, {}).items():
            if now.page(number) == page:
                now.put(number, self._durable[inode].page(number))
        self._durable[inode] = now
        self.names.synced(is_directory=False)

    def sync_failed(self, descriptor: int) -> None:
        """The system gives up the pages of a file that are not on the disk."""
        if not self.loses_power:
            return
        now, inode = Pages.at(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_ino
        durable = self._durable.setdefault(inode, Pages())
        lost = {number: now.page(number) for number in now.differing(durable)}
        self._given_up.setdefault(inode, {}).update(lost)

    def names_synced(self) -> None:
        if not self.loses_power:
            return
        self.names.synced(is_directory=True)
        for path in self._files():
            self._names_at[str(path.relative_to(self.path))] = -NAMES_AFTER_SECONDS

    def fail_in(self, calls: int) -> None:
        """The n-th call from here that reaches the disk ends with an error; with `NO_CALL` none."""
        self._error_in = calls

    @property
    def has_error_ahead(self) -> bool:
        """True until the call that fails has come."""
        return self._error_in != NO_CALL

    def check_disk(self, *, takes_space: bool) -> None:
        """Checks the disk as each call begins that reaches it.

        Raises:
            OSError: it is full, or this is the call that fails.
        """
        if takes_space and self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._error_in:
            self._error_in -= 1
            if not self._error_in:
                self.story.tell(self.name, "a call to the disk fails")
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def wall_ns(self, slept_s: float) -> int:
        return WALL_NS + self.skew_ns + int((trio.current_time() + slept_s) * _NS)

    def _files(self) -> Iterator[Path]:
        return iter(sorted(path for path in self.path.rglob("*") if path.is_file()))

    def _go_on(self) -> None:
        """Goes on with a copy of the disk as it is now; what reached the disk is the same."""
        old, self._generation = self.path, self._generation + 1
        durable, numbers = {}, {}
        given_up: dict[int, dict[int, bytes]] = {}
        self.path = self._folder / str(self._generation)
        self.disk.unlink()
        self.disk.symlink_to(self.path.name)
        for path, copy in copy_directory(old, self.path):
            was = os.stat(path)
            os.utime(copy, ns=(was.st_atime_ns, was.st_mtime_ns))
            inode, inode_now = was.st_ino, os.stat(copy).st_ino
            numbers[inode_now] = self.file_numbers.get(inode, inode)
            if inode in self._durable:
                durable[inode_now] = self._durable[inode]
            if inode in self._given_up:
                given_up[inode_now] = self._given_up[inode]
        for inode in map(_inode_of, self.names.kept):
            if inode in self._durable:
                durable[inode] = self._durable[inode]
        self._durable, self._given_up, self.file_numbers = durable, given_up, numbers

    def _tear(self, copy: Path, durable: Pages, kept: float) -> int:
        """Takes some of the pages back that had not reached the disk; how many."""
        content = Pages.at(copy)
        given_up = self._given_up.get(_inode_of(copy), {})
        lost = [
            number
            for number in content.differing(durable)
            if self._rng.random() >= kept or given_up.get(number) == content.page(number)
        ]
        with copy.open("r+b") as file:
            for number in lost:
                file.seek(number * PAGE)
                file.write(durable.page(number)[: content.size - number * PAGE])
        return len(lost)


class Process(Surroundings):
    """A process of a machine, and what it has around it."""

    has_threads = False
    idle_polls = 0

    def __init__(self, machine: Machine, pid: int, what: str) -> None:
        self.machine = machine
        self.pid = pid
        self.what = what
        self._rng = random.Random(pid)
        self._rare: dict[str, bool] = {}  # by name, whether a choice is made so at times
        self._numbers = random.Random(-pid * _PIDS)  # its own: no other draw depends on them
        self.rest_after_seconds = LATE_SECONDS if machine.rests_late else 0.0
        self._slept_s = 0.0
        self._calls_left = 0  # 0 for no end
        self._dies_at_disk = False
        self._die: Callable[[], None]

    def die_in(self, calls: int, die: Callable[[], None], *, at_disk: bool = False) -> None:
        """It is killed when it asks its machine for anything the n-th time from here.

        Args:
            at_disk: calls that change files or bring them to the disk count, and no others.
        """
        self._calls_left, self._die, self._dies_at_disk = calls, die, at_disk

    def _asked(self, *, at_disk: bool = False) -> None:
        if self._calls_left and (at_disk or not self._dies_at_disk):
            self._calls_left -= 1
            if not self._calls_left:
                self._die()

    def thread_seconds(self) -> float:
        return self.machine.slow_s

    def process_id(self) -> int:
        self._asked()
        return self.pid

    def is_alive(self, process: int) -> bool | None:
        return process in self.machine.alive

    def start_of(self, process: int) -> int | None:
        return process if process in self.machine.alive else None

    def boot_id(self) -> bytes:
        self._asked()
        return self.machine.boot_id

    def place_of(self, file: Path) -> int:
        # by path, which every run of a plan has: inodes differ
        disks = os.path.realpath(self.machine.all_disks)
        path = os.path.relpath(os.path.realpath(file), disks)
        return zlib.crc32(path.encode()) if file.exists() else 0

    def wall_ns(self) -> int:
        self._asked()
        return self.machine.wall_ns(self._slept_s)

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * _NS)

    def monotonic(self) -> float:
        self._asked()
        return trio.current_time() + self._slept_s

    def boottime(self) -> float:
        return self.monotonic() * (1 + self.machine.drift)

    def processor_seconds(self) -> float:
        return self.monotonic()

    def give_time(self) -> None:
        give_time(self.monotonic_ns(), self.wall_ms())

    def sleep(self, seconds: float) -> None:
        # nothing else runs meanwhile: what is waited for cannot come, and the limit does
        self._slept_s += seconds

    def rarely(self, name: str, usual: T, *others: T) -> T:
        rng = self.machine.rare
        if rng is None:
            return usual
        is_made = self._rare.setdefault(name, rng.random() < SHARE_OF_RARE_CHOICES)
        return rng.choice(others) if is_made and rng.random() < SHARE_RARE else usual

    def uniform(self, least: float, most: float) -> float:
        return self._rng.uniform(least, most)

    def random_bytes(self, count: int) -> bytes:
        return self._numbers.randbytes(count)

    def file_age(self, descriptor: int) -> float:
        return 0.0

    def file_number(self, path: Path, status: os.stat_result) -> int:
        # a disk in memory gives no number twice
        return self.machine.file_numbers.get(status.st_ino, status.st_ino)

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        self._asked(at_disk=True)
        self.machine.check_disk(takes_space=True)
        super().allocate(descriptor, start, length)

    def write(self, descriptor: int, data: bytes, position: int) -> None:
        if self._calls_left == 1:  # it may die in the middle
            self._write_a_part(descriptor, data, position)
        self._asked(at_disk=True)
        try:
            self.machine.check_disk(takes_space=True)
        except OSError:
            self._write_a_part(descriptor, data, position)
            raise
        super().write(descriptor, data, position)

    def _write_a_part(self, descriptor: int, data: bytes, position: int) -> None:
        count = self._numbers.randint(0, len(data))
        super().write(descriptor, data[:count], position)

    def sync(self, descriptor: int) -> None:
        self._asked(at_disk=True)
        try:
            self.machine.check_disk(takes_space=False)
        except OSError:
            self.machine.sync_failed(descriptor)
            raise
        self.machine.synced(descriptor)

    def sync_names(self, descriptor: int) -> None:
        self._asked(at_disk=True)
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        try:
            self.machine.check_disk(takes_space=False)
        except OSError:
            if is_file:
                self.machine.sync_failed(descriptor)
            raise
        if is_file:
            self.machine.synced(descriptor)
        self.machine.names_synced()

    def rename(self, path: Path, to: Path) -> None:
        self._asked(at_disk=True)
        if self.machine.loses_power:
            self.machine.names.rename(self.machine.path, path, to)
        else:
            super().rename(path, to)

    def link(self, path: Path, to: Path) -> None:
        self._asked(at_disk=True)
        if self.machine.loses_power:
            self.machine.names.link(self.machine.path, path, to)
        else:
            super().link(path, to)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        self._asked(at_disk=True)
        if self.machine.loses_power and path.exists():
            self.machine.names.unlink(self.machine.path, path)
        else:
            super().unlink(path, missing_ok=missing_ok)


def _inode_of(path: Path) -> int:
    return os.stat(path).st_ino


def _first_of(rng: random.Random) -> float:
    """The number that it would draw next, and still will."""
    same = random.Random()
    same.setstate(rng.getstate())
    return same.random()


def copy_directory(source: Path, target: Path) -> list[tuple[Path, Path]]:
    """Copies all below a directory, holes as holes; each file and its copy."""
    target.mkdir(parents=True)
    copied = []
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        elif path.is_dir():
            copy.mkdir()
        else:
            _copy_sparse(path, copy)
            copied.append((path, copy))
    return copied


def _copy_sparse(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as write:
        size, at = os.fstat(read.fileno()).st_size, 0
        os.truncate(write.fileno(), size)
        while at < size:
            try:
                start = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole follows
                return
            at = os.lseek(read.fileno(), start, os.SEEK_HOLE)
            os.copy_file_range(read.fileno(), write.fileno(), at - start, start, start)
