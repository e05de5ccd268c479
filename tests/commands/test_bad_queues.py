"""Directories that cannot be used: one line that names the path and says what was expected."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from cqrepl import HostSettings, blocking
from cqrepl.queue import Queue
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.support.copies import assert_same
from tests.support.goldens import unpack
from tests.support.invoke import Invoke
from tests.support.requirements import require
from tests.support.samples import fill, noon_path

LISTEN = ("--listen", "127.0.0.1:0")
NOBODY = 65534


def one_line(text: str, role: str, *parts: object) -> None:
    (line,) = text.splitlines()
    assert line.startswith(f"cqrepl {role}: ")
    for part in parts:
        assert str(part) in line, line


def missing(path: Path) -> None:
    pass


def a_file(path: Path) -> None:
    path.write_text("not a directory")


def something_else(path: Path) -> None:
    path.mkdir()
    (path / "letters.txt").write_text("x")


def version_4(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    (path / FILE_NAME).rename(path / "directory-listing.cq4t")


def weekly(path: Path) -> None:
    unpack("weekly", path.parent).rename(path)


def weekly_without_metadata(path: Path) -> None:
    weekly(path)
    (path / FILE_NAME).unlink(missing_ok=True)


def foreign_file_name(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    (path / "nonsense.cq4").write_bytes(noon_path(path).read_bytes())


def cut_store_file(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    os.truncate(noon_path(path), 150)


def cut_behind_the_header(path: Path) -> None:
    """The file claims excerpts that are not in it any more."""
    fill(path, "FAST_DAILY", {0: 500})
    os.truncate(noon_path(path), 66_000)


def cut_table_store(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    os.truncate(path / FILE_NAME, 70)


def empty_table_store(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    os.truncate(path / FILE_NAME, 0)


def garbage_in_table_store(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    (path / FILE_NAME).write_bytes(bytes(range(1, 251)) * 500)


def garbage_in_store_file(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    noon_path(path).write_bytes(bytes(range(1, 251)) * 500)


def directory_as_store_file(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    noon_path(path).unlink()
    noon_path(path).mkdir()


DAMAGED = [cut_store_file, cut_behind_the_header, cut_table_store, garbage_in_table_store]
DAMAGED += [garbage_in_store_file]


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (missing, 2, "expected a queue directory, found none"),
        (a_file, 2, "expected a queue directory, found a file"),
        (something_else, 2, "expected a queue"),
        (os.mkdir, 2, "expected a queue, found no metadata.cq4t"),
        (version_4, 2, "version 4"),
        (foreign_file_name, 2, "move it away"),
        (weekly, 2, "WEEKLY"),
        (weekly_without_metadata, 2, "WEEKLY"),
        *((make, 4, "expected") for make in DAMAGED),
        (directory_as_store_file, 4, "expected a regular file"),
        (empty_table_store, 4, "expected"),
    ],
)
def test_source(invoke: Invoke, tmp_path: Path, make: object, code: int, words: str) -> None:
    assert callable(make)
    make(tmp_path / "q")
    result = invoke("source", tmp_path / "q", *LISTEN)
    one_line(result.stderr, "source", tmp_path / "q", words)
    assert result.exit_code == code
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (a_file, 2, "expected a queue directory, found a file"),
        (something_else, 2, "a queue or an empty directory expected"),
        (version_4, 2, "version 4"),
        (foreign_file_name, 2, "move it away"),
        (weekly, 2, "WEEKLY"),
        *((make, 4, "expected") for make in DAMAGED),
    ],
)
def test_sink(invoke: Invoke, tmp_path: Path, make: object, code: int, words: str) -> None:
    assert callable(make)
    make(tmp_path / "q")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".cq4t"}
    result = invoke("sink", tmp_path / "q", *LISTEN)
    one_line(result.stderr, "sink", tmp_path / "q", words)
    assert result.exit_code == code
    after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".cq4t"}
    assert before.keys() == after.keys()


def test_a_file_among_several_queues(invoke: Invoke, queue: Path, tmp_path: Path) -> None:
    """A mistake on the command line: nothing is begun, and what was opened before is given back."""
    for role in ("source", "sink"):
        (tmp_path / "file").write_text("x")
        result = invoke(role, queue, tmp_path / "file", *LISTEN)
        one_line(result.stderr, role, tmp_path / "file")
        assert result.exit_code == 2
    with Queue.open_for_append(queue) as again:
        assert again.append_lock.try_acquire()


@pytest.mark.parametrize("damage", [cut_table_store, cut_store_file, missing])
def test_one_of_several_that_cannot_be_opened(
    invoke: Invoke, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The other one is copied first; then its reason is the exit code."""
    fill(tmp_path / "good", "FAST_DAILY", {0: 5})
    damage(tmp_path / "bad")
    copies = {name: tmp_path / "copies" / name for name in ("good", "bad")}
    with blocking.Host(HostSettings.of(listen="127.0.0.1:0", sinks=copies)) as host:
        words = ("--connect", f"127.0.0.1:{host.port}", "--until-caught-up")
        result = invoke("source", tmp_path / "good", tmp_path / "bad", *words)
    assert "queue 'bad' stopped" in result.stderr
    assert result.exit_code == (2 if damage is missing else 4)
    assert_same(tmp_path / "good", copies["good"])


@pytest.mark.parametrize("role", ["source", "sink"])
def test_several_of_which_none_can_be_opened(invoke: Invoke, tmp_path: Path, role: str) -> None:
    cut_table_store(tmp_path / "bad")
    version_4(tmp_path / "old")
    result = invoke(role, tmp_path / "old", tmp_path / "bad", *LISTEN)
    first, last = result.stderr.splitlines()
    assert "queue 'old' stopped (refused)" in first
    one_line(last, role, tmp_path / "bad")
    assert result.exit_code == 4


@pytest.mark.parametrize(("role", "option"), [("source", "--ack-log"), ("sink", "--append-log")])
def test_log_in_the_way(
    invoke: Invoke, queue: Path, tmp_path: Path, role: str, option: str
) -> None:
    (tmp_path / "log").write_text("x")
    result = invoke(role, queue, *LISTEN, option, tmp_path / "log")
    one_line(result.stderr, role, tmp_path / "log")
    assert result.exit_code == 2
    with Queue.open_for_append(queue) as again:
        assert again.append_lock.try_acquire()


def test_an_address_that_cannot_be_listened_on(invoke: Invoke, queue: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for role in ("source", "sink"):
            result = invoke(role, queue, "--listen", f"127.0.0.1:{port}")
            one_line(result.stderr, role, f"cannot listen on 127.0.0.1:{port}: the port is in use")
            assert result.exit_code == 3
    result = invoke("source", queue, "--listen", "192.0.2.1:1")  # of another host
    one_line(result.stderr, "source", "cannot listen on 192.0.2.1:1")
    assert result.exit_code == 3


def test_sink_beside_a_live_process(invoke: Invoke, queue: Path) -> None:
    """A living process has the append lock: refused, with the process id."""
    with Queue.open_for_append(queue) as mine:
        mine.append_lock.acquire()
        result = invoke("sink", queue, *LISTEN)
        one_line(result.stderr, "sink", queue, f"process {os.getpid()} holds it")
        assert result.exit_code == 5
        assert mine.append_lock.is_held


# without root's rights


@cache
def nobody() -> list[str] | None:
    """The words before a command that leave it without rights; None where that is not possible."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        return None
    prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    probe = [*prefix, sys.executable, "-P", "-c", "import cqrepl.cli.main, trio"]
    return None if subprocess.run(probe, capture_output=True).returncode else prefix


def as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user who owns nothing."""
    prefix = nobody()
    if prefix is None:
        require("setpriv", "needs setpriv, and a Python that every user may run")
    command = [*prefix, sys.executable, "-P", "-m", "cqrepl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that every user may look into."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


@pytest.mark.parametrize(
    ("role", "what"), [("source", "directory"), ("sink", "table store"), ("source", "store file")]
)
def test_unreadable(shared: Path, what: str, role: str) -> None:
    path = shared / "q"
    fill(path, "FAST_DAILY", {0: 5})
    path.chmod(0o755)
    target = {"directory": path, "table store": path / FILE_NAME, "store file": noon_path(path)}
    target[what].chmod(0)
    try:
        done = as_nobody(role, path, *LISTEN)
    finally:
        target[what].chmod(0o755)
    one_line(done.stderr, role, path, "ermission denied")
    assert done.returncode == 2
    assert done.stdout == ""


def test_directory_that_cannot_be_made(shared: Path) -> None:
    """Found at the start already where it can be, and in any case one line."""
    (shared / "closed").mkdir()
    (shared / "closed").chmod(0)
    try:
        done = as_nobody("sink", shared / "closed" / "q", *LISTEN)
    finally:
        (shared / "closed").chmod(0o755)
    one_line(done.stderr, "sink", shared / "closed", "ermission denied")
    assert done.returncode == 2
