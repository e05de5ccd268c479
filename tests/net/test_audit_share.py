"""The share of a core that reading behind the streams may take: the rule, and that a queue's
reader and the rounds follow it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.format.index import Index
from cqrepl.queue.read import chains
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk.auditshare import Reading, rest_seconds
from cqrepl.replicator.disk.diskend import LOOK_READ_SECONDS, DiskEnd
from cqrepl.replicator.disk.queueaudit import DIGEST_SECONDS, FOLLOW_SECONDS, Place
from cqrepl.replicator.disk.syncer import AUDIT_REST, AUDIT_SECONDS, LOOK_SECONDS, Syncer
from cqrepl.surroundings import Surroundings, within
from tests.net.test_audits import fail
from tests.support.samples import layout, noon_index

PER_CYCLE = 40
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


@contextmanager
def watched(path: Path, watch: Syncer, cycles: int) -> Iterator[DiskEnd]:
    """A queue that was empty when it was opened, and got so many cycles since."""
    Queue.open(path, create=layout()).close()
    with Queue.open(path) as queue:
        told: list[Place] = []
        end = watch.watch(
            path.name, queue, queue.next_index, Chains(queue.cycles), fail, queue.check_name,
            told.extend, is_proved=True,
        )  # fmt: skip
        for ahead in range(cycles):
            with Queue.open_for_append(path) as more:
                data = [b"<%d of %d>" % (n, ahead) for n in range(PER_CYCLE)]
                batch = ExcerptBatch.of(noon_index(ahead=ahead), data)
                more.appender().append_at(batch)
        end.note()
        yield end


async def test_closed_cycles_that_are_left_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which nothing was read yet: one that was begun counts no more, nor one that is open."""
    monkeypatch.setattr(chains, "BATCH_BYTES", 100)
    with watched(tmp_path / "q", Syncer(), 4) as end:
        counts: dict[Index, int] = {}
        while end.has_to_audit:
            await end.audit_a_while(0.0)
            counts[end.audited] = end.reading.cycles_left
        assert len(counts) > 8
        for ahead, left in enumerate([2, 1, 0, 0]):
            first, behind = noon_index(ahead=ahead) + 1, noon_index(ahead=ahead, sequence=PER_CYCLE)
            found = {counts[at] for at in counts if first <= at <= behind}
            assert found == {left}


async def test_a_look_reads_new_closed_cycles_for_its_time_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "BATCH_BYTES", 100)
    with watched(tmp_path / "q", Syncer(), 4) as end:
        await end.sync()
        seen = [0]
        while end.has_to_look:
            await end.look(seconds=0.0)
            seen.append(len(end._queue.cycles.closed.load()))
        assert seen[-1] == 3
        assert seen == sorted(seen)
        assert len(seen) > 8  # a batch each time


class Crowded(Surroundings):
    """Threads that work have a core for half of the time."""

    def processor_seconds(self) -> float:
        return super().monotonic() / 2


class Free(Surroundings):
    """They have one all the time."""

    def processor_seconds(self) -> float:
        return super().monotonic()


@pytest.mark.parametrize("cycles", [1, 4])
@pytest.mark.parametrize("machine", [Free, Crowded])
async def test_rounds_come_soon_where_closed_cycles_are_left_and_a_core_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cycles: int, machine: type[Surroundings]
) -> None:
    monkeypatch.setattr(chains, "BATCH_BYTES", 200)
    watch = Syncer()
    with within(machine()), watched(tmp_path / "q", watch, cycles) as end:
        comes = iter(range(1000))
        monkeypatch.setattr(end, "_end", lambda: Index(end_of(cycles) - next(comes) % 2))
        monkeypatch.setattr("cqrepl.replicator.disk.syncer.FOLLOW_SECONDS", 0.0)
        rest_s = await watch._audit_due([end])
        assert end.audited > 0
        if cycles > 1 and machine is Free:
            assert rest_s < AUDIT_SECONDS / 2
        else:
            assert rest_s >= AUDIT_SECONDS


def end_of(cycles: int) -> int:
    return noon_index(ahead=cycles - 1, sequence=PER_CYCLE)


async def test_where_nothing_has_come_rounds_are_rare() -> None:
    assert await Syncer()._audit_due([]) == AUDIT_SECONDS * AUDIT_REST
    assert FOLLOW_SECONDS / AUDIT_SECONDS + LOOKS <= 0.15
