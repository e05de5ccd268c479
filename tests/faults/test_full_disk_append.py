"""A writer without space: an `OSError`, nothing acknowledged lost, and on it goes with space.

The writer is forked, since storing where there is no space would be its death, and it keeps its
appender over the error. Each time it was refused, a reader must find exactly what was acknowledged.
Where the space runs out depends on the size of the excerpts: a store file is allocated in steps of
1 MiB and more, so a step falls due in front of an excerpt, of one with an index page (every eighth
here), or of a new file. Which of these it was is counted, and each must occur.
"""

import errno
import os
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Appender, Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support import forks
from tests.support.requirements import require
from tests.support.samples import NOON_MS, check_marks, read

MIB = 1 << 20
LAYOUT = QueueLayout.of(by_name("TEST_DAILY"))
PER_PAGE = LAYOUT.index_count * LAYOUT.index_spacing
PER_CYCLE = 60  # of at most 64: eight index pages
REFUSALS = 12
TRIES_MAX = 40
BLOCK_BYTES = 1024
SIZES = [8 * (6000 - step * 250) for step in range(8)]  # about 3 MiB in a cycle


@contextmanager
def loop_file_system(folder: Path, size: int) -> Iterator[Path]:
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    for command in (
        ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image)],
        ["mount", "-o", "loop", str(image), str(mounted)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            require("root", f"no file system can be made here: {error}")
        if done.returncode:
            require("root", f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


@dataclass(slots=True)
class Filling:
    """Appends until there is no space, frees some, and goes on, over and over."""

    path: Path
    size: int  # of each excerpt
    error: int  # number of the one that is expected
    tighten: Callable[[], None]  # leaves no room for a new file
    loosen: Callable[[], None]  # makes some room
    written: list[tuple[int, bytes]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Until it has been refused often enough, and has then gone on to a further cycle."""
        with Queue.open_for_append(self.path, create=LAYOUT) as queue:
            appender = queue.appender()
            while self.refused.total() < REFUSALS or len(self.written) % PER_CYCLE < 2:
                self._append(appender)
        assert read(self.path) == self.written
        check_marks(self.path)

    def _append(self, appender: Appender) -> None:
        number = len(self.written)
        data = b"%08d" % number * (self.size // 8)
        clock_ms = NOON_MS + number // PER_CYCLE * LAYOUT.roll_cycle.length_ms
        if number % PER_CYCLE == 0:
            self.tighten()
        for _ in range(TRIES_MAX):
            try:
                self.written.append((appender.append([data], clock_ms), data))
            except OSError as error:
                refusal = error
            else:
                return
            self._note(refusal, clock_ms)
            self.loosen()
        pytest.fail("refused again and again")

    def _note(self, refusal: OSError, clock_ms: int) -> None:
        """A refusal: it has changed nothing for a reader."""
        assert refusal.errno == self.error
        assert read(self.path) == self.written
        cycle = LAYOUT.roll_cycle.cycle_at(clock_ms, LAYOUT.epoch)
        name = LAYOUT.roll_cycle.file_name(cycle, LAYOUT.epoch)
        within = len(self.written) % PER_CYCLE
        if not (self.path / f"{name}.cq4").exists():
            self.refused["new file"] += 1
        elif within and within % PER_PAGE == 0:
            self.refused["index page"] += 1
        else:
            self.refused["excerpt"] += 1


def in_a_child(work: Callable[[], Counter[str]]) -> Counter[str]:
    reader, writer = os.pipe()

    def child() -> None:
        counted = work()
        os.write(writer, "\n".join(counted.elements()).encode())

    code = forks.run(child)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    assert code == 0, f"ended with {code}"
    return Counter(text.split("\n"))


def test_limit_on_file_sizes(tmp_path: Path) -> None:
    """As `prlimit --fsize` sets it; raised a little after each refusal."""
    refused: Counter[str] = Counter()
    for size in SIZES:
        refused += in_a_child(partial(fill_to_limit, tmp_path / str(size), size))
    print(dict(refused))
    assert set(refused) == {"new file", "index page", "excerpt"}


def test_no_space_for_a_new_queue(tmp_path: Path) -> None:
    """The files that are left of the new queue disturb no later writer."""
    path = tmp_path / "queue"

    def work() -> Counter[str]:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in (0, 1000, 100_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(OSError, match="File too large"):
                Queue.open_for_append(path, create=LAYOUT)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        with Queue.open_for_append(path, create=LAYOUT) as queue:
            queue.appender().append([b"first"], NOON_MS)
        return Counter()

    in_a_child(work)
    assert [data for _, data in read(path)] == [b"first"]


def fill_to_limit(path: Path, size: int) -> Counter[str]:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits: Iterator[int] = iter(())

    def tighten() -> None:
        nonlocal limits
        limits = iter(range(256, 64 * MIB, MIB // 2))
        loosen()

    def loosen() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (next(limits), hard))

    filling = Filling(path, size, errno.EFBIG, tighten, loosen)
    filling.run()
    return filling.refused


def test_small_loop_file_system(tmp_path: Path) -> None:
    """Space comes back as another file gets shorter."""
    refused: Counter[str] = Counter()
    with loop_file_system(tmp_path, 64 * MIB) as mounted:
        for size in SIZES:
            path = mounted / str(size)
            refused += in_a_child(partial(fill_file_system, path, size))
            shutil.rmtree(path)
    print(dict(refused))
    assert set(refused) == {"new file", "index page", "excerpt"}


def fill_file_system(path: Path, size: int) -> Counter[str]:
    ballast = os.open(path.with_name("ballast"), os.O_CREAT | os.O_RDWR)

    def tighten() -> None:
        """Fills the file system up to the last block."""
        length = os.fstat(ballast).st_size
        step = 8 * MIB
        while step >= BLOCK_BYTES:
            try:
                os.posix_fallocate(ballast, length, step)
                length += step
            except OSError:
                step //= 2

    def loosen() -> None:
        os.ftruncate(ballast, max(0, os.fstat(ballast).st_size - MIB // 2))

    filling = Filling(path, size, errno.ENOSPC, tighten, loosen)
    filling.run()
    os.close(ballast)
    path.with_name("ballast").unlink()
    return filling.refused
