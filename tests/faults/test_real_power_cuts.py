"""The power of a machine is cut, with a real file system: its queue comes back by itself.

The directory is on an ext4 file system of its own. The cut is that of ext4's shutdown call, which
drops what the journal and the page cache have not brought to the disk; then the processes are
killed, the file system is mounted anew, and replication is started in what it takes for another
start of the machine. Before most of the cuts a part of the pages is written back, as the system
does at any time; or the system does so itself, and oftener than it usually would. Excerpts
go as runs or as frames, as is drawn for each start of the side whose power is cut.
"""

import fcntl
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from cqrepl.console.loglines import port_told
from cqrepl.queue import Queue
from cqrepl.queue.files.syncedmark import load_synced
from tests.support.copies import assert_same
from tests.support.replicas import at, last_of
from tests.support.requirements import require
from tests.support.samples import read

MIB = 1 << 20
BIN = Path(sys.executable).parent
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = struct.pack("I", 2)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
IN_ANOTHER_BOOT = f'mount --bind "$0" {BOOT_ID} && exec "$@"'
SECONDS = 60.0
KINDS = ("--runs", "--runs", "--frames")
PAGE = 4096


APPLICATION = """
import itertools, sys, time
from cqrepl.queue import Queue
from cqrepl.queue.files.syncedmark import load_synced
with Queue.open_for_append(sys.argv[1], create="FAST_DAILY") as queue:
    for n in itertools.count():
        filling = bytes([65 + n % 26]) * (0, 40, 300, 2000, 9000)[n * 7 % 5]
        payload = b"%s %d " % (sys.argv[2].encode(), n) + filling
        queue.append(payload, now_ms=int(sys.argv[3]))  # no cycle ends at midnight
        if n % 5 == 0:
            time.sleep(0.01)
"""


class PowerCuts:
    """A file system in a file, mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self.writes_back = True
        self.path = folder / "mounted"
        self._image, self._boot = folder / "image", folder / "boot"
        self._began_ms = time.time_ns() // 1_000_000
        self._running: list[subprocess.Popen[bytes]] = []
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(512 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        """Another start of the machine."""
        self._boot.write_text(f"{uuid4()}\n")
        words = ["mount", "-o", "loop", str(self._image), str(self.path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            require("root", f"no file system can be mounted here: {done.stderr.strip()}")

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True)

    def take_disk(self) -> None:
        """Copy the disk, and use the copy. Mount name spaces that any test made meanwhile have the
        old disk mounted as well, and with it the file system as it was."""
        old = self._image.rename(self._image.with_name("before"))
        subprocess.run(["cp", "--sparse=always", str(old), str(self._image)], check=True)
        old.unlink()

    @property
    def elsewhere(self) -> list[str]:
        """The words before a command that has it run on this machine, since its last start."""
        apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_ANOTHER_BOOT]
        return [*apart, str(self._boot)]

    def start(self, said: Path, *words: str) -> "subprocess.Popen[bytes]":
        """One of our commands on this machine."""
        with said.open("ab") as log:
            command = [*self.elsewhere, str(BIN / "cqrepl"), *words]
            self._running.append(subprocess.Popen(command, stderr=log))
        return self._running[-1]

    def application(self, path: Path, name: str) -> "subprocess.Popen[bytes]":
        """Appends excerpts of all lengths until it is killed."""
        words = (str(path), name, str(self._began_ms))
        command = [sys.executable, "-P", "-c", APPLICATION, *words]
        self._running.append(subprocess.Popen(command))
        return self._running[-1]

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self.unmount()

    def write_back(self, chance: random.Random) -> None:
        """Some pages of the store files, and what the journal knows of them."""
        if not self.writes_back:
            time.sleep(chance.uniform(0.0, 0.3))
            return
        for file in self.path.glob("*/*.cq4"):
            descriptor = os.open(file, os.O_RDONLY)
            size = os.fstat(descriptor).st_size
            for start in range(0, size, PAGE):
                if chance.random() < 0.6:
                    os.posix_fadvise(descriptor, start, PAGE, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        time.sleep(0.02)
        with (self.path / "other").open("wb") as other:
            other.write(b"x")
            os.fsync(other.fileno())

    def cut(self, *processes: "subprocess.Popen[bytes]") -> None:
        """The end of these processes, and of what is not on the disk."""
        descriptor = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
        os.close(descriptor)
        for process in processes:
            process.kill()
            process.wait()
        self.unmount()
        self.take_disk()
        self.mount()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[PowerCuts]:
    if os.geteuid() != 0:
        require("root", "root mounts a file system")
    made = PowerCuts(tmp_path)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def listening(said: Path, *words: str) -> Iterator[int]:
    """One of our commands that listens, on the machine whose power stays; its port."""
    command = [str(BIN / "cqrepl"), *words, "--listen", "127.0.0.1:0"]
    with said.open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            until(lambda: port_told(said.read_text()) is not None)
            port = port_told(said.read_text())
            assert port is not None
            yield port
        finally:
            process.terminate()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stops_in(said: Path) -> list[str]:
    """The messages about queues that stopped, but for the last words of a dying machine."""
    lines = said.read_text().splitlines()
    return [line for line in lines if " stopped (" in line and "Input/output error" not in line]


def is_proved(said: Path) -> bool:
    """Each time that something was to be compared with a copy, all of it was."""
    text = said.read_text()
    return text.count("is compared with a copy") == text.count("all of it is proved")


@contextmanager
def frequent_write_back() -> Iterator[None]:
    """The system brings pages to the disk after tenths of a second, in place of half a minute."""
    settings = [Path(f"/proc/sys/vm/dirty_{name}_centisecs") for name in ("writeback", "expire")]
    before = [path.read_text() for path in settings]
    for path, value in zip(settings, ("5", "10"), strict=True):
        path.write_text(value)
    try:
        yield
    finally:
        for path, text in zip(settings, before, strict=True):
            path.write_text(text)


@pytest.fixture(
    params=[
        (5, True),
        pytest.param((40, True), marks=pytest.mark.long),  # for the plain kernel
        pytest.param((40, False), marks=pytest.mark.long),
        pytest.param((200, True), marks=pytest.mark.long),
    ],
    ids=lambda param: f"{param[0]}-{'by-us' if param[1] else 'by-the-system'}",
)
def cuts(request: pytest.FixtureRequest, machine: PowerCuts) -> Iterator[int]:
    """The number of power cuts. Either this test or the system writes pages back meanwhile."""
    number, by_us = request.param
    if by_us:
        yield number
    else:
        machine.writes_back = False
        with frequent_write_back():
            yield number


def test_a_sink_whose_power_is_cut(tmp_path: Path, machine: PowerCuts, cuts: int) -> None:
    chance = random.Random(cuts)
    original, copy, said = tmp_path / "q", machine.path / "copy", tmp_path / "said"
    Queue.open_for_append(original, create="FAST_DAILY").close()
    words = ("sink", f"q={copy}", "--connect")
    with listening(tmp_path / "source", "source", str(original), "--runs") as port:
        writer = machine.application(original, "app")
        for nth in range(cuts):
            before = last_of(copy) if nth else None
            sink = machine.start(said, *words, at(port), chance.choice(KINDS))
            until(partial(has_moved, copy, before))
            time.sleep(chance.uniform(0.1, 1.5))
            if chance.random() < 0.7:
                machine.write_back(chance)
                time.sleep(chance.uniform(0.0, 0.1))
            machine.cut(sink)
        writer.kill()
        writer.wait()
        sink = machine.start(said, *words, at(port))
        until(lambda: copy.is_dir() and last_of(copy) == last_of(original) and is_proved(said))
        sink.terminate()
        assert sink.wait() == 0
    assert_same(original, copy)
    assert stops_in(said) == []


def test_a_source_whose_power_is_cut(tmp_path: Path, machine: PowerCuts, cuts: int) -> None:
    """Its application goes on once its sink has given back what was lost."""
    chance = random.Random(cuts)
    original, copy, said = machine.path / "q", tmp_path / "copy", tmp_path / "said"
    kept: list[tuple[int, bytes]] = []
    with listening(tmp_path / "sink", "sink", f"q={copy}", "--runs") as port:
        for nth in range(cuts + 1):
            Queue.open_for_append(original, create="FAST_DAILY").close()
            kind = chance.choice(KINDS)
            source = machine.start(said, "source", str(original), "--connect", at(port), kind)
            until(partial(has_connected, said, nth + 1))
            until(lambda: is_proved(said) and last_of(original) == last_of_copy(copy))
            assert read(original)[: len(kept)] == kept
            if nth == cuts:
                break
            before = last_of(original)
            writer = machine.application(original, f"app {nth}")
            until(partial(has_moved, copy, before))
            until(lambda: load_synced(original) is not None)  # what knows nothing takes nothing
            time.sleep(chance.uniform(0.1, 1.5))
            if chance.random() < 0.7:
                machine.write_back(chance)
                time.sleep(chance.uniform(0.0, 0.1))
            machine.cut(source, writer)
            kept = read(copy)
        source.terminate()
        assert source.wait() == 0
    assert_same(original, copy)
    assert stops_in(said) == []


def has_moved(copy: Path, before: int | None) -> bool:
    """Its last index is another one than before."""
    return last_of_copy(copy) not in (None, before)


def has_connected(said: Path, times: int) -> bool:
    return said.read_text().count("connected\n") >= times


def last_of_copy(path: Path) -> int | None:
    return last_of(path) if path.is_dir() else None
