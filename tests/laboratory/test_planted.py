"""Faults put in on purpose: the laboratory finds each, and tells a story of it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.net.livepump import Came, LivePump
from cqrepl.protocol.events import AppendExcerpts
from cqrepl.protocol.framer import Framing
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.messages.levels import write_level
from cqrepl.protocol.sink import SinkHandler
from cqrepl.queue import Queue
from cqrepl.queue.files.syncedmark import NOTHING_DOUBTFUL
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.queue.write import retention
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.disk.syncedfiles import SyncedFiles
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.marks.hostmarks import HostMarks
from cqrepl.replicator.outgoing.lineagedesk import LineageDesk
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import monotonic
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan
from cqrepl.testing.safewaits import NOT_COVERED
from cqrepl.testing.shortener import shortened
from cqrepl.testing.transcript import transcript
from tests.support.schedules import schedule

SEEDS = 200
SECONDS = 30.0

Patch = pytest.MonkeyPatch


def acknowledged_before_it_is_stored(patch: Patch) -> None:
    """An excerpt on its way into the queue is acknowledged, whatever becomes of it."""
    store = SinkSession._store
    patch.setattr("cqrepl.net.sharedsocket.pump_for", lambda *_: None)

    async def early(self: SinkSession, event: Any) -> None:
        if isinstance(event, AppendExcerpts):
            self._connection.sink(event.cid).stored(event.batch.index_last, event.ns)
            vars(self._connection)["tell_stored"] = lambda *_: None  # not again afterwards
            self._pump.wake()
            await trio.sleep(0.1)
        try:
            await store(self, event)
        finally:
            vars(self._connection).pop("stored", None)

    patch.setattr(SinkSession, "_store", early)


def unsent_bytes_are_lost(patch: Patch) -> None:
    """The bytes that a native pump could not send any more are forgotten."""
    run = LivePump.run

    async def careless(self: LivePump, *arguments: Any, **options: Any) -> Came:
        return (await run(self, *arguments, **options))._replace(unsent=b"")

    patch.setattr(LivePump, "run", careless)
    patch.setattr("cqrepl.testing.labmachine.SHARE_LATE", 1.0)  # found with fewer seeds


def stored_otherwise_than_it_was_sent(patch: Patch) -> None:
    """A bit changes on its way into a copy, and no host compares what is there."""
    patch.setattr(LineageDesk, "note", lambda *_: None)


def cids_come_from_a_clock(patch: Patch) -> None:
    """Two hosts that look at a clock in the same second choose the same."""
    patch.setattr(
        ConnectionConfig, "own_cid_first", property(lambda _: 1_700_000_000 + int(monotonic()))
    )


def the_last_acknowledgement_waits_for_ever(patch: Patch) -> None:
    """An acknowledgement goes out with the next one: a timer for the last one never fires."""
    patch.setattr("cqrepl.net.sharedsocket.pump_for", lambda *_: None)
    stored = SinkHandler.stored
    waiting: dict[int, tuple[int, int]] = {}

    def late(self: SinkHandler, index_last: int, ns: int) -> None:
        before = waiting.pop(id(self), None)
        waiting[id(self)] = (index_last, ns)
        if before is not None:
            stored(self, *before)

    patch.setattr(SinkHandler, "stored", late)


def headers_are_trusted_after_a_power_cut(patch: Patch) -> None:
    """The excerpts of a copy count, by its headers, as those of the source: nothing is compared."""
    patch.setattr("cqrepl.replicator.outgoing.lineagedesk.check_lineage", lambda *_: None)
    patch.setattr(LineageDesk, "note", lambda *_: None)


def a_mark_comes_from_the_next_index_alone(patch: Patch) -> None:
    """A sink's word counts from then on, whether the source holds such an excerpt or not."""
    patch.setattr(Queue, "last_index_before", lambda _, index: index - 1)
    patch.setattr(SourceQueue, "_lower_marks", lambda *_, **__: None)


def a_run_is_not_what_the_store_file_has(patch: Patch) -> None:
    """The last byte of a run is another one."""
    patch.setattr("cqrepl.net.sharedsocket.pump_for", lambda *_: None)
    write = Framing._run

    def careless(self: Framing, *arguments: Any) -> int:
        end = write(self, *arguments)
        arguments[4][end - 1] ^= 1
        return end

    patch.setattr(Framing, "_run", careless)


def what_was_given_back_stays_unproved(patch: Patch) -> None:
    """A copy does not take it for proved that its source took what it gave back."""
    patch.setattr(SinkHandler, "_return_taken", lambda _: None)


def what_was_compared_stays_unproved(patch: Patch) -> None:
    """Nor that it holds what its source has compared."""
    patch.setattr(DiskEnd, "prove", lambda *_: None)


def the_next_index_is_one_too_many(patch: Patch) -> None:
    """A copy asks its source for what comes behind the excerpt that it needs."""
    answer = SinkQueue.answer_from

    def late(self: SinkQueue, offered: int, *, is_compared: bool) -> Index:
        needed = answer(self, offered, is_compared=is_compared)
        return Index(needed + 1) if NEXT_OF_EMPTY < needed < offered else needed

    patch.setattr(SinkQueue, "answer_from", late)


def gc_looks_at_one_host(patch: Patch) -> None:
    """Files go that the first host has, whatever others lack."""
    hosts = retention._hosts

    def first(*arguments: Any) -> list[tuple[str, int]]:
        return list(hosts(*arguments))[:1]

    patch.setattr(retention, "_hosts", first)


def the_mark_of_the_disk_comes_before_the_sync(patch: Patch) -> None:
    """Excerpts count as on the disk while the system is still to write them."""
    sync = SyncedFiles._sync_files

    def late(self: SyncedFiles, end: Index, *, is_at_once: bool) -> None:
        self._mark(end, NOTHING_DOUBTFUL)
        sync(self, end, is_at_once=is_at_once)

    patch.setattr(SyncedFiles, "_sync_files", late)


def marks_of_the_old_run_count_before_a_host_is_back(patch: Patch) -> None:
    """A source that starts again counts what a host had, whatever that has lost since."""
    begin = HostMarks.__init__

    def counted(self: HostMarks, kept: Any, host_id: int, marks: Any, row: Any) -> None:
        begin(self, kept, host_id, marks, row)
        if self.acknowledged > 0:
            row.raise_to(AckLevel.APPENDED, self.acknowledged)

    patch.setattr(HostMarks, "__init__", counted)


def a_level_is_said_beyond_what_is_acknowledged(patch: Patch) -> None:
    """A program's word goes on to the source, though not all of it has come."""
    patch.setattr("cqrepl.net.sharedsocket.pump_for", lambda *_: None)

    def said(self: SinkHandler) -> None:
        if self.tells_levels:
            for level, due in self._levels_due.items():
                if due > self.levels_told[level]:
                    self.levels_told[level] = due
                    self._outbox.send(self.cid_document, write_level(level, due))

    patch.setattr(SinkHandler, "_tell_levels", said)


def drawn(seed: int) -> RunPlan:
    return RunPlan.of(seed, SECONDS, without=LEFT_OUT, both_ways=False)


def drawn_for_waits(seed: int) -> RunPlan:
    return RunPlan.of(seed, SECONDS, without=LEFT_OUT | NOT_COVERED, both_ways=False)


def power_cut(seed: int) -> RunPlan:
    """A source that writes little and loses its power: rare among all faults that are drawn."""
    at = 5.0 + random.Random(seed).random() * 3.0
    cut = Fault(at, Kind.POWER_CUT, SOURCE, 0, 0.3)
    return schedule(cut, seed=seed, seconds=10.0, rate=2.0)


def power_cuts_at_calls(seed: int) -> RunPlan:
    rng = random.Random(seed)
    cuts = tuple(
        Fault(at + rng.random(), Kind.POWER_CUT_AT_CALL, rng.choice((1, 2)), 0, 0.3, 0.0, nth)
        for at, nth in zip((4.0, 8.0, 12.0), rng.choices((1, 2, 3, 5, 8), k=3), strict=True)
    )
    return RunPlan(
        seed=seed, seconds=16.0, hosts=2, roll_cycle="FAST_DAILY", rate=20.0, faults=cuts
    )


def power_cuts_of_both(seed: int) -> RunPlan:
    at = 5.0 + random.Random(seed).random() * 3.0
    cuts = tuple(Fault(at, Kind.POWER_CUT, host, 0, 0.3) for host in (SOURCE, 2))
    return schedule(*cuts, seed=seed, seconds=10.0)


def source_starts_while_a_sink_is_away(seed: int) -> RunPlan:
    stop = Fault(5.0, Kind.STOP, 2, 0, 12.0)
    kill = Fault(8.5 + random.Random(seed).random(), Kind.KILL, SOURCE, 0, 0.3)
    return schedule(stop, kill, seed=seed, seconds=24.0, rate=0.2)


def bit_flip(seed: int) -> RunPlan:
    flip = Fault(5.0 + random.Random(seed).random() * 3.0, Kind.BIT_FLIP, 2, 0, 0.3)
    return schedule(flip, seed=seed, seconds=10.0)


def gc_of_a_slow_sink(seed: int) -> RunPlan:
    """Retention while nothing comes to one of two sinks for some seconds."""
    at = 10.0 + random.Random(seed).random() * 3.0
    stall = Fault(at, Kind.STALL, 3, SOURCE, 8.0)
    gc = Fault(at + 6.0, Kind.GC, SOURCE, 0, 0.05)
    return schedule(stall, gc, seed=seed, seconds=30.0, hosts=3, roll_cycle="TEST_SECONDLY")


WITH_WAITS = {
    marks_of_the_old_run_count_before_a_host_is_back,
    a_level_is_said_beyond_what_is_acknowledged,
}
PLANTED: list[tuple[Callable[[Patch], None], Callable[[int], RunPlan]]] = [
    (acknowledged_before_it_is_stored, drawn),
    (unsent_bytes_are_lost, drawn),
    (cids_come_from_a_clock, drawn),
    (stored_otherwise_than_it_was_sent, bit_flip),
    (the_last_acknowledgement_waits_for_ever, drawn),
    (headers_are_trusted_after_a_power_cut, power_cut),
    (a_mark_comes_from_the_next_index_alone, power_cut),
    (a_run_is_not_what_the_store_file_has, drawn),
    (the_next_index_is_one_too_many, drawn),
    (gc_looks_at_one_host, gc_of_a_slow_sink),
    (the_mark_of_the_disk_comes_before_the_sync, power_cuts_at_calls),
    (what_was_given_back_stays_unproved, power_cuts_of_both),
    (what_was_compared_stays_unproved, power_cuts_of_both),
    (marks_of_the_old_run_count_before_a_host_is_back, source_starts_while_a_sink_is_away),
    (a_level_is_said_beyond_what_is_acknowledged, drawn_for_waits),
]


def first_failing(plan_of: Callable[[int], RunPlan], *, waits: bool) -> Outcome | None:
    for seed in range(SEEDS):
        outcome = run(plan_of(seed), waits=waits)
        if outcome.broken is not None:
            return outcome
    return None


@pytest.mark.parametrize(
    ("plant", "plan_of"), [pytest.param(*each, id=each[0].__name__) for each in PLANTED]
)
def test_it_is_found(
    plant: Callable[[Patch], None], plan_of: Callable[[int], RunPlan], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = first_failing(plan_of, waits=plant in WITH_WAITS)
    assert found is not None, "not found"
    short = shortened(found, runs_max=5)
    assert short.check == found.check
    assert len(short.plan.faults) <= len(found.plan.faults)
    lines = list(transcript(short))
    assert len(lines) > 3
    print(*lines[-30:], sep="\n")
