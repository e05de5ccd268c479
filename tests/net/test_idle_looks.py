"""A host lists and reads nothing of a queue at rest where nothing has changed."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.format.index import Cycle, Index, Sequence, index_of
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk import diskend, syncer
from cqrepl.replicator.disk.auditshare import Reading, rest_seconds
from cqrepl.replicator.disk.diskend import LOOK_READ_SECONDS, DiskEnd
from cqrepl.replicator.disk.queueaudit import DIGEST_SECONDS, FOLLOW_SECONDS
from cqrepl.replicator.disk.syncer import AUDIT_REST, AUDIT_SECONDS, LOOK_SECONDS, Syncer
from cqrepl.replicator.outgoing.lineagedesk import (
    AUDITED_MAX,
    LineageDesk,
)
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.surroundings import Surroundings, within
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import fill, noon_path, read

COUNTS = {0: 30, 1: 40, 2: 4}


class Watched:
    """A queue, as a source watches it, but only when it is told to."""

    def __init__(self, queue: Queue, of: Syncer | None = None) -> None:
        self.damages: list[QueueDamaged] = []
        self.queue = queue
        self.disk: DiskEnd = (of or Syncer()).watch(
            "q",
            queue,
            queue.next_index,
            Chains(queue.cycles),
            self.damages.append,
            queue.check_name,
            is_proved=True,
        )

    def is_due(self) -> bool:
        """True when a look is due."""
        return self.disk.has_to_look

    async def rest(self) -> None:
        """Looks until there is no need to."""
        with trio.fail_after(60):
            while self.disk.has_to_look or self.disk.is_dirty:
                if self.disk.is_dirty:
                    await self.disk.sync()
                await self.disk.look()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    fill(tmp_path / "q", "FAST_DAILY", COUNTS)
    with Queue.open(tmp_path / "q") as queue:
        yield Watched(queue)


async def test_a_queue_at_rest_is_not_looked_at(watched: Watched) -> None:
    assert watched.is_due()
    await watched.rest()
    noted = watched.queue.cycles.closed.load().values()
    assert [bool(record.sha256) for record in noted] == [True, True]
    assert not watched.is_due()
    assert not watched.disk.has_to_audit


@pytest.mark.parametrize("how", ["gone", "another one", "moved", "the directory"])
async def test_a_name_that_has_changed_is_looked_at(
    watched: Watched, tmp_path: Path, how: str
) -> None:
    await watched.rest()
    file = noon_path(watched.queue.path, ahead=1)
    match how:
        case "gone":
            file.unlink()
        case "another one":
            (tmp_path / "other").write_bytes(file.read_bytes()[:-1])
            (tmp_path / "other").replace(file)
        case "moved":
            file.rename(file.with_suffix(".aside"))
        case "the directory":
            watched.queue.path.rename(tmp_path / "elsewhere")
    assert watched.is_due()
    if how in ("gone", "moved"):
        await watched.disk.look()
        assert watched.damages
        assert watched.is_due(), "until it is mended"


async def test_a_look_that_ends_early_is_told_and_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue is watched, whatever stood in the way of the look."""
    (watched.queue.path / CLOSED_FILE_NAME).mkdir()
    for _ in range(2):
        await watched.disk.look()
        assert watched.is_due()
    told = [record.getMessage() for record in caplog.records]
    assert ["not looked at to the end, which is tried again" in each for each in told] == [True]


async def test_what_is_written_into_a_file_has_its_turn(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.rest()
    os.truncate(noon_path(watched.queue.path, ahead=1), 0)
    assert not watched.is_due()
    monkeypatch.setattr(diskend, "FULL_LOOK_SECONDS", 0.0)
    assert watched.is_due()
    await watched.disk.look()
    assert "found a file without a header" in watched.damages[0].reason


@pytest.mark.parametrize(
    ("ago_ns", "whole_seconds", "is_trusted"),
    [
        (diskend.TICK_NS - 1, False, False),
        (diskend.TICK_NS, False, True),
        (-1, False, False),
        (diskend.LONG_TICK_NS - 1, True, False),
        (diskend.LONG_TICK_NS, True, True),
    ],
)
async def test_a_directory_that_has_just_changed_is_looked_at_again(
    watched: Watched, *, ago_ns: int, whole_seconds: bool, is_trusted: bool
) -> None:
    """It may change once more, and have the same time of change."""
    await watched.rest()
    path, changed_ns = watched.queue.path, 1_700_000_000_000_000_000 + (not whole_seconds)

    class Clock(Surroundings):
        def wall_ns(self) -> int:
            return changed_ns + ago_ns

    os.utime(path, ns=(changed_ns, changed_ns))
    with within(Clock()):
        await watched.disk.look()
        noon_path(path, ahead=1).unlink()
        os.utime(path, ns=(changed_ns, changed_ns))
        assert watched.is_due() is not is_trusted
        if not is_trusted:
            await watched.disk.look()
            assert watched.damages


async def test_a_running_pair_mends_what_is_written_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(diskend, "FULL_LOOK_SECONDS", 1.0)
    written = fill(tmp_path / "q", "FAST_DAILY", COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        disk = source.queues["q"].disk
        assert isinstance(disk, DiskEnd)
        await eventually(lambda: not disk.has_to_look)
        file = noon_path(tmp_path / "q", ahead=1)
        os.truncate(file, 0)
        aside = tmp_path / "q" / "quarantine"
        await eventually(lambda: any(aside.glob(f"*/{file.name}")) and file.exists())
    assert read(tmp_path / "q") == written


LOOKS = (LOOK_READ_SECONDS + DIGEST_SECONDS) / LOOK_SECONDS
times = st.floats(1e-6, 100.0)


@given(times, st.floats(0.0, 1.0))
def test_with_no_closed_cycle_left_all_is_15_percent_at_most(took_s: float, ran: float) -> None:
    ran_s = ran * took_s
    rest_s = rest_seconds(Reading(took_s, ran_s, 0), AUDIT_SECONDS)
    assert ran_s / (took_s + rest_s) + LOOKS <= 0.150001
    assert rest_s >= AUDIT_SECONDS


@given(times, st.floats(0.8, 1.0), st.integers(1, 1000))
def test_with_one_left_it_is_half_a_core_at_most(took_s: float, ran: float, left: int) -> None:
    ran_s = ran * took_s
    rest_s = rest_seconds(Reading(took_s, ran_s, left), AUDIT_SECONDS)
    assert ran_s / (took_s + rest_s) + LOOKS <= 0.500001
    usual_s = rest_seconds(Reading(took_s, ran_s, 0), AUDIT_SECONDS)
    assert rest_s < usual_s


@given(times, st.floats(0.0, 0.7), st.integers(0, 1000))
def test_what_had_to_wait_holds_nothing_up(took_s: float, ran: float, left: int) -> None:
    crowded = Reading(took_s, ran * took_s, left)
    least = Reading(took_s, ran * took_s, 0)
    assert rest_seconds(crowded, AUDIT_SECONDS) == rest_seconds(least, AUDIT_SECONDS)


def test_a_round_is_all_that_was_read_in_it() -> None:
    each = [Reading(0.01, 0.008, 0), Reading(0.02, 0.02, 3), Reading(0.0, 0.0, 1)]
    took_s, ran_s, left = Reading.of_round(each)
    assert (round(took_s, 6), round(ran_s, 6), left) == (0.03, 0.028, 3)
    assert Reading.of_round([]) == Reading()


async def test_where_nothing_has_come_rounds_are_rare() -> None:
    assert await Syncer()._audit_due([]) == syncer.AUDIT_SECONDS * AUDIT_REST
    assert FOLLOW_SECONDS / AUDIT_SECONDS + LOOKS <= 0.15


SHIFT = 32
CHAIN = bytes(16)


class EqualChains:
    """Of a queue whose copy is equal; it counts what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def at(self, index: int) -> bytes:
        self.asked.append(index)
        return CHAIN


class Desk:
    """A desk with some queues, and what it compares of them."""

    def __init__(self, count: int) -> None:
        self.queues = {
            Cid(cid): SimpleNamespace(
                cid=cid,
                shift=SHIFT,
                is_going_on=True,
                audited=0,
                queue=SimpleNamespace(chains=c, disk=SimpleNamespace(prove=lambda index: None)),
            )
            for cid, c in enumerate([EqualChains() for _ in range(count)], 1)
        }
        outgoing: Any = self.queues
        connection: Any = SimpleNamespace(has_events=False)
        returns: Any = None
        self._desk = LineageDesk(outgoing, returns, connection, Signal())

    def tell(self, cid: int, cycle: int) -> None:
        index = index_of(Cycle(cycle), Sequence(5), SHIFT)
        self._desk.note(ev.CopyAudited(cid=Cid(cid), name="q", index=index, chain=CHAIN))

    def asked(self) -> int:
        return sum(len(each.queue.chains.asked) for each in self.queues.values())

    def run(self, count: int) -> float:
        """Works until so much is compared; how long it rested meanwhile."""

        async def step(cid: Cid, do: Callable[[Any], Awaitable[None]]) -> None:
            await do(self.queues[cid])

        async def work() -> float:
            pump: Any = SimpleNamespace(wake=lambda: None, look=lambda: None)
            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._desk.work, pump, step)
                while self.asked() < count:
                    await trio.sleep(0.001)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            return trio.current_time() - begun

        return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0.05))


def test_a_queue_of_which_something_was_left_out_does_not_count_as_compared() -> None:
    desk = Desk(2)
    for cycle in range(AUDITED_MAX + 1):
        desk.tell(1, cycle)
    desk.tell(2, 0)
    desk.run(AUDITED_MAX + 1)
    assert desk.queues[Cid(1)].audited == 0
    assert desk.queues[Cid(2)].audited == index_of(Cycle(0), Sequence(5), SHIFT)


def test_of_one_cycle_the_last_that_was_told_is_compared() -> None:
    desk = Desk(1)
    desk.tell(1, 0)
    last = Index(index_of(Cycle(0), Sequence(5), SHIFT) + 3)
    desk._desk.note(ev.CopyAudited(cid=Cid(1), name="q", index=last, chain=CHAIN))
    desk.run(1)
    assert desk.queues[Cid(1)].queue.chains.asked == [last]
