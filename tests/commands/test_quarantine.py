"""`cqrepl repair --quarantine`, and what it refuses."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.invoke import Invoke, invoke
from tests.support.samples import fill, noon_index, read

__all__ = ["invoke"]

CUT = noon_index(sequence=3)
READER = """
import sys, cqrepl
queue = cqrepl.Queue.open(sys.argv[1])
tailer = queue.tailer()
next(iter(tailer))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 2})
    return tmp_path / "q"


@contextmanager
def reader_of(path: Path) -> Iterator[int]:
    """A process that reads a queue; its id."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        yield reader.pid
        reader.communicate(b"")


def test_it_says_what_would_go_and_does_it(path: Path, invoke: Invoke) -> None:
    said = invoke("repair", path, "--quarantine", hex(CUT))
    assert (said.exit_code, len(read(path))) == (0, 7)
    assert "2 excerpts" in said.stdout
    assert "nothing was changed" in said.stdout
    result = invoke("repair", path, "--quarantine", hex(CUT), "--apply", "--json")
    assert result.exit_code == 0
    fields = json.loads(result.stdout)
    assert fields["excerpts"] == 4
    assert fields["next_index"] == hex(CUT)
    assert [index for index, _ in read(path)] == [noon_index(sequence=n) for n in range(3)]
    assert len(read(Path(fields["folder"]))) == 4


def test_all_of_it(path: Path, invoke: Invoke) -> None:
    assert "7 excerpts" in invoke("repair", path, "--reseed", "--apply").stdout
    assert not read(path)


def test_a_process_that_reads_the_queue_is_in_the_way(path: Path, invoke: Invoke) -> None:
    with reader_of(path) as pid:
        result = invoke("repair", path, "--quarantine", hex(CUT), "--apply")
        assert result.exit_code == 5
        assert str(pid) in result.stderr
        assert len(read(path)) == 7
    assert invoke("repair", path, "--quarantine", hex(CUT), "--apply").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--quarantine", hex(noon_index(ahead=1, sequence=2))), 2),
        (("--quarantine", hex(noon_index(sequence=9))), 2),
        (("--quarantine", "yesterday"), 2),
        (("--quarantine", hex(CUT), "--reseed"), 2),
        (("--reseed", "--backup", "there"), 2),
    ],
)
def test_what_is_refused(path: Path, invoke: Invoke, words: tuple[str, ...], code: int) -> None:
    result = invoke("repair", path, *words, *(() if "--backup" in words else ("--apply",)))
    assert result.exit_code == code
    assert result.stderr
    assert len(read(path)) == 7
