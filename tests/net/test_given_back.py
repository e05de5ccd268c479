"""A store file comes back while two copies are compared: what was said before does not count."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.format.index import Index
from cqrepl.replicator.agreement import lineage
from cqrepl.replicator.outgoing import lineagedesk
from tests.support.copies import assert_same
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import fill, noon_index, noon_path

ROLL = "FAST_DAILY"
COUNTS = {0: 5, 1: 30, 2: 7}


async def two_copies(tmp_path: Path) -> None:
    """Make two copies that hold the same, and of which nothing is noted."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    for name in ("q", "copy"):
        (tmp_path / name / CLOSED_FILE_NAME).unlink(missing_ok=True)


def taken(tmp_path: Path, side: str, ahead: int) -> Callable[[], None]:
    """Takes a store file away; puts it back."""
    file, aside = noon_path(tmp_path / side, ahead=ahead), tmp_path / "aside"
    file.rename(aside)

    def put_back() -> None:
        if aside.exists():
            aside.rename(file)

    return put_back


@pytest.mark.parametrize("ahead", [0, 1], ids=["lowest", "middle"])
@pytest.mark.parametrize("side", ["q", "copy"])
async def test_it_is_no_difference_once_it_is_back(
    tmp_path: Path, side: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missing when the offer and the answer are made, and back when they are compared."""
    await two_copies(tmp_path)
    put_back = taken(tmp_path, side, ahead)
    looks: list[Callable[..., object]] = [lineage.check_begin, lineage.check_lineage]
    for look in looks:

        def back_by_then(*claimed: object, look: Callable[..., object] = look) -> object:
            put_back()
            return look(*claimed)

        monkeypatch.setattr(lineagedesk, look.__name__, back_by_then)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: source.queues["q"].acknowledged == noon_index(ahead=2, sequence=6))
        assert not source.stops + sink.stops
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_nor_while_the_stream_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The source's first answer to what the sink has read is wrong, as of a file that has gone."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    asked: list[Index] = []
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        chains = source.queues["q"].chains
        right = chains.at

        def wrong_once(index: Index) -> bytes:
            asked.append(index)
            return bytes(16) if len(asked) == 1 else right(index)

        monkeypatch.setattr(chains, "at", wrong_once)
        await eventually(lambda: len(asked) > 1)
        with Queue.open_for_append(tmp_path / "q") as queue:
            queue.appender().append_at(ExcerptBatch.of(Index(written[-1][0] + 1), [b"more"]))
        await acked(source, written[-1][0] + 1)
        before = len(asked)
        await eventually(lambda: len(asked) > before)  # it is read and compared on
        assert not source.stops + sink.stops
    assert "diverged" not in caplog.text
    assert_same(tmp_path / "q", tmp_path / "copy")
