"""Of many queues a source looks only at those that may have something to say beside their streams.

What is counted are looks, and not time.
"""

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.net import sharedsocket
from cqrepl.net.livepump import LivePump
from cqrepl.protocol import source as protocol_source
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.levels import write_committed
from cqrepl.queue import Queue
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.tailerposition import TailerPosition
from cqrepl.queue.read.tailerpositions import TailerPositions
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.outgoing import outgoingframes, worddesk
from cqrepl.replicator.outgoing.outgoinglanes import TURN_LANES, OutgoingLanes
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.outgoing.toldtailers import TailerLooks
from cqrepl.replicator.outgoing.worddesk import ROUND
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.replicas import BEATS, LOOPBACK, SECONDS, at, eventually, more_excerpts
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
    async with joined(paths, tmp_path) as (source, _):
        session = session_of(source)
        with Queue.open(paths[LIVE]) as queue:
            tailer = queue.named_tailer(TAILER)
            # from here on nothing else runs: there is no wait
            session.tell_tailers(TailerLooks(all_names=False))
            looks = [session.words.looks_at_tailers]
            for is_moved, only_moving in [(1, False), (1, True), (0, True), (0, True)]:
                if is_moved:
                    tailer.move(noon_index(sequence=len(looks)))
                now = TailerLooks(all_names=False)
                assert session.tell_tailers(now, only_moving=only_moving) is bool(is_moved)
                looks.append(session.words.looks_at_tailers)
        assert [after - before for before, after in pairwise(looks)] == [COUNT, 1, 1, 0]


async def test_tailers_are_looked_at_once_for_all_sinks(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[TailerPositions]()
    look = TailerPositions.look

    def counted(self: TailerPositions, *, all_names: bool) -> list[TailerPosition]:
        looked.append(self)
        return look(self, all_names=all_names)

    async with joined(paths, tmp_path) as (source, _):
        copies = {name: tmp_path / f"other-{name}" for name in NAMES}
        connected = at(source.port)
        async with serve_sink(copies, connect=connected, host_id=3, **BEATS) as other:
            await eventually(lambda: all(committed(other, name) == LAST for name in NAMES))
            with Queue.open(paths[LIVE]) as queue:
                tailer = queue.named_tailer(TAILER)
                monkeypatch.setattr(TailerPositions, "look", counted)
                # from here on nothing else runs: there is no wait
                now = TailerLooks(all_names=False)
                tailer.move(noon_index(sequence=1))
                found = sessions_of(SourceSession, source.endpoint.sessions)
                assert [session.tell_tailers(now) for session in found] == [True, True]
                assert len(looked) == len(set(looked)) == COUNT


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
async def test_what_many_lanes_have_done_is_counted_in_turns(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have theirs between: a thread of the program, say, that waits for one of them."""
    found = set[int]()
    async with joined(paths, tmp_path) as (source, _):
        with monkeypatch.context() as patch, trio.fail_after(SECONDS):
            patch.setattr(SourceSession, "catch_up", lambda session: None)
            nth = 3
            while not found - {0}:  # the first ones, of queues at rest, are sent by the tasks
                before = counted(source)
                for name in NAMES:
                    more_excerpts(paths[name], nth, 1)
                while (count := counted(source) - before) < COUNT:
                    found.add(count)
                    await trio.sleep(0)
                nth += 1


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


async def test_a_file_that_is_waited_for_is_listed_once(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live pump may come back for other queues as often as it likes."""
    listed: list[Path] = []
    following = Cycles.following

    def noting(cycles: Cycles, cycle: Cycle) -> Cycle | None:
        listed.append(cycles.path)
        return following(cycles, cycle)

    monkeypatch.setattr(Cycles, "following", noting)
    path = tmp_path / "empty"
    Queue.open(path, create="FAST_DAILY").close()
    async with serve_source({"q": path}, listen=LOOPBACK) as source:
        queue = source.queues["q"]
        each = Outgoing(queue, queue.marks_of(2), Cid(1))
        with closing(each.tail(0)) as tailer:
            word = each.awaited_file(tailer)
            assert word is not None
            listed.clear()
            assert each.awaited_file(tailer) is word
            assert not listed
            more_excerpts(path, 0, 1)
            assert word.has_changed
            assert each.awaited_file(tailer) is None  # as it is there
            assert listed


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


async def test_many_that_are_behind_have_their_turns(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worddesk, "BEHIND_ROUND", 2)
    async with joined(paths, tmp_path) as (source, _):
        words = session_of(source).words
        await eventually(lambda: not words.is_behind, 60)


async def test_one_queue_stands_for_all_that_are_still_behind(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source asks with each thing that happens whether a sink has everything."""
    asked, has_target = [], SourceSession.has_target

    def counted(session: SourceSession, each: Outgoing) -> bool:
        asked.append(each.queue.name)
        return has_target(session, each)

    monkeypatch.setattr(SourceSession, "has_target", counted)
    copies = {name: tmp_path / f"copy-{name}" for name in NAMES}
    async with serve_source(paths, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            await source.wait_caught_up()
            session = session_of(source)
            began = len(asked)
            assert session.is_caught_up
            assert sorted(asked[began:]) == NAMES
            del asked[:]
            monkeypatch.setattr(
                SourceSession,
                "has_target",
                lambda self, each: each.queue.name != LIVE and counted(self, each),
            )
            assert not any(session.is_caught_up for _ in range(COUNT))
            assert len(asked) < COUNT  # the look for it, once
            assert session.has_one_under_way


class Unlisted(dict[Cid, Outgoing]):
    """Queues of which one may be looked up, and not all."""

    def values(self) -> NoReturn:
        raise AssertionError("all queues were listed")


async def test_what_lanes_have_done_is_asked_of_those_that_were_lent(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    async with joined(paths, tmp_path) as (source, _):
        session = session_of(source)
        lanes = OutgoingLanes(session, Unlisted(session.outgoing), session.words._connection)
        lanes.catch_up()
        lanes.leave()
        with pytest.raises(AssertionError, match="listed"):
            lanes.lend()


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


async def test_one_that_seldom_streams_waits_for_none_that_always_do(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(paths, tmp_path) as (source, sink):
        words = session_of(source).words
        await eventually(lambda: not words.is_behind)
        monkeypatch.setattr(worddesk, "COMMITS_PER_S", 0)  # but for what is given here
        words._tokens = 0.0
        for nth in (3, 4):
            names = [name for name in NAMES if nth == 4 or name != LIVE]
            for name in names:
                more_excerpts(paths[name], 3 if name == LIVE else nth, 1)
            for name in names:
                await eventually(partial(has_all, source, name, last_of(paths[name])))
            session_of(source).catch_up()
            if nth == 3:
                words._tokens = float(COUNT)
                words.tell_levels()
                words._tokens = 0.0
        assert set(NAMES) <= words._touched.keys()
        monkeypatch.setattr(worddesk, "TOUCHED_ROUND", 1)
        commits = Commits(monkeypatch)
        words._tokens = 1.0
        words.tell_levels()
        assert commits.count == 1
        await eventually(partial(is_committed, sink, last_of(paths[LIVE])))


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


def last_of(path: Path) -> int:
    with Queue.open(path) as queue:
        return queue.next_index() - 1


class LanesPerStep(trio.abc.Instrument):
    """Counts the lanes that are asked at one go, in turns and besides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of_source: LivePump | None) -> None:
        self.found: list[int] = []  # of each step that has asked any in turns
        self.looks = self.in_vain = 0  # that nothing was handed over; of all lanes all the same
        self._in_step = 0
        self._has_none = False
        catch_up_one, catch_up = OutgoingLanes._catch_up, SourceSession.catch_up
        handed_over = LivePump.handed_over

        def noted_one(lanes: OutgoingLanes, *arguments: Any) -> bool:
            has_told = catch_up_one(lanes, *arguments)
            self._in_step += has_told
            return has_told

        def noted_all(session: SourceSession, only: str | None = None) -> None:
            before = self._in_step
            self.in_vain += self._has_none and only is None
            catch_up(session, only)
            self._in_step = before

        def noted_documents(pump: LivePump) -> bytes:
            documents = handed_over(pump)
            self._has_none = pump is of_source and not documents
            self.looks += self._has_none
            return documents

        def noted_back(lanes: OutgoingLanes) -> None:
            before = self._in_step
            leave(lanes)
            self._in_step = before

        leave = OutgoingLanes.leave
        monkeypatch.setattr(OutgoingLanes, "leave", noted_back)
        monkeypatch.setattr(OutgoingLanes, "_catch_up", noted_one)
        monkeypatch.setattr(SourceSession, "catch_up", noted_all)
        monkeypatch.setattr(LivePump, "handed_over", noted_documents)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._in_step, self._has_none = 0, False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._in_step:
            self.found.append(self._in_step)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
async def test_few_lanes_are_asked_at_one_go(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the program whose excerpt is acknowledged waits for no more than two; all at once
    are asked only before something that came behind what they have done."""
    async with joined(paths, tmp_path) as (source, _):
        await eventually(lambda: not session_of(source).words.is_behind)
        (pump,) = source.endpoint._live
        assert pump._shared.live is not None
        bell = pump._shared.live._control.bell
        steps = LanesPerStep(monkeypatch, pump._shared.live)
        trio.lowlevel.add_instrument(steps)
        with ExitStack() as stack:
            stack.callback(trio.lowlevel.remove_instrument, steps)
            queues = {name: stack.enter_context(Queue.open(paths[name])) for name in NAMES}
            while len(steps.found) < 5 or not steps.looks:
                indexes = {name: queue.append(b"one") for name, queue in queues.items()}
                for name, index in indexes.items():
                    await eventually(partial(has_all, source, name, index))
                os.eventfd_write(bell, 1)  # with nothing to hand over
                await trio.sleep(0.01)
        assert max(steps.found) <= TURN_LANES
        assert not steps.in_vain
