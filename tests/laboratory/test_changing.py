"""Hosts of one queue that operators pause and promote, under faults.

What was planned is what comes of it, one host leads, and nothing that was safe is lost unless that
was said beforehand.
"""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import trio

from cqrepl.cluster import promotion
from cqrepl.cluster.promoter import Promoter
from cqrepl.cluster.promotion import CopyStretch
from cqrepl.net.errors import Refused
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.index import Index
from cqrepl.replicator.agreement import firstindex
from cqrepl.replicator.direction import Direction
from cqrepl.replicator.queuestate import keptepochs
from cqrepl.testing.checker import Written
from cqrepl.testing.faultkinds import INSIDE
from cqrepl.testing.faults import FLOOD
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.support.schedules import assert_kept, schedule, seeds

SECONDS = 10.0
SEEDS = seeds(5)
LONG_SECONDS = 30.0
LONG_SEEDS = range(200)
OF_OLD = ["6d1ccfbdb7c931f9", "aed759a4d7904da0", "bd4fe94cc72424ee"]  # keys of the first seeds


plan = partial(schedule, hosts=3, rate=4.0, changing=True)


def counts(outcome: Outcome) -> Counter[str]:
    """The number of promotions of a run by what has come of them."""
    [text] = [each.text for each in outcome.story if "; promotions: " in each.text]
    pairs = (each.rsplit(" ", 1) for each in text.split("promotions: ")[1].split(", ") if each)
    return Counter({name: int(number) for name, number in pairs})


def said(outcome: Outcome, words: str) -> int:
    """The number of hosts that have answered an operator with these words."""
    return sum(each.where == "operator" and words in each.text for each in outcome.story)


def differing(outcome: Outcome) -> int:
    """The number of copies that have said why they differ."""
    return sum(each.where == "laboratory" and " differs: " in each.text for each in outcome.story)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed: int) -> None:
    assert_kept(RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_every_promise_is_kept_for_longer_by_more_hosts(seed: int) -> None:
    assert_kept(RunPlan.of(seed, LONG_SECONDS, without=LEFT_OUT, changing=True))


@pytest.mark.parametrize("seed", seeds(2))
def test_every_promise_is_kept_for_several_queues(seed: int) -> None:
    assert_kept(RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True, groups=3))


def test_each_of_several_queues_is_led_by_itself() -> None:
    """Each begins at a host of its own; one of them is promoted, another host takes over for one
    whose leader is dead, and the third stays."""
    outcome = run(
        plan(
            Fault(4.0, Kind.PROMOTE, 3, 0, 0.05, queue=1),
            Fault(6.0, Kind.FAIL_OVER, 1, 0, 1.0, queue=2),
            groups=3,
        )
    )
    assert outcome.broken is None, outcome.broken
    led = [each.text.split("promotions: ")[1] for each in outcome.story if "; prom" in each.text]
    assert led == ["as planned 1, done 1", "as planned 1, done 1", ""]


@pytest.mark.parametrize("seed", seeds(2))
def test_every_promise_is_kept_where_documents_are_cut(seed: int) -> None:
    assert_kept(RunPlan.of(seed, SECONDS, 3, LEFT_OUT, changing=True, cut_inside=True))


def test_seeds_stand_for_what_they_stood_for() -> None:
    """Cuts inside documents came later, and have seeds of their own."""
    usual: dict[str, Any] = {"changing": True, "groups": 1, "rare": False}
    drawn = [RunPlan.of(seed, LONG_SECONDS, **usual) for seed in range(3)]
    assert [each.key for each in drawn] == OF_OLD
    cut = [RunPlan.of(seed, LONG_SECONDS, changing=True, cut_inside=True) for seed in range(20)]
    assert {fault.kind for each in drawn for fault in each.faults}.isdisjoint(INSIDE)
    assert {fault.kind for each in cut for fault in each.faults} >= set(INSIDE)


def test_who_leads_floods_the_sockets_while_they_are_cut() -> None:
    """Also after a promotion; a host that does not lead appends nothing."""
    outcome = run(
        plan(
            Fault(3.0, Kind.CUT_INSIDE, 1, 2, 0.0, nth=9000),
            Fault(3.1, Kind.FLOOD, 2, 3, 0.0),
            Fault(4.0, Kind.FAIL_OVER, 2, 0, 1.0),
            Fault(8.0, Kind.CUT_INSIDE, 2, 3, 0.0, nth=2000),
            Fault(8.1, Kind.FLOOD, 1, 3, 0.0),
        )
    )
    assert outcome.broken is None, outcome.broken
    assert outcome.appended > 2 * FLOOD


def test_a_disk_that_was_to_fail_fails_no_more_once_all_is_quiet() -> None:
    """The call that was to fail has not come by then. What a failed sync leaves is not known to be
    on the disk, before its machine is started again: that is to be seen with faults, not here."""
    faults = Fault(5.0, Kind.KILL, 1, 0, 9.0), Fault(5.5, Kind.DISK_ERROR, 2, 0, 0.0, nth=8)
    outcome = run(plan(*faults, seconds=8.0))
    assert outcome.broken is None, outcome.broken
    assert outcome.injected["disk-error"] == 1
    assert not [each for each in outcome.story if each.text == "a call to the disk fails"]


FAIL_OVERS = plan(
    Fault(5.0, Kind.FAIL_OVER, 2, 0, 1.0), Fault(13.0, Kind.FAIL_OVER, 3, 0, 1.0), seconds=20.0
)


def test_what_was_planned_is_what_comes_of_it() -> None:
    """Twice a host takes over for one that is dead; that comes back, and follows."""
    outcome = run(FAIL_OVERS)
    assert outcome.broken is None
    assert counts(outcome)["done"] == 2
    assert counts(outcome)["as planned"] >= 1, "the dead one's application may write meanwhile"
    assert min(outcome.called_safe.values()) >= 5, "else nothing was looked for"
    quarantined = [each.text for each in outcome.story if "of a later epoch never had" in each.text]
    assert quarantined, "the application of the dead one has written on"


def test_the_same_seed_tells_the_same_story() -> None:
    one, other = (run(FAIL_OVERS) for _ in range(2))
    assert (one.digest, one.called_safe) == (other.digest, other.called_safe)


def test_a_copy_that_forgets_what_it_has_promised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keptepochs, "store_epochs", lambda path, epochs: None)
    outcome = run(FAIL_OVERS)
    assert outcome.check in ("epochs", "promotion"), outcome.broken


def test_an_epoch_that_begins_elsewhere_than_was_told_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Epochs.opened
    monkeypatch.setattr(Epochs, "opened", lambda self, end: opened(self, 0))
    assert run(FAIL_OVERS).check == "promotion"


def test_of_two_promotions_at_once_each_may_be_refused_for_the_other() -> None:
    """Both were planned before either began; or they came one after the other."""
    both = [Fault(4.0, Kind.FAIL_OVER, host, 0, 1.0) for host in (2, 3)]
    outcomes = [run(plan(*both, seed=seed)) for seed in range(8)]
    assert [each.broken for each in outcomes] == [None] * len(outcomes)
    assert 2 in {said(each, "meanwhile, so this host does not lead it") for each in outcomes}


def test_a_promotion_that_is_refused_against_its_plan_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuses(*args: object) -> None:
        raise Refused("another host is promoted")

    monkeypatch.setattr(Promoter, "_check_alone", refuses)
    assert run(FAIL_OVERS).check == "promotion"


ENDS_IN_THE_MIDDLE = plan(
    Fault(9.0, Kind.PROMOTE, 2, 0, 0.05), Fault(9.5, Kind.KILL, 2, 0, 0.5), hosts=3
)


@pytest.fixture
def slow_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host has been promised an epoch for a while, before it begins that."""
    lead = Direction.lead

    async def slowly(*given: Any) -> None:
        await trio.sleep(2.0)
        await lead(*given)

    monkeypatch.setattr(Direction, "lead", slowly)


@pytest.mark.usefixtures("slow_leader")
def test_what_is_promoted_in_the_end_is_looked_at() -> None:
    """A promotion has ended in the middle, and no host leads."""
    outcome = run(ENDS_IN_THE_MIDDLE)
    assert outcome.broken is None, outcome.broken
    assert counts(outcome) == {"as planned": 1, "done": 1, "not known": 1}


@pytest.mark.usefixtures("slow_leader")
def test_what_is_told_in_the_end_and_does_not_come_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said_to_go = CopyStretch(host=3, first=Index(1), end=Index(2))
    monkeypatch.setattr(promotion, "_aside", lambda *_: (said_to_go,))
    outcome = run(ENDS_IN_THE_MIDDLE)
    assert outcome.check == "promotion", outcome.broken
    assert "host 3 was to put aside what it had from 0x1 on" in str(outcome.broken)


# ---- what a copy may say -------------------------------------------------------------------------

BEHIND = (Fault(4.0, Kind.CLOCK_STEP, 3, 0, 0.05, step_s=-7200.0), Fault(6.0, Kind.STOP, 3, 0, 1.0))


def test_a_copy_whose_clock_is_hours_behind_takes_no_cycle_of_times_to_come() -> None:
    outcome = run(plan(*BEHIND, roll_cycle="TEST_SECONDLY"))
    assert outcome.broken is None
    assert differing(outcome) == 1


def test_a_copy_that_refuses_what_its_clock_allows_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firstindex, "_is_near", lambda *args: False)
    assert run(plan(*BEHIND[1:], roll_cycle="TEST_SECONDLY")).check == "cause"


# what the power of a leader takes half of while it is paused
PAUSED = (Fault(4.0, Kind.PAUSE, 1, 0, 3.0), Fault(6.5, Kind.POWER_CUT, 1, 0, 0.05))


def test_what_only_a_torn_leader_has_goes_out_as_it_stands() -> None:
    outcome = run(plan(*PAUSED, seed=2, seconds=10.0, rate=10.0))
    assert outcome.broken is None
    assert [each for each in outcome.story if "it goes out as it stands" in each.text]


def test_what_was_altered_where_a_copy_had_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn page is no excuse for what is whole elsewhere, or was synced."""
    note = Written.note
    monkeypatch.setattr(Written, "note", lambda self, index, _: note(self, index, b"another one"))
    assert run(plan(Fault(6.5, Kind.POWER_CUT, 1, 0, 0.05))).check == "altered"


# ---- by the files of the cluster -----------------------------------------------------------------

RELOADS = plan(
    Fault(3.0, Kind.NEW_MASTER, 2, 0, 0.05),
    Fault(3.5, Kind.OTHER_QUEUE, 1, 0, 0.05),
    Fault(5.0, Kind.KILL, 2, 0, 1.0),
    Fault(5.2, Kind.NEW_MASTER, 3, 0, 0.05),
    Fault(6.5, Kind.OTHER_QUEUE, 1, 0, 0.05),
    Fault(7.0, Kind.LIMIT, 1, 0, 0.05, nth=1),
    Fault(8.0, Kind.OTHER_QUEUE, 1, 0, 0.05),
)


def test_another_master_by_reloads() -> None:
    """The second one is told to while the first is dead, and is waited for. A queue is added,
    removed, and added again."""
    outcome = run(RELOADS)
    assert outcome.broken is None
    for words, least in (
        ("queue 'q' is streamed from host 2, was from host 1", 2),
        ("queue 'q' is streamed from host 3, was from host 2", 2),
        ("queue 'other' is added: source", 2),
        ("queue 'other' is removed", 3),
        ("cqrepl.limitRate is", 3),
    ):
        assert said(outcome, words) >= least, words
    assert min(outcome.called_safe.values()) >= 5, "else nothing was looked for"


def test_a_master_that_only_says_that_it_gives_a_queue_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def keeps(self: Direction, *promise: object) -> None:
        pass

    monkeypatch.setattr(Direction, "step_down", keeps)
    assert run(RELOADS).broken is not None


def test_by_reloads_a_host_that_was_promoted_hands_it_over() -> None:
    outcome = run(
        plan(Fault(3.0, Kind.PROMOTE, 2, 0, 0.05), Fault(5.0, Kind.NEW_MASTER, 3, 0, 0.05))
    )
    assert outcome.broken is None
    assert said(outcome, "host 2 leads it, and hands it over once host 2 or host 3") == 1
    assert said(outcome, "queue 'q' is streamed from host 3, was from host 1") >= 1
