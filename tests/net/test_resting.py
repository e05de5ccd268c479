"""A source at rest sees all that comes, though it only looks at words.

It never looks itself here: what it misses is never sent.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from cqrepl.net import writerpauser
from cqrepl.net.wordwatch import word_watch
from cqrepl.queue import Queue
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.surroundings import Surroundings
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    copied,
    eventually,
    joined,
)
from tests.support.samples import NOON_MS, fill, layout, noon_path
from wire.header import END_OF_FILE, NOT_COMPLETE

T = TypeVar("T")

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _rests_soon_and_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surroundings, "rest_after_seconds", 0.05)
    monkeypatch.setattr(writerpauser, "REST_SECONDS", 100 * SECONDS)


async def at_rest(count: int = 1) -> None:
    """Waits until so many connections rest."""
    await eventually(lambda: len(word_watch().watchers) == count)


async def at_rest_again(before: object) -> None:
    """Waits until the one connection has been awake since, and rests."""
    await eventually(lambda: before != word_watch().watchers != [])


@pytest.mark.parametrize("days", [0, 1, 3])
async def test_excerpts_and_rolls_after_a_rest(tmp_path: Path, days: int) -> None:
    """`days` lie between two excerpts: each in a cycle of its own, unless there are none."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 5})
    with Queue.open_for_append(original) as queue:
        async with joined(original, copy) as (source, _):
            for nth in range(1, 6):
                await at_rest()
                now_ms = NOON_MS + nth * days * DAY_MS
                await acked(source, queue.append(b"%d" % nth, now_ms=now_ms))
        await copied(original, copy)


@pytest.mark.parametrize(
    ("word", "days"), [(END_OF_FILE, 1), (END_OF_FILE, 3), (NOT_COMPLETE | 9, 0)]
)
async def test_what_a_writer_does_in_two_steps_with_a_rest_between(
    tmp_path: Path, word: int, days: int
) -> None:
    """It ends a file and begins the next one, or takes long to write an excerpt."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 5})
    with Queue.open_for_append(original) as queue:
        async with joined(original, copy) as (source, _):
            await at_rest()
            before = word_watch().watchers
            store_word(original, word)
            await at_rest_again(before)
            await acked(source, queue.append(b"x", now_ms=NOON_MS + days * DAY_MS))
        await copied(original, copy)


async def test_the_first_file_after_a_rest(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    with Queue.open_for_append(original, create=layout()) as queue:
        async with joined(original, copy) as (source, _):
            await at_rest()
            await acked(source, queue.append(b"first", now_ms=NOON_MS))
            await at_rest()
        await copied(original, copy)


async def test_each_of_many_queues_and_sinks(tmp_path: Path) -> None:
    names = [f"q{nth}" for nth in range(5)]
    paths = {name: tmp_path / name for name in names}
    copies = [{name: tmp_path / f"copy{host}" / name for name in names} for host in (2, 3)]
    for name in names[1:]:
        fill(paths[name], "FAST_DAILY", {0: 5})
    Queue.open_for_append(paths[names[0]], create=layout()).close()
    async with (
        serve_source(paths, listen=LOOPBACK, **BEATS) as source,
        serve_sink(copies[0], connect=at(source.port), **BEATS),
        serve_sink(copies[1], connect=at(source.port), host_id=3, **BEATS),
    ):
        for name in (*names, names[0]):
            await at_rest(2)
            with Queue.open_for_append(paths[name]) as queue:
                await acked(source, queue.append(name.encode(), now_ms=NOON_MS), name)
            for each in copies:
                await copied(paths[name], each[name])


async def test_heartbeats_go_on_during_a_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 5})
    async with joined(original, copy) as (source, sink):
        await at_rest()
        for pump in (*source.endpoint._live, *sink.endpoint._live):
            beats = trio.Event()
            for name in ("received", "receive_data"):  # by a task, or by a live pump
                noted = partial(note_and_receive, beats, getattr(pump.connection, name))
                monkeypatch.setattr(pump.connection, name, noted)
            await beats.wait()
            assert not pump.ended.is_set()
        await at_rest()


def note_and_receive(
    beats: trio.Event, receive: Callable[[T, float], None], what: T, now: float
) -> None:
    receive(what, now)
    beats.set()


def store_word(path: Path, word: int) -> None:
    """Put a word in the place of the next header of the first cycle."""
    with Queue.open(path) as queue:
        tailer = queue.tailer(queue.next_index())
        assert tailer.next_batch() is None
        stand = tailer.stand()
        assert stand is not None
    with noon_path(path).open("r+b") as file:
        file.seek(stand.position)
        file.write(word.to_bytes(4, "little"))
