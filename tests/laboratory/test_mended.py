"""Schedules that once broke a promise, and do so no more."""

import time
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Queue, cycle_of
from cqrepl.queue.format.index import Index
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan
from tests.support.schedules import schedule

plan = partial(schedule, seconds=20.0)
by_seconds = partial(plan, roll_cycle="TEST_SECONDLY")  # store files end all the while
changing = partial(plan, seconds=10.0, hosts=3, rate=10.0, changing=True)

MENDED = {
    "gc waits for the slowest sink": by_seconds(
        Fault(10.0, Kind.STALL, 3, SOURCE, 8.0), Fault(16.0, Kind.GC, SOURCE, 0, 0.05),
        hosts=3, seconds=40.0),
    "a queue is not logged into itself": plan(Fault(12.0, Kind.ACK_LOG, SOURCE, 0, 0.05)),
    "a source that lost its end, and local writes": plan(
        Fault(10.0, Kind.POWER_CUT, SOURCE, 0, 0.3), seed=2),
    "a mark beyond the end of the source": plan(
        Fault(6.68, Kind.POWER_CUT, SOURCE, 0, 0.3), seed=8, rate=2.0, seconds=10.0),
    "a torn excerpt in a copy is told": plan(
        Fault(8.0, Kind.POWER_CUT, 2, 0, 0.05), rate=60.0, seconds=10.0),
    "a copy that has lost a whole file": by_seconds(Fault(10.0, Kind.POWER_CUT, 2, 0, 0.3)),
    "a source made anew takes nothing": plan(Fault(12.0, Kind.ANEW, SOURCE, 0, 0.05), hosts=3),
    "a source from a backup": plan(Fault(12.0, Kind.RESTORED, SOURCE, 0, 0.05), seed=2, hosts=3),
    "a sink in the directory of its source": plan(
        Fault(12.0, Kind.SAME_DIRECTORY, 2, 0, 0.05), seconds=40.0),
    "a sink at another queue": plan(Fault(12.0, Kind.FOREIGN, 2, 0, 0.05)),
    "a store file in the middle of the source": by_seconds(
        Fault(12.0, Kind.FILE_GONE, SOURCE, 0, 0.05)),
    "a store file in the middle of a copy": by_seconds(Fault(12.0, Kind.FILE_GONE, 2, 0, 0.05)),
    "an older store file of the source": by_seconds(Fault(12.3, Kind.FILE_OLD, SOURCE, 0, 0.05)),
    "an older store file of a copy": by_seconds(Fault(12.3, Kind.FILE_OLD, 2, 0, 0.05)),
    "a sink that is refused while its files are looked at": by_seconds(
        Fault(10.0, Kind.SAME_DIRECTORY, 2, 0, 3.0), Fault(12.5, Kind.DISK_SLOW, 2, 0, 8.0),
        rate=2.0, seconds=40.0),
    "no room for the mark, and later a store file is missing": by_seconds(
        Fault(4.0, Kind.DISK_FULL, SOURCE, 0, 3.0), Fault(30.0, Kind.FILE_GONE, SOURCE, 0, 0.05),
        Fault(39.5, Kind.KILL, SOURCE, 0, 0.05), seconds=40.0),
    "an unproved source, and later a store file is missing": by_seconds(
        Fault(6.0, Kind.STOP, 2, 0, 40.0), Fault(10.0, Kind.POWER_CUT, SOURCE, 0, 0.3),
        Fault(25.0, Kind.FILE_GONE, SOURCE, 0, 0.05), Fault(36.5, Kind.KILL, SOURCE, 0, 0.05),
        seed=1, seconds=40.0),
    "what a backup never had is asked of no copy": by_seconds(
        Fault(10.0, Kind.STALL, 2, SOURCE, 3.0), Fault(10.5, Kind.RESTORED, SOURCE, 0, 1.0),
        Fault(30.0, Kind.GC, SOURCE, 0, 0.05), seconds=40.0),
    "no room for what a copy has lost": by_seconds(
        Fault(28.0, Kind.FILE_OLD, 2, 0, 1.0), Fault(33.7, Kind.DISK_SLOW, 2, 0, 8.0),
        Fault(36.5, Kind.DISK_FULL, 2, 0, 8.0), seconds=90.0),
    "no room for what a source has lost": by_seconds(
        Fault(28.0, Kind.FILE_GONE, SOURCE, 0, 0.05), Fault(28.0, Kind.DISK_SLOW, SOURCE, 0, 8.0),
        Fault(28.1, Kind.DISK_FULL, SOURCE, 0, 8.0), seconds=90.0),
    # what waits catches up, for which there are no tokens yet, though there are for what is live
    "a limit that a host is told to keep by a reload": changing(
        Fault(5.742, Kind.LIMIT, 1, 0, 3.0, nth=5),
        Fault(5.944, Kind.KILL_AT_CALL, 2, 0, 8.0, nth=20),
        Fault(6.863, Kind.KILL_AT_CALL, 3, 0, 1.0, nth=8), seed=118, roll_cycle="TEST4_DAILY"),
    # `plan promote` counted on a host whose disk took no promise
    "a disk without room for a promise": changing(
        Fault(5.0, Kind.DISK_FULL, 2, 0, 3.0), Fault(6.0, Kind.FAIL_OVER, 3, 0, 3.0), seed=119),
}  # fmt: skip


@pytest.mark.parametrize("plan", MENDED.values(), ids=MENDED.keys())
def test_it_stays_mended(plan: RunPlan) -> None:
    outcome = run(plan)
    assert outcome.broken is None
    assert sum(outcome.injected.values()) == len(plan.faults)


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_whose_power_was_cut_comes_back_by_itself(seed: int) -> None:
    """It is not only told that it differs: what was torn or lost comes again."""
    cut = Fault(5.0 + seed / 3, Kind.POWER_CUT, 2, 0, 0.3)
    outcome = run(plan(cut, seed=seed, hosts=2 + seed % 2, rate=(20.0, 60.0)[seed % 2]))
    assert outcome.broken is None
    assert not [entry for entry in outcome.story if " stopped (" in str(entry)]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_stored_otherwise_than_it_was_sent_is_named_within_a_second(seed: int) -> None:
    outcome = run(plan(Fault(6.0, Kind.BIT_FLIP, 2, 0, 0.05), seed=seed, hosts=2 + seed % 2))
    assert outcome.broken is None
    told = [entry for entry in outcome.story if "is another one" in entry.text]
    assert len(told) == 1
    index = told[0].text.split()[3]
    stops = [
        entry
        for entry in outcome.story
        if entry.where == "log" and f"diverged at {index}" in entry.text
    ]
    assert len(stops) >= 2, "both sides name it"
    assert stops[0].seconds - told[0].seconds < 1.0


def test_the_time_is_the_machines_again(tmp_path: Path) -> None:
    run(plan(seconds=2.0))
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        index = queue.append(b"x")
        now_ms = time.time_ns() // 1_000_000
        roll_cycle = queue.layout.roll_cycle
        cycles = {roll_cycle.cycle_at(at, 0) for at in (now_ms - 60_000, now_ms)}
        assert cycle_of(Index(index), roll_cycle.shift) in cycles
