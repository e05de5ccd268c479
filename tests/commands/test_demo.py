"""`cqrepl demo`: two processes, a cut between them, and the verdict."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from cqrepl import demo
from cqrepl.queue import format_index
from cqrepl.samplequeue import make_queue
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.invoke import Invoke
from tests.support.processes import children_of, is_there
from tests.support.samples import flip_byte, read

# it compares for ever, so that no signal is too late
ENDLESS = "import time; from cqrepl import demo; demo.difference = lambda *_: time.sleep(1000)"


def test_demo_says_identical(invoke: Invoke) -> None:
    result = invoke("demo", "--count", "3000", "--size", "100")
    assert result.exit_code == 0, result.output
    numbers, verdict = result.stdout.splitlines()
    assert re.fullmatch(r"3,000 excerpts in \d+\.\d s: [\d,]+ excerpts/s, [\d.,]+ MB/s", numbers)
    assert verdict == "identical"
    assert "connection cut; the sink dials again" in result.stderr
    assert "3,000 excerpts of 100 bytes written" in result.stderr


def test_json_and_keep(invoke: Invoke, tmp_path: Path) -> None:
    keep = tmp_path / "new" / "keep"
    result = invoke("demo", "--count", "2000", "--size", "7", "--json", "--keep", keep)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["v"] == 1
    assert (found["excerpts"], found["bytes"]) == (2000, 14_000)
    assert (found["identical"], found["difference"]) == (True, None)
    assert found["seconds"] > 0
    assert found["excerpts_per_second"] == pytest.approx(2000 / found["seconds"], rel=0.01)
    assert_same(keep / "source", keep / "sink")
    assert len(read(keep / "sink")) == 2000


@pytest.mark.parametrize(("count", "size"), [(1, 0), (2, 17 << 20)])
def test_odd_sizes_leave_nothing_behind(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # each process's interpreter says before the port that it ignores such a setting, ports and all
    monkeypatch.setenv("PYTHONWARNINGS", "nonsense:1")
    before = children_of(os.getpid())
    assert invoke("demo", "--count", count, "--size", size).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert children_of(os.getpid()) == before


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_keep_must_be_empty(invoke: Invoke, tmp_path: Path, kind: str) -> None:
    keep = tmp_path / "keep"
    if kind == "file":
        keep.write_text("mine")
    else:
        keep.mkdir()
        (keep / "letters").write_text("mine")
    result = invoke("demo", "--count", "10", "--keep", keep)
    assert result.exit_code == 2
    assert result.stderr == f"cqrepl demo: {keep}: an empty directory, or none, expected\n"
    assert len(list(tmp_path.rglob("*"))) == (1 if kind == "file" else 2)


def test_flipped_byte_is_exit_code_1(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicate = demo._run_processes

    async def and_damage(original: Path, copy: Path, count: int, size: int) -> float:
        seconds = await replicate(original, copy, count, size)
        (file,) = copy.glob("*.cq4")
        payload = read(copy)[1500][1]
        flip_byte(file, payload, len(payload) // 2)
        return seconds

    monkeypatch.setattr(demo, "_run_processes", and_damage)
    result = invoke("demo", "--count", "2000", "--json", "--keep", tmp_path / "keep")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["identical"] is False
    index = read(tmp_path / "keep" / "source")[1500][0]
    assert found["difference"].startswith(
        f"{format_index(index)}: excerpt: first byte that differs"
    )


def test_what_a_process_said_when_it_failed(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PAYLOAD_MAX", 100)
    monkeypatch.setattr(demo, "make_queue", lambda path, count, size: make_queue(path, count, 101))
    result = invoke("demo", "--count", "9", "--size", "10")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "cqrepl demo: the source ended with exit code 1"
    assert "has 101 bytes, expected at most 100" in result.stderr


async def test_its_processes_end_with_it_and_its_queues_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with commands(120, before=ENDLESS) as start:
        running = await start("demo", "--count", "400000")
        await running.says(re.compile("excerpts of 256 bytes written"))
        children = children_of(running.pid)
        running.send(signal.SIGTERM)
        assert await running.exit_code() == 130
        assert not any(is_there(child) for child in children)
        assert not list(tmp_path.iterdir())
        assert "Traceback" not in running.said
