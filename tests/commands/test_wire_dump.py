"""`wire-dump` as a process: what it prints and ends with, files that grow, and its limits."""

import errno
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cqrepl.console.exitcodes import DAMAGED, USAGE
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.goldens import manifest, unpack

COMMAND = [sys.executable, "-c", "from cqrepl.cli.wiredump import main; main()"]
ONE = bytes.fromhex("04000000c161a101")
ONE_TEXT = "# position: 0, header: 0x00000004 data, 4 bytes\n--- !!data #binary\na: 1\n"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """33 excerpts with the indexes 0x4d4b00000000 to 0x4d4b00000020."""
    return unpack("fast_daily_basic", tmp_path) / "20240305F.cq4"


def run(*arguments: str, stdin: bytes = ONE, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, stderr=subprocess.PIPE, check=False, **options
    )


def test_real_process_prints_and_exits() -> None:
    done = run("-", stdin=ONE + b"\x01", stdout=subprocess.PIPE)
    assert done.returncode == DAMAGED
    assert done.stdout.decode() == ONE_TEXT
    assert done.stderr.decode() == (
        "wire-dump: standard input: a header of 4 bytes was expected, 1 came at position 8\n"
    )


def test_output_in_a_narrow_encoding_is_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("-", stdin=b"\x01\0\0\0\x83", stdout=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.rstrip().endswith(b"\\xb7")


def test_closed_pipe_ends_quietly() -> None:
    with subprocess.Popen(
        [*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(ONE * 1000)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_full_disk_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = run("-", stdout=full)
    assert done.returncode == USAGE
    assert done.stderr.decode() == (f"wire-dump: standard output: {os.strerror(errno.ENOSPC)}\n")


@pytest.mark.parametrize(("redirection", "code"), [("<&-", USAGE), (">&-", 0)])
def test_closed_standard_streams_are_no_crash(redirection: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" - {redirection}', "sh", *COMMAND],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_control_characters_are_escaped_on_a_terminal(tmp_path: Path) -> None:
    body = b"x" * 40 + b"\x1b[2J"
    master, slave = os.openpty()
    try:
        done = run("-", stdin=struct.pack("<I", len(body)) + body, stdout=slave)
        os.close(slave)
        shown = os.read(master, 4096)
    finally:
        os.close(master)
    assert done.returncode == 0
    assert b"xx\\x1B[2J" in shown


def test_a_terminal_is_refused_for_bytes() -> None:
    controller, terminal = os.openpty()
    command = [*COMMAND, "--encode"]
    done = subprocess.run(
        command, input=b"a: 1", stdout=terminal, stderr=subprocess.PIPE, check=False
    )
    os.close(controller)
    os.close(terminal)
    assert done.returncode == 2
    assert b"a terminal came" in done.stderr


# ---------------------------------------------------------------- growing files


@contextmanager
def start(*arguments: str | Path) -> "Iterator[subprocess.Popen[str]]":
    """A running command, killed at the end of the block if it still runs."""
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: "subprocess.Popen[str]", pattern: str) -> str:
    assert process.stdout is not None
    text = ""
    while not re.search(pattern, text):
        line = process.stdout.readline()
        assert line, f"ended without {pattern}: {text}"
        text += line
    return text


def test_directory_is_followed_across_cycles(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("TEST_SECONDLY"))) as queue:
        appender = queue.appender()
        appender.append([b"first"], NOW_MS)
        with start("--follow", "--no-index-pages", path) as process:
            assert "index 0x" in read_until(process, "\nfirst\n")
            appender.append([b"second"], NOW_MS)
            read_until(process, "^second\n|\nsecond\n")
            appender.append([b"third"], NOW_MS + 5000)
            text = read_until(process, "\nthird\n")
            assert "header: 0xc0000000 end of file\n" in text
            process.send_signal(2)
            assert process.wait(60) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""


def test_file_that_a_dead_writer_left_open_is_left_behind(tmp_path: Path) -> None:
    queue = unpack("missing_eof_middle", tmp_path)
    indexes = [f"{index:#x}" for index in manifest("missing_eof_middle").indexes]
    with start("--follow", "--json", queue) as process:
        text = read_until(process, f'"index":"{indexes[-1]}"')
    assert re.findall(r'"index":"(\w+)"', text) == indexes


def test_file_is_followed_to_its_end_mark(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("TEST_SECONDLY"))) as queue:
        appender = queue.appender()
        appender.append([b"first"], NOW_MS)
        (file,) = path.glob("*.cq4")
        with start("--follow", "--json", file) as process:
            read_until(process, "first")
            appender.append([b"second"], NOW_MS + 5000)
            assert "end of file" in read_until(process, "end of file")
            assert process.wait(60) == 0


# ---------------------------------------------------------------- limits


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of 150 MB, with one document of 100 MB, in an address space of 256 MB."""
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.write(struct.pack("<I", 100 << 20))
        file.truncate(4 + (100 << 20))
        file.seek(0, os.SEEK_END)
        for _ in range(50):
            file.write((struct.pack("<I", 1020) + b"\x83" * 1020) * 1024)
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28)); {COMMAND[2]}"
    )
    for option in ([], ["--json"]):
        with open(os.devnull, "wb") as nowhere:
            done = subprocess.run(
                [sys.executable, "-c", limited, *option, "--max", "9000", str(big)],
                stdout=nowhere,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_document_is_shown_before_the_next_one_has_come(store: Path) -> None:
    """Nothing is read to its end before something is shown: the input stays open here."""
    data = store.read_bytes()
    end = 4 + (int.from_bytes(data[:4], "little") & 0x3FFFFFFF)
    with subprocess.Popen([*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shown:
        assert shown.stdin is not None
        assert shown.stdout is not None
        shown.stdin.write(data[: end + 100])  # and a part of the second one
        shown.stdin.flush()
        shown_whole = run(str(store), stdin=b"", stdout=subprocess.PIPE).stdout.decode()
        first = shown_whole.partition("# position: ")[2].partition("# position: ")[0]
        wanted = f"# position: {first}".encode()
        assert shown.stdout.read(len(wanted)) == wanted
        shown.kill()


def test_a_file_is_shown_without_loading_anything_slow(store: Path) -> None:
    """Most of the time until the first line is that for loading modules."""
    tail = "finally: import sys; print(*sys.modules, file=sys.stderr)"
    program = f"try: {COMMAND[2]}\n{tail}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split())
    assert {"cqrepl.cli.wiredump", "cqrepl.dump.quickform"} <= loaded
    slow = {"trio", "asyncio", "ssl", "construct", "ruamel", "numpy", "pyarrow", "wire.grammar"}
    assert not loaded & (slow | {"cqrepl.net", "cqrepl.protocol", "cqrepl.spark"})
