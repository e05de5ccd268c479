"""Of many queues a source looks only at those that may have something to say beside their streams.

What is counted are looks, and not time.
"""

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cqrepl.kernel.board import AckLevel
from cqrepl.queue import Queue
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from cqrepl.replicator.sourcesession import SourceSession
from cqrepl.replicator.worddesk import ROUND
from tests.support.replicas import BEATS, LOOPBACK, at, eventually, more_excerpts
from tests.support.samples import fill, noon_index

COUNT = 40
NAMES = [f"q{number:02}" for number in range(COUNT)]
LIVE = NAMES[COUNT // 2]
TAILER = "replicated:reader"
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


@pytest.mark.usefixtures("has_pump")
async def test_one_live_queue_of_many(paths: dict[str, Path], tmp_path: Path) -> None:
    copies = {name: tmp_path / f"copy-{name}" for name in NAMES}
    async with serve_source(paths, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: all(committed(sink, name) == LAST for name in NAMES))
            words = session_of(source).words
            await eventually(lambda: not words.is_behind)
            rounds, looks = words.rounds, words.looks
            for nth in range(3, 8):
                more_excerpts(paths[LIVE], nth, 1)
                await eventually(partial(is_committed, sink, noon_index(sequence=nth)))
            rounds, looks = words.rounds - rounds, words.looks - looks
            assert 5 <= rounds <= looks <= rounds * (ROUND + 1)
            for name in NAMES:  # and none is forgotten
                if name != LIVE:
                    more_excerpts(paths[name], 3, 1)
            await eventually(lambda: all(committed(sink, name) > LAST for name in NAMES), 60)
            level = AckLevel.SYNCED
            source.board(LIVE).want(level)
            await source.board(LIVE).wait_acked(noon_index(sequence=7), level=level)


async def test_one_tailer_that_moves(paths: dict[str, Path], tmp_path: Path) -> None:
    """All queues are looked at, and then only where one has moved, for as long as it moves."""
    copies = {name: tmp_path / f"copy-{name}" for name in NAMES}
    async with serve_source(paths, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: all(committed(sink, name) == LAST for name in NAMES))
            session = session_of(source)
            with Queue.open(paths[LIVE]) as queue:
                tailer = queue.named_tailer(TAILER)
                # from here on nothing else runs: there is no wait
                session.tell_tailers()
                looks = [session.words.looks_at_tailers]
                for is_moved, only_moving in [(1, False), (1, True), (0, True), (0, True)]:
                    if is_moved:
                        tailer.move(noon_index(sequence=len(looks)))
                    assert session.tell_tailers(only_moving=only_moving) is bool(is_moved)
                    looks.append(session.words.looks_at_tailers)
            assert [after - before for before, after in pairwise(looks)] == [COUNT, 1, 1, 0]
