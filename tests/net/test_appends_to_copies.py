"""A copy is appended to by its leader alone, unless the caller says that it knows better."""

import json
from pathlib import Path

import pytest

from cqrepl import AppendsToCopy, Queue
from cqrepl.replicator.source import serve_source
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import LOOPBACK, acked, joined
from tests.support.samples import NOON_MS, fill, read

__all__ = ["invoke"]


@pytest.fixture
async def copy(tmp_path: Path) -> Path:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
    return tmp_path / "copy"


async def test_an_append_to_a_copy_is_refused(copy: Path) -> None:
    with Queue.open(copy) as queue:
        for _ in range(2):
            with pytest.raises(AppendsToCopy, match="found a copy"):
                queue.append(b"other", now_ms=NOON_MS)
        with pytest.raises(AppendsToCopy, match=r"all the same; it comes from host 1"):
            queue.append_many([b"other"], now_ms=NOON_MS)
        with pytest.raises(AppendsToCopy):
            queue.appender().append([b"other"], NOON_MS)
    assert len(read(copy)) == 3


async def test_a_writer_that_is_open_when_the_queue_becomes_a_copy(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 2})
    with Queue.open(tmp_path / "copy") as queue:
        queue.append(fill(tmp_path / "as q", "FAST_DAILY", {0: 3})[2][1], now_ms=NOON_MS)
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
            await acked(source, last)
        with pytest.raises(AppendsToCopy):
            queue.append(b"other", now_ms=NOON_MS)


async def test_what_is_streamed_from_here_is_appended_to(copy: Path) -> None:
    """As of a copy that a host was made the source of."""
    async with serve_source({"q": copy}, listen=LOOPBACK):
        with Queue.open(copy) as queue:
            queue.append(b"more", now_ms=NOON_MS)
    assert len(read(copy)) == 4


async def test_info_says_whose_copy_it_is(copy: Path, invoke: Invoke) -> None:
    assert "copy        of host 1" in invoke("info", copy).stdout
    assert json.loads(invoke("info", copy, "--json").stdout)["copy"] == {"of": 1}
    assert "copy  " not in invoke("info", copy.parent / "q").stdout
    assert json.loads(invoke("info", copy.parent / "q", "--json").stdout)["copy"] is None
