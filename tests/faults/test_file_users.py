"""A file of a queue is never taken from under a process that uses it, whichever user runs it.

The process that asks is a child that gives up root, so that it may not look into all others.
"""

import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from cqrepl.queue import Queue, QueueLocked
from cqrepl.queue.acceptance import accept_lost_end, accept_unproved
from cqrepl.queue.files.fileusers import check_unused
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.quarantine import quarantine
from tests.support import forks
from tests.support.requirements import require
from tests.support.samples import fill, noon_index, noon_path, read

OWNER: Final = 61_001  # ids that no account has
OTHER: Final = 61_002
PR_SET_DUMPABLE: Final = 4
CUT: Final = noon_index(sequence=2)


@pytest.fixture
def queue() -> Iterator[Path]:
    """A queue of five excerpts that `OWNER` owns; every user may come to it."""
    if os.geteuid() != 0:
        require("root", "root alone may become another user")
    folder = Path(tempfile.mkdtemp(prefix="cqrepl-users-"))
    try:
        fill(folder / "warm", "FAST_DAILY", {0: 5})
        quarantine(folder / "warm", CUT)  # loads what a user other than root could not
        folder.chmod(0o755)
        path = folder / "q"
        fill(path, "FAST_DAILY", {0: 5})
        for each in (path, *path.rglob("*")):
            os.chown(each, OWNER, OWNER)
            each.chmod(0o777 if each.is_dir() else 0o666)
        yield path
    finally:
        shutil.rmtree(folder)


@contextmanager
def mapped(path: Path, user: int, *, writable: bool = False) -> Iterator[int]:
    """Another process, of this user, that maps a file and has no descriptor of it; its id."""
    told, telling = os.pipe()

    def hold() -> None:
        os.setuid(user)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # its own user may look into it, as usual
        with path.open("r+b" if writable else "rb") as file:
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            kept = mmap.mmap(file.fileno(), 0, access=access)
        os.write(telling, b"!")
        signal.pause()
        kept.close()

    pid = forks.start(hold)
    try:
        assert os.read(told, 1) == b"!"
        yield pid
    finally:
        forks.kill(pid)
        os.close(told)
        os.close(telling)


def asked_as(user: int, work: Callable[[], object]) -> str:
    """The reason why the work of a process of this user was refused; empty where it was done."""
    told, telling = os.pipe()

    def ask() -> None:
        os.setuid(user)
        try:
            work()
        except QueueLocked as error:
            os.write(telling, str(error).encode())

    code = forks.run(ask)
    os.close(telling)
    with os.fdopen(told, "rb") as said:
        reason = said.read().decode()
    assert code == 0
    return reason


@pytest.mark.parametrize("writable", [False, True], ids=["reads", "writes"])
@pytest.mark.parametrize("user", [0, OTHER])
@pytest.mark.parametrize("file", ["table", "store"])
def test_a_process_of_another_user_keeps_what_it_maps(
    queue: Path, user: int, file: str, writable: bool
) -> None:
    path = queue / FILE_NAME if file == "table" else noon_path(queue)
    before = read(queue)
    with mapped(path, user, writable=writable):
        why = asked_as(OWNER, lambda: quarantine(queue, CUT))
        assert "found one that this user cannot look into: end it first" in why
        assert read(queue) == before
    assert asked_as(OWNER, lambda: quarantine(queue, CUT)) == ""
    assert read(queue) == before[:2]


def test_a_process_of_the_same_user_is_named(queue: Path) -> None:
    with mapped(noon_path(queue), OWNER) as pid:
        assert f"found {pid}: end it first" in asked_as(OWNER, lambda: quarantine(queue, CUT))


def test_who_does_not_own_the_files_cannot_rule_out_other_users(queue: Path) -> None:
    """The system leases no files to such a process, and root's cannot be looked into."""
    before = read(queue)
    why = asked_as(OTHER, lambda: quarantine(queue, CUT))
    assert "that this user cannot look into: do this as the files' owner" in why
    assert read(queue) == before


def test_a_repair_that_takes_marks_back_asks_too(queue: Path) -> None:
    for accepted in (accept_lost_end, accept_unproved):
        assert asked_as(OWNER, partial(accepted, queue)) == ""  # there is nothing to do
    store_synced(queue, noon_index(sequence=9))
    os.chown(queue / SYNCED_FILE_NAME, OWNER, OWNER)
    with mapped(queue / FILE_NAME, OTHER):
        assert "cannot look into" in asked_as(OWNER, lambda: accept_lost_end(queue))
    assert asked_as(OWNER, lambda: accept_lost_end(queue)) == ""


def test_a_process_of_another_name_space_keeps_what_it_maps(queue: Path) -> None:
    """The one that asks sees no process outside of its own."""
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from cqrepl.queue.quarantine import quarantine\n"
        f"quarantine(Path(sys.argv[1]), {CUT})\n"
    )
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    asked = [*apart, sys.executable, "-P", "-c", program, str(queue)]
    before = read(queue)
    with mapped(noon_path(queue), 0):
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stderr.startswith("unshare: "):
            require("root", f"no name space can be made here: {done.stderr}")
        assert "found one that this user cannot look into" in done.stderr
        assert read(queue) == before
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read(queue) == before[:2]


def test_what_this_process_has_open_itself_does_not_count(queue: Path) -> None:
    with Queue.open(queue) as opened:
        held = opened.tailer(noon_index()).next_batch()
        assert held is not None
        quarantine(queue, CUT)
        assert len(held) == 5
    with mapped(noon_path(queue), OTHER) as pid, Queue.open(queue):
        with pytest.raises(QueueLocked, match=f"found {pid}: end it first"):
            quarantine(queue, noon_index(sequence=1))


def test_a_process_that_opens_the_file_meanwhile_does_no_harm(queue: Path) -> None:
    """The system tells the holder of a lease by a signal, which by default ends a process."""
    path = noon_path(queue)

    def open_again_and_again() -> None:
        while True:
            path.open("r+b").close()

    def ask_again_and_again() -> None:
        for _ in range(500):
            with suppress(QueueLocked):
                check_unused(queue, [path])

    pid = forks.start(open_again_and_again)
    try:
        assert forks.run(ask_again_and_again) == 0
    finally:
        forks.kill(pid)


def test_no_lease_is_left_behind(queue: Path) -> None:
    path = noon_path(queue)
    check_unused(queue, [path])
    began = time.monotonic()
    with path.open("r+b") as file:
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    assert time.monotonic() - began < 10
