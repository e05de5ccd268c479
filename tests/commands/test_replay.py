"""`cqrepl replay`: a range of a queue again, as a new queue, begun again after a kill."""

import json
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.support.invoke import Invoke

DAY_MS = 86_400_000
CYCLE = 19_675
FIRST = CYCLE << 32


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Three cycles: 5, 4 and 3 excerpts."""
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        for nth, count in enumerate((5, 4, 3)):
            payloads = [b"%d of %d" % (number, nth) for number in range(count)]
            queue.append_many(payloads, now_ms=(CYCLE + nth) * DAY_MS)
    return tmp_path / "q"


def held(path: Path) -> list[tuple[int, int, bytes]]:
    with Queue.open(path) as queue:
        return [(each.index >> 32, each.index & 0xFFFF, bytes(each)) for each in queue.tailer()]


def test_a_range_keeps_order_and_cycles(invoke: Invoke, queue: Path, tmp_path: Path) -> None:
    span = ("--from", f"{FIRST + 3:#x}", "--until", f"{FIRST + (1 << 32) + 1:#x}")
    result = invoke("replay", str(queue), str(tmp_path / "new"), *span)
    assert result.exit_code == 0, result.output
    assert result.stdout == "4 excerpts replayed, 0x4cdb00000003 to 0x4cdc00000001\n"
    assert held(tmp_path / "new") == [
        (CYCLE, 0, b"3 of 0"),
        (CYCLE, 1, b"4 of 0"),
        (CYCLE + 1, 0, b"0 of 1"),
        (CYCLE + 1, 1, b"1 of 1"),
    ]


def test_times_stand_for_cycles(invoke: Invoke, queue: Path, tmp_path: Path) -> None:
    span = ("--from-time", "2023-11-15T12:00Z", "--until-time", "2023-11-16T00:00Z")
    result = invoke("replay", str(queue), str(tmp_path / "new"), *span, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["excerpts"] == 4
    assert {cycle for cycle, _, _ in held(tmp_path / "new")} == {CYCLE + 1}


def test_it_is_begun_again_and_overwrites_nothing(
    invoke: Invoke, queue: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    with Queue.open(new, create="FAST_DAILY") as out:  # as a run that was killed leaves it
        out.append_many([b"%d of 0" % number for number in range(5)], now_ms=CYCLE * DAY_MS)
        out.append(b"0 of 1", now_ms=(CYCLE + 1) * DAY_MS)
    result = invoke("replay", str(queue), str(new), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["excerpts"], found["excerpts_before"]) == (6, 6)
    assert held(new) == held(queue)
    result = invoke("replay", str(queue), str(new), "--json")
    assert json.loads(result.stdout)["excerpts"] == 0
    for span in (("--from", f"{FIRST + 1:#x}"), ("--until", f"{FIRST + 1:#x}")):
        result = invoke("replay", str(queue), str(new), *span)
        assert result.exit_code == 2, result.output
        assert "found another one at 0x4cdb0000000" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert held(new) == held(queue)


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (("--from", "0x4cdb00000003", "--from-time", "2023-11-15"), "or times, found both"),
        (("--from-time", "2030-01-01"), "expected excerpts from"),
        (("--from", "0x4cdb00000003", "--until", "0x4cdb00000001"), "expected excerpts from"),
    ],
)
def test_what_cannot_be_replayed_makes_no_queue(
    invoke: Invoke, queue: Path, tmp_path: Path, span: tuple[str, ...], told: str
) -> None:
    result = invoke("replay", str(queue), str(tmp_path / "new"), *span)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert not (tmp_path / "new").exists()
    result = invoke("replay", str(queue), str(queue))
    assert result.exit_code == 2
    assert "expected another queue" in result.stderr
