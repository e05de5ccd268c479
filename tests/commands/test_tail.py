"""`cqrepl tail` as a process: it follows a queue, and minds a reader that leaves."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.support.samples import NOON_MS, layout

DAY_MS = 86_400_000
CQREPL = Path(sys.executable).with_name("cqrepl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two cycles with 12 and 3 lines of text."""
    with Queue.open(tmp_path / "lines", create=layout()) as queue:
        queue.append_many([b"line %d" % number for number in range(12)], now_ms=NOON_MS)
        queue.append_many([b"late %d" % number for number in range(3)], now_ms=NOON_MS + DAY_MS)
    return tmp_path / "lines"


@pytest.fixture
def following(path: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [str(CQREPL), "tail", str(path), "-f", "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_follow(path: Path, following: "subprocess.Popen[str]") -> None:
    assert following.stdout is not None
    assert following.stdout.readline().endswith("late 2\n")
    with Queue.open(path) as queue:
        queue.append(b"one more", now_ms=NOON_MS + DAY_MS)
        assert following.stdout.readline().endswith("one more\n")
        queue.append(b"in the next cycle", now_ms=NOON_MS + 2 * DAY_MS)
        assert following.stdout.readline().endswith("in the next cycle\n")


def test_a_reader_that_leaves_ends_it_quietly(path: Path) -> None:
    command = f"{CQREPL} tail {path} --from first --as hex | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
