"""`cqrepl bench` from end to end, each of its kinds with as little as it takes."""

import csv
import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.invoke import Invoke
from tests.support.processes import children_of, is_there
from tests.support.requirements import require

WAIT_SECONDS = 60
PERCENTILES = ("p50_us", "p90_us", "p99_us", "p99.9_us", "p99.99_us", "max_us")


def heed_interrupts() -> None:
    """Undoes what a shell does to what it runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the benchmarks put their queues in; empty again when they are done."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def found(invoke: Invoke, *arguments: object) -> list[dict[str, Any]]:
    result = invoke("bench", *arguments, "--json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    for line in lines:
        assert line["v"] == 1
        assert line["machine"]["cores"] >= 1
        assert line["machine"]["load_before"] >= 0
        for each in line["rounds"]:
            assert each["load"] >= 0
    return lines


def test_append(invoke: Invoke, folder: Path) -> None:
    (line,) = found(
        invoke, "append", "--size", "0,64", "--count", 1000, "--batch", 7, "--rounds", 2
    )
    cases = [(each["round"], each["size"], each["case"]) for each in line["rounds"]]
    assert cases == [
        (number, size, case)
        for number in (1, 2)
        for size in (0, 64)
        for case in ("batches of 7", "single")
    ]
    for each in line["medians"]:
        rate, took = each["medians"]["excerpts_per_s"], each["least"]["ns_per_excerpt"]
        assert rate <= each["greatest"]["excerpts_per_s"]
        assert rate <= 1e9 / took + 1
    assert list(folder.iterdir()) == []
    lines = invoke("bench", "append", "--count", 100, "--rounds", 2).stdout.splitlines()
    assert lines[1].startswith("append, medians of 2 rounds, load ")
    assert lines[3].split("  ")[0:2] == ["size", "case"]
    assert [line.split("  ")[0] for line in lines[4:]] == ["64 B", "64 B"]


def test_append_of_more_than_an_excerpt_may_have(invoke: Invoke, folder: Path) -> None:
    result = invoke("bench", "append", "--size", "1GiB", "--count", 1, "--batch", 1)
    assert result.exit_code == 2
    assert "1073741824 bytes" in result.stderr
    assert result.stdout == ""
    assert list(folder.iterdir()) == []


def test_tail(invoke: Invoke) -> None:
    (line,) = found(invoke, "tail", "--count", 3000, "--rounds", 1)
    cases = [each["case"] for each in line["medians"]]
    assert cases == ["columns (a copy)", "batches (views)", "single"]
    assert line["options"] == {"sizes": [64], "count": 3000, "rounds": 1}


def assert_drawn(place: Path, *names: str) -> None:
    """Checks the pictures that a run has made, and their numbers."""
    files = [name + suffix for name in names for suffix in (".csv", ".png", ".svg")]
    assert sorted(each.name for each in place.iterdir()) == sorted(files)
    for name in names:
        assert (place / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        rows = list(csv.reader((place / f"{name}.csv").read_text().splitlines()))
        assert rows[0][:2] == ["case", "size"]
        assert len(rows) > 1


@pytest.fixture
def drawing(tmp_path: Path) -> tuple[object, ...]:
    """The option that has pictures drawn."""
    if find_spec("matplotlib") is None:
        require("plot", "matplotlib is not installed")
    return "--plot", tmp_path / "plots"


@pytest.mark.parametrize("options", [(), ("--touched",)])
def test_replicate(
    invoke: Invoke, folder: Path, drawing: tuple[str, Path], options: tuple[str, ...]
) -> None:
    (line,) = found(invoke, "replicate", "--count", 1000, "--rounds", 1, *options, *drawing)
    (case,) = line["medians"]
    assert case["case"] == ("touched ahead" if options else "fresh")
    medians = case["medians"]
    assert medians["excerpts_per_s"] > 0
    assert medians["source_cpu_ns"] > 0 < medians["sink_cpu_ns"]
    assert list(folder.iterdir()) == []
    assert children_of(os.getpid()) == []
    assert_drawn(drawing[1], "catch-up", "replicate-rate")


def test_latency(invoke: Invoke, drawing: tuple[str, Path]) -> None:
    options = ("--count", 200, "--interval", "1ms", "--batch", 10, "--rounds", 1, *drawing)
    (line,) = found(invoke, "latency", *options)
    medians = line["medians"][0]["medians"]
    shown = [medians[name] for name in PERCENTILES]
    assert shown == sorted(shown)
    assert shown[0] > 0
    assert medians["sent_p50_us"] <= shown[0]  # it was sent when it was due, or later
    assert medians["excerpts_per_s"] > 0
    assert_drawn(drawing[1], "latency")


@pytest.mark.parametrize(
    ("sinks", "queues"), [("2", "3"), pytest.param("1,2", "1,3", marks=pytest.mark.long)]
)
def test_fan_out(invoke: Invoke, sinks: str, queues: str) -> None:
    options = ("--count", 200, "--rounds", 1, "--sinks", sinks, "--queues", queues)
    of_sinks, of_queues = found(invoke, "fan-out", *options)
    assert of_sinks["medians"][-1]["case"] == "2 sinks"
    assert of_queues["medians"][-1]["case"] == "3 queues"
    for value in ("source_cpu_s", "excerpts_per_s"):
        assert all(each["medians"][value] > 0 for each in of_sinks["medians"])


@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_interrupted_leaves_nothing(folder: Path, number: int, to_all: bool) -> None:
    """Ctrl-C reaches all processes of a terminal, what a service manager sends only the first."""
    command = [sys.executable, "-P", "-m", "cqrepl", "bench", "latency", "--count", "1000000"]
    environment = os.environ | {"TMPDIR": str(folder)}
    heeding = subprocess.Popen(
        command, env=environment, start_new_session=True, preexec_fn=heed_interrupts
    )
    with heeding as process:
        while not any(folder.rglob("*.cq4")):
            assert process.poll() is None
        children = children_of(process.pid)
        (os.killpg if to_all else os.kill)(process.pid, number)
        assert process.wait(WAIT_SECONDS) == 130
    assert not any(map(is_there, children))
    assert list(folder.iterdir()) == []


def test_a_failing_side_is_one_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqrepl.bench.catchup.NAME", "not a name")
    result = invoke("bench", "replicate", "--count", 10, "--rounds", 1)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("cqrepl bench: the cqrepl sink ended with exit code 2: ")
