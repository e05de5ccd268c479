"""Of many queues a source looks only at those that may have something to say beside their streams.

What is counted are looks, and not time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.net import sharedsocket
from cqrepl.protocol import source as protocol_source
from cqrepl.protocol.messages.levels import write_committed
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.outgoing import outgoingframes, worddesk
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.outgoing.worddesk import ROUND
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.replicas import BEATS, LOOPBACK, at, eventually, more_excerpts
from tests.support.samples import fill, noon_index

COUNT = 20
NAMES = [f"q{number:02}" for number in range(COUNT)]
LIVE = NAMES[COUNT // 2]
LAST = noon_index(sequence=2)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    for name in NAMES:
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
    return {name: tmp_path / name for name in NAMES}


def session_of(source: Source) -> SourceSession:
    (session,) = sessions_of(SourceSession, source.endpoint.sessions)
    return session


def committed(sink: Sink, name: str) -> int:
    return sink.queues[name].beyond.committed


def is_committed(sink: Sink, index: int) -> bool:
    return committed(sink, LIVE) == index


@asynccontextmanager
async def joined(paths: dict[str, Path], tmp_path: Path) -> AsyncIterator[tuple[Source, Sink]]:
    """A source and its sink, which has heard that all it has is safe."""
    copies = {name: tmp_path / f"copy-{name}" for name in NAMES}
    async with serve_source(paths, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: all(committed(sink, name) == LAST for name in NAMES))
            yield source, sink


@pytest.mark.usefixtures("has_pump")
async def test_one_live_queue_of_many(paths: dict[str, Path], tmp_path: Path) -> None:
    async with joined(paths, tmp_path) as (source, sink):
        words = session_of(source).words
        await eventually(lambda: not words.is_behind)
        rounds, looks = words.rounds, words.looks
        for nth in range(3, 8):
            more_excerpts(paths[LIVE], nth, 1)
            await eventually(partial(is_committed, sink, noon_index(sequence=nth)))
        rounds, looks = words.rounds - rounds, words.looks - looks
        at_once = 2 * 5  # as more was safe, whatever round it was, and once more behind each
        assert 5 <= looks <= rounds * (ROUND + 1) + at_once
        for name in NAMES:  # and none is forgotten
            if name != LIVE:
                more_excerpts(paths[name], 3, 1)
        await eventually(lambda: all(committed(sink, name) > LAST for name in NAMES), 60)
        level = AckLevel.SYNCED
        source.board(LIVE).want(level)
        await source.board(LIVE).wait_acked(noon_index(sequence=7), level=level)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
async def test_what_a_pump_has_handed_over_counts_though_it_comes_back_meanwhile(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink's word of its files comes while the lanes are counted, and that never ends here."""
    came: list[str] = []

    async def interrupted(session: SourceSession) -> None:
        came.append("rings")
        session._pump.call_back()
        await trio.sleep_forever()

    async with joined(paths, tmp_path) as (source, _):
        with monkeypatch.context() as patch:
            patch.setattr(SourceSession, "catch_up_in_turns", interrupted)
            (each,) = (
                one for one in session_of(source).outgoing.values() if one.queue.name == LIVE
            )
            for nth in range(3, 6):
                more_excerpts(paths[LIVE], nth, 1)
                await eventually(partial(is_audited, each, noon_index(sequence=nth + 1)))
    assert came


def is_audited(each: Outgoing, index: int) -> bool:
    return each.audited == index


def counted(source: Source) -> int:
    """The number of excerpts that are known to have been sent."""
    return sum(queue.counters.sent.excerpts for queue in source.queues.values())


async def test_the_tasks_look_where_something_has_come(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queues that begin one after the other, and of those that have begun: no more looks than
    things that came, however often the tasks run."""
    monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    monkeypatch.setattr(outgoingframes, "LOOKS_PER_SECOND", 0.01)  # those by the clock apart
    monkeypatch.setattr(outgoingframes, "LOOK_SECONDS_MAX", 1000.0)
    async with joined(paths, tmp_path) as (source, sink):
        frames = session_of(source).frames
        assert COUNT <= frames.looks <= 4 * COUNT
        looks = frames.looks
        for nth in range(3, 6):
            more_excerpts(paths[LIVE], nth, 1)
            await eventually(partial(is_committed, sink, noon_index(sequence=nth)))
        assert 3 <= frames.looks - looks <= COUNT
        for name in NAMES:  # and none is forgotten
            if name != LIVE:
                more_excerpts(paths[name], 3, 1)
        await eventually(lambda: all(committed(sink, name) > LAST for name in NAMES), 60)


class Commits:
    """Counts the words of what is safe that a source writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def noting(index: int) -> bytes:
            self.count += 1
            return write_committed(index)

        monkeypatch.setattr(protocol_source, "write_committed", noting)


def has_all(source: Source, name: str, index: int) -> bool:
    return index in source.board(name).marks.values()


async def test_words_of_what_is_safe_have_one_rate_for_all_queues(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many queues stream, and none is left out."""
    async with joined(paths, tmp_path) as (source, sink):
        words = session_of(source).words
        await eventually(lambda: not words.is_behind)
        monkeypatch.setattr(worddesk, "COMMITS_PER_S", 20)
        monkeypatch.setattr(worddesk, "COMMITS_AT_ONCE", 5)
        commits, began = Commits(monkeypatch), trio.current_time()
        for nth in range(3, 13):
            for name in NAMES:
                more_excerpts(paths[name], nth, 1)
            for name in NAMES:
                await eventually(partial(has_all, source, name, noon_index(sequence=nth)))
            await trio.sleep(0.06)  # all are looked at, if there is no rate
        told, seconds = commits.count, trio.current_time() - began
        assert 0 < told <= 5 + 20 * seconds
        assert words.commits >= told
        monkeypatch.setattr(worddesk, "COMMITS_AT_ONCE", 100)
        monkeypatch.setattr(worddesk, "COMMITS_PER_S", 2000)
        last = noon_index(sequence=12)
        await eventually(lambda: all(committed(sink, name) == last for name in NAMES), 60)


async def test_a_level_that_is_waited_for_is_told_whatever_the_rate(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(paths, tmp_path) as (source, _):
        words = session_of(source).words
        monkeypatch.setattr(worddesk, "COMMITS_PER_S", 0)
        words._tokens = 0.0
        level = AckLevel.SYNCED
        for name in NAMES:
            source.board(name).want(level)
        handlers = [
            session_of(source)._connection.source(each.cid)
            for each in session_of(source).outgoing.values()
        ]
        await eventually(lambda: all(level in handler._wanted for handler in handlers))
