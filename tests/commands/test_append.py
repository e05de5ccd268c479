"""`cqrepl append`: what it takes from its standard input."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
from click.testing import Result

import wire
from cqrepl.queue import Queue
from tests.support.invoke import Invoke
from tests.support.samples import read

CQREPL = Path(sys.executable).with_name("cqrepl")
Append = Callable[..., Result]


@pytest.fixture
def append(invoke: Invoke, tmp_path: Path) -> Append:
    """Runs the command with a file as its standard input."""

    def run(path: Path, data: bytes, *options: object) -> Result:
        given = tmp_path / "given"
        given.write_bytes(data)
        with given.open("rb") as stdin:
            return invoke("append", path, *options, stdin=stdin)

    return run


def payloads(path: Path) -> list[bytes]:
    return [payload for _, payload in read(path)]


def test_lines_are_stored_as_they_are(append: Append, tmp_path: Path) -> None:
    assert append(tmp_path / "q", b"x\n").exit_code == 2
    assert not (tmp_path / "q").exists(), "a queue is only made where that is asked for"
    data = b"one\n\xff\x00 two\r\n\nlast without an end"
    result = append(tmp_path / "q", data, "--create", "FAST_DAILY")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("4 excerpts, last index 0x")
    assert payloads(tmp_path / "q") == [b"one", b"\xff\x00 two\r", b"\x8f", b"last without an end"]


def test_appending_goes_on(append: Append, queue: Path) -> None:
    before = read(queue)
    assert append(queue, b"").stdout == "0 excerpts\n"
    assert read(queue) == before
    result = append(queue, b"x\ny\n", "--json")
    found = read(queue)
    assert found[: len(before)] == before
    assert [payload for _, payload in found[len(before) :]] == [b"x", b"y"]
    line = json.loads(result.stdout)
    assert line == {"v": 1, "excerpts": 2, "bytes": 2, "index_last": hex(found[-1][0])}
    assert append(queue, b"1\n2\n", "--durability", "synced").exit_code == 0
    lines = b"".join(b"%d\n" % number for number in range(300))
    assert append(queue, lines, "--rate", "5000").exit_code == 0
    assert payloads(queue)[-302:] == [b"1", b"2", *lines.split()]


def test_other_forms(append: Append, tmp_path: Path) -> None:
    path = tmp_path / "q"
    prefixed = b"".join(
        len(one).to_bytes(4, "little") + one for one in (b"a\nb", b"", b"c" * 70_000)
    )
    append(path, prefixed, "--length-prefixed", "--create", "FAST_DAILY")
    append(path, b'{"a": [1, 2.5]}\n"text"\n', "--json-lines")
    append(path, b"all\nof\nit\n", "--whole")
    append(path, b"1\n2\n3\n", "--max", 2)
    assert payloads(path) == [
        b"a\nb", b"\x8f", b"c" * 70_000,
        wire.encode({"a": [1, 2.5]}), wire.encode("text"),
        b"all\nof\nit\n", b"1", b"2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "data", "said", "kept"),
    [
        (["--json-lines"], b"1\n{nonsense\n3\n", "expected JSON in line 2", 1),
        (["--length-prefixed"], b"\x01\0\0\0a\x09\0\0\0b", "at position 5", 1),
        (["--block-size", "256KiB"], b"x" * 65_537, "65537 bytes, expected at most 65536", 0),
        (["--create", "nonsense"], b"a\n", "expected the name of a roll cycle", 0),
        (["--create", "fast_daly"], b"a\n", "did you mean FAST_DAILY?", 0),
        (["--rate", "0"], b"a\n", "is not in the range", 0),
    ],
)
def test_what_is_wrong_is_said_and_what_came_before_stays(
    append: Append, queue: Path, options: list[str], data: bytes, said: str, kept: int
) -> None:
    before = len(read(queue))
    result = append(queue, data, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(read(queue)) == before + kept


def test_input_is_appended_as_it_comes(queue: Path) -> None:
    with Queue.open(queue) as opened:
        index = opened.next_index()
    with subprocess.Popen([CQREPL, "append", queue], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        with Queue.open(queue) as opened:
            assert opened.tailer(index).wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert payloads(queue)[-1] == b"first"


def feed(pipe: IO[bytes], first: bytes, then: bytes) -> None:
    """Writes until no process reads the pipe any more."""
    pipe.write(first)
    while True:
        pipe.write(then)
        pipe.flush()


@pytest.mark.parametrize("form", ["--lines", "--whole", "--length-prefixed"])
def test_no_more_is_read_than_an_excerpt_may_have(tmp_path: Path, form: str) -> None:
    """An endless line would take all memory; what stood before it is appended."""
    path, limit = tmp_path / "q", 64 << 10
    before = b"first\n" if form == "--lines" else b"\x05\0\0\0first"
    before = b"" if form == "--whole" else before
    options = ["--create", "FAST_DAILY", "--block-size", "256KiB", form]
    command = [str(CQREPL), "append", str(path), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with pytest.raises(BrokenPipeError):  # it ends, though there is more to come
            feed(process.stdin, before, b"\xff" * limit)
        said = process.stderr.read().decode()
        with suppress(BrokenPipeError):
            process.stdin.close()
    assert process.returncode == 2
    assert "Traceback" not in said
    assert f"at most {limit:,}" in said or f"at most {limit}" in said
    assert payloads(path) == ([b"first"] if before else [])


def test_a_document_that_is_framed_already_is_told(append: Append, tmp_path: Path) -> None:
    result = append(tmp_path / "q", wire.dumps({"a": 1}), "--whole", "--create", "FAST_DAILY")
    assert result.exit_code == 0
    assert "the first excerpt is a framed document" in result.stderr
    assert payloads(tmp_path / "q") == [wire.dumps({"a": 1})]
    assert append(tmp_path / "q", wire.encode({"a": 1}), "--whole").stderr == ""


def test_a_copy_is_appended_to_by_its_leader_alone(append: Append, queue: Path) -> None:
    with Queue.open(queue) as opened:
        opened.note_follower(is_follower=True)
    before = read(queue)
    refused = append(queue, b"other\n")
    assert refused.exit_code == 5
    assert "--to-copy" in refused.stderr
    assert read(queue) == before
    assert append(queue, b"more\n", "--to-copy").exit_code == 0
    assert len(read(queue)) == len(before) + 1
