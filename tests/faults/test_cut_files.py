"""Files that are cut under a running command (T16): it ends in one line that names the file, with
either kernel."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.net.test_disk_full import small_file_system
from tests.support.commands import Command, commands
from tests.support.replicas import at, copied, more_excerpts
from tests.support.samples import fill, noon_path

CUT = "expected a file as long as it was, it was cut while it was in use"
# from who opens it anew before the cut pages are touched: an error like any other
FOUND_CUT = "expected a table store, found no header at position 0"


async def ends(command: Command, role: str, file: Path) -> None:
    """As damaged, with a line that names the file; in its last one if the system ends it."""
    with trio.fail_after(120):
        code = await command.exit_code()
    lines = command.said.splitlines()
    is_found = any(line.endswith(f"(damaged): {file}: {FOUND_CUT}") for line in lines)
    assert (code, is_found or lines[-1] == f"cqrepl {role}: {file}: {CUT}") == (4, True), lines


@pytest.mark.parametrize("victim", ["sink", "source"])
async def test_the_table_store_of_one_side(tmp_path: Path, victim: str) -> None:
    """The other side goes on without it."""
    places = {"source": tmp_path / "q", "sink": tmp_path / "copy"}
    fill(places["source"], "FAST_DAILY", {0: 3})
    async with commands() as start:
        source = await start("source", places["source"], "--listen", at(0))
        to = at(await source.port())
        sink = await start("sink", f"q={places['sink']}", "--connect", to)
        await copied(places["source"], places["sink"])
        os.truncate(places[victim] / FILE_NAME, 0)
        if victim == "sink":
            more_excerpts(places["source"], 3, 5)
        cut, other = (sink, source) if victim == "sink" else (source, sink)
        await ends(cut, victim, places[victim] / FILE_NAME)
        await other.terminate()


@pytest.mark.parametrize("arguments", [["tail", "-f"], ["append", "--lines"]])
def test_the_table_store_of_a_command(arguments: list[str], tmp_path: Path) -> None:
    """Opened before it is cut, and looked at again behind that."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    role, *more = arguments
    command = [sys.executable, "-P", "-m", "cqrepl", role, str(path), *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if role == "append":
            process.stdin.write(b"one\n" * 5000)
            process.stdin.flush()
            with Queue.open(path) as queue:
                while queue.count() <= 3:
                    pass
        else:
            process.stdout.readline()
        os.truncate(path / FILE_NAME, 0)
        _, said = process.communicate(b"two\n" * 5000, timeout=60)
    assert process.returncode == 4
    # a command that opens it anew finds that out by itself
    says = CUT if role == "append" else "expected"
    assert f"cqrepl {role}: {path / FILE_NAME}: {says}" in said.decode().splitlines()[-1]


PROGRAM = """
import faulthandler, mmap, os, sys
from cqrepl.kernel.memory import name_cut_files
from pathlib import Path
file = Path(sys.argv[1])
if "before" in sys.argv:
    faulthandler.enable()
if "install" in sys.argv:
    name_cut_files("a program", 4, 6)
file.write_bytes(bytes(20_000))
with file.open("r+b") as opened:
    mapped = mmap.mmap(opened.fileno(), 0)
if "spare" not in sys.argv:
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))
os.truncate(file, 4096)
print(mapped[5_000])
"""


TOUCHES = """
import struct, threading, xxhash
from cqrepl.queue.files.atomics import Words
view = memoryview(mapped)
words = Words(view)
touch = {
    "slice": lambda: mapped[4096:20_000],
    "copy": lambda: bytes(view[:20_000]),
    "store": lambda: view.__setitem__(slice(5_000, 5_004), b"abcd"),
    "compare": lambda: view[4096:8192] == bytes(4096),
    "unpack": lambda: struct.unpack_from("<q", view, 5_000),
    "join": lambda: b"".join([view[:20_000]]),
    "hash": lambda: xxhash.xxh3_64_intdigest(view),
    "load": lambda: words.load_4(8192),
    "exchange": lambda: words.exchange_8(8192, 0, 1),
}[sys.argv[2]]
if "thread" in sys.argv:
    thread = threading.Thread(target=touch)
    thread.start()
    while thread.is_alive():
        sum(range(10_000))
else:
    touch()
"""


TOUCHING = ("slice", "copy", "store", "compare", "unpack", "join", "hash", "load", "exchange")


@pytest.mark.parametrize(
    ("touch", "thread"),
    [*((touch, []) for touch in TOUCHING), ("copy", ["thread"]), ("exchange", ["thread"])],
)
def test_t16_whatever_touches_what_was_cut(tmp_path: Path, touch: str, thread: list[str]) -> None:
    """In the middle of a copy or a hash, or while another thread has the interpreter."""
    program = PROGRAM.replace("print(mapped[5_000])", TOUCHES)
    file = tmp_path / "x.cq4"
    command = [sys.executable, "-P", "-c", program, str(file), touch, "install", "spare", *thread]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (4, f"a program: {file}: {CUT}\n")


def run(file: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-P", "-c", PROGRAM, str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_library_changes_nothing_by_itself(tmp_path: Path) -> None:
    assert run(tmp_path / "x.cq4") == (-signal.SIGBUS, "")


def test_without_a_descriptor(tmp_path: Path) -> None:
    code, said = run(tmp_path / "a file.cq4", "install")
    assert (code, said) == (4, f"a program: {tmp_path / 'a file.cq4'}: {CUT}\n")


def test_a_file_of_something_else(tmp_path: Path) -> None:
    """It is left to the handler before; or to the system."""
    assert run(tmp_path / "letters.txt", "install") == (-signal.SIGBUS, "")
    code, said = run(tmp_path / "letters.txt", "before", "install", "spare")
    assert code == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in said


def test_a_signal_that_is_sent(tmp_path: Path) -> None:
    program = "import os, signal; from cqrepl.kernel.memory import name_cut_files;"
    program += "name_cut_files('x', 4, 6); os.kill(os.getpid(), signal.SIGBUS)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGBUS, b"")


def test_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    """A hole of a mapped file, and no room for a page."""
    disk = tmp_path / "disk"
    program = """
import mmap, os, sys
from cqrepl.kernel.memory import name_cut_files
name_cut_files("a program", 4, 6)
with open(sys.argv[1], "w+b") as opened:
    os.truncate(opened.fileno(), 1 << 20)
    mapped = mmap.mmap(opened.fileno(), 0)
mapped[:] = b"x" * (1 << 20)
"""
    with small_file_system(disk, "64k"):
        command = [sys.executable, "-P", "-c", program, str(disk / "x.cq4")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 6
    expected = "expected room or bytes for a page, its disk is full or fails"
    assert done.stderr == f"a program: {disk / 'x.cq4'}: {expected}\n"


def test_a_store_file_is_looked_at_before_it_is_read(tmp_path: Path) -> None:
    """Between two batches: an error of its own, with the same code."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    command = [sys.executable, "-P", "-m", "cqrepl", "tail", str(path), "-f"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        os.truncate(noon_path(path), 8192)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert str(noon_path(path)) in said.decode().splitlines()[-1]
