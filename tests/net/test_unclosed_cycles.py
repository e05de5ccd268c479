"""A cycle that no writer has closed, though a later one holds excerpts: a source waits there as
each reader does, and says so."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.format.index import NEXT_OF_EMPTY
from cqrepl.queue.inspection import closedfiles
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from cqrepl.queue.read import stall
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.copies import assert_same
from tests.support.replicas import BEATS, LOOPBACK, at, eventually
from tests.support.samples import fill, noon_index, without_end_mark

TOLD = "cycle 19787 has no end-of-file mark and no writer, cycle 19788 holds excerpts"
LAST = noon_index(ahead=1, sequence=3)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a queue that a dead writer has left so."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 4})
    without_end_mark(tmp_path / "q")
    return tmp_path / "q"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if TOLD in message]


async def test_a_source_says_where_it_waits(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = path.parent / "copy"
    async with serve_source({"q": path}, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink({"q": copy}, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: bool(told(caplog)))
            assert "cqrepl repair QUEUE --apply" in told(caplog)[0]
            await eventually(lambda: sink.queues["q"].next_index == noon_index(sequence=5))
            apply(plan_repair(path))
            await source.wait_acked(LAST)
    assert_same(path, copy)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("is_held", [False, True])
def test_a_writer_that_is_at_it_has_its_time(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, is_held: bool
) -> None:
    monkeypatch.setattr(closedfiles, "STALL_SECONDS", 0.0)
    monkeypatch.setattr(stall, "is_held_elsewhere", lambda table, key: is_held)
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        found = []
        for _ in range(3):
            files.look(NEXT_OF_EMPTY)
            found.append(files.stall is not None)
    assert found == ([False] * 3 if is_held else [False, True, True])
