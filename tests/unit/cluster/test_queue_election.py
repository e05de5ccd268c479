"""Every move of a queue whose leader is elected, driven through what it is told."""

import math
from dataclasses import replace

import pytest

from cqrepl.cluster.election.electionstates import ELECTION_MOVES, ElectionState
from cqrepl.cluster.election.hostelections import NO_PROMISE, HostElections, Promised
from cqrepl.cluster.election.lease import DRIFT, Lease
from cqrepl.cluster.election.queueelection import (
    EPOCHS_AHEAD_MAX,
    CopySight,
    Electors,
    QueueElection,
    Wish,
)
from cqrepl.protocol.messages.leads import Hears, Leads, Led

LEASE = 2.0
ELECTORS = Electors(own=1, members=frozenset({1, 2, 3}), lease_seconds=LEASE)
DEAF = {host: CopySight(epoch=1, next_index=7) for host in (1, 2)}
_S = ElectionState


def first(least: float, most: float) -> float:
    """The least of what chance may give."""
    return least


def last(least: float, most: float) -> float:
    return most


def state_of(queue: QueueElection) -> ElectionState:
    return queue.state


def in_state(state: ElectionState) -> QueueElection:
    """A queue that has come into a state at time 10."""
    queue = QueueElection(ELECTORS, 10 - LEASE, first)
    queue.see({2, 3})
    if state in (_S.FOLLOWING, _S.OFF, _S.LEADING):
        queue.hear(2, 1, 1, 2, 10)
    if state is _S.OFF:
        queue.switch(10, is_on=False)
    if state is _S.LEADING:
        queue.leads(2, 10, is_elected=True)
    if state is _S.MISSING:
        queue.see(set())
    if state in (_S.MISSING, _S.ASKING, _S.WAITING, _S.FENCING):
        queue.tick(10)
    if state in (_S.WAITING, _S.FENCING):
        queue.positions(DEAF, 10)
    if state is _S.FENCING:
        assert queue.tick(10) is Wish.FENCE
    assert state_of(queue) is state
    return queue


@pytest.mark.parametrize("state", ElectionState)
def test_a_leader_that_is_heard_is_followed_and_refusals_of_before_are_forgotten(
    state: ElectionState,
) -> None:
    queue = in_state(state)
    assert queue.hear(3, 5, 4, 2, 10)
    assert state_of(queue) is (_S.OFF if state is _S.OFF else _S.FOLLOWING)
    assert (queue.leader, queue.epoch, queue.lease) == (3, 5, None)
    assert queue.hears_leader(10 + LEASE - 0.001)
    assert queue.refuses(2, 11)
    assert not queue.refuses(3, 11)
    assert not queue.refuses(2, 10 + LEASE)


@pytest.mark.parametrize("state", ElectionState)
def test_an_older_leader_is_not_heard(state: ElectionState) -> None:
    queue = in_state(state)
    assert not queue.hear(3, 4, 5, 2, 10)
    assert not queue.hear(3, 5, 5, 2, 10)
    assert not queue.hear(9, 6, 5, 2, 10)
    assert state_of(queue) is state


@pytest.mark.parametrize("state", ElectionState)
def test_whatever_it_does_an_operator_may_have_this_host_lead(state: ElectionState) -> None:
    queue = in_state(state)
    queue.leads(9, 10, is_elected=False)
    assert state_of(queue) is (_S.OFF if state is _S.OFF else _S.LEADING)
    assert queue.lease is not None
    queue.answered(2, 9, 11)
    assert not queue.may_read(11)  # the host that led before may have a lease yet
    assert queue.may_read(12)


@pytest.mark.parametrize("state", ElectionState)
def test_a_member_that_cannot_elect_ends_all_and_another_word_begins_it_again(
    state: ElectionState,
) -> None:
    queue = in_state(state)
    was_leading = queue.lease is not None
    queue.switch(10, is_on=False)
    assert state_of(queue) is _S.OFF
    assert queue.tick(1000) is None
    assert queue.deadline == math.inf
    queue.switch(10, is_on=True)
    assert state_of(queue) is (_S.LEADING if was_leading else _S.FOLLOWING)


def test_one_that_hears_nothing_asks_once_it_sees_a_majority_and_a_lease_is_over() -> None:
    queue = QueueElection(ELECTORS, 0, first)
    assert queue.deadline == LEASE
    assert queue.tick(1.9) is None
    assert queue.tick(2.0) is None
    assert state_of(queue) is _S.MISSING
    assert queue.deadline == math.inf
    queue.see({2, 9})
    assert queue.deadline == 2.0
    assert queue.tick(2.0) is Wish.ASK_WHERE
    assert state_of(queue) is _S.ASKING


def test_one_that_asks_is_put_off_where_others_hear_the_leader() -> None:
    queue = in_state(_S.ASKING)
    queue.positions({**DEAF, 2: CopySight(epoch=1, next_index=7, hears=True)}, 10)
    assert state_of(queue) is _S.MISSING
    assert queue.last_refusal == "1 of 3 hear none, host 2 hears a leader"
    queue.positions(DEAF, 10)  # they come late
    assert state_of(queue) is _S.MISSING


def test_one_that_waits_is_put_off_where_it_sees_no_majority_any_more() -> None:
    queue = in_state(_S.WAITING)
    queue.see(set())
    assert queue.deadline == math.inf
    assert queue.tick(10) is None
    assert state_of(queue) is _S.MISSING
    assert queue.last_refusal == "only host 1 of the members are there"


@pytest.mark.parametrize(
    ("sights", "preferred", "turn"),
    [
        ({1: (1, 7), 2: (1, 7)}, 0, 0),
        ({1: (1, 7), 2: (1, 7)}, 1, 0),
        ({1: (1, 7), 2: (1, 7)}, 2, 1),
        ({1: (1, 7), 2: (1, 6)}, 2, 0),  # what the preferred one lacks comes first
        ({1: (1, 7), 2: (2, 3)}, 0, 1),
        ({1: (1, 7), 2: (1, 8), 3: (1, 8)}, 1, 2),
    ],
)
def test_the_longest_copies_wait_in_turn_and_shorter_ones_behind_them(
    sights: dict[int, tuple[int, int]], preferred: int, turn: int
) -> None:
    given = {host: CopySight(epoch=e, next_index=end) for host, (e, end) in sights.items()}
    for chance, more in ((first, 0.0), (last, 0.25)):
        electors = replace(ELECTORS, preferred=preferred)
        queue = QueueElection(electors, 0, chance)
        queue.see({2})
        assert queue.tick(LEASE) is Wish.ASK_WHERE
        queue.positions(given, LEASE)
        assert queue.deadline == LEASE + turn * 0.5 + more


def test_each_refusal_doubles_the_wait_up_to_a_limit() -> None:
    queue, now, waits = QueueElection(ELECTORS, 0, last), LEASE, []
    queue.see({2, 3})
    for _ in range(6):
        assert queue.tick(now) is Wish.ASK_WHERE
        queue.positions(DEAF, now)
        now = queue.deadline
        assert queue.tick(now) is Wish.FENCE
        queue.refused("too few", now)
        waits.append(queue.deadline - now)
        now = queue.deadline
    assert waits == pytest.approx([2, 4, 8, 8, 8, 8])
    queue.leads(5, now, is_elected=True)
    assert queue.last_refusal == ""


def test_a_refusal_that_comes_late_changes_nothing() -> None:
    queue = in_state(_S.FENCING)
    assert queue.hear(2, 3, 3, 2, 10)
    queue.refused("too few", 10)
    assert state_of(queue) is _S.FOLLOWING


def test_a_leader_that_no_majority_answers_steps_down_after_a_lease() -> None:
    queue = in_state(_S.LEADING)
    assert queue.lease is not None
    seconds = LEASE * (1 - DRIFT)
    assert queue.deadline == 10 + seconds
    queue.answered(2, 1, 11)  # of another epoch
    queue.answered(2, 2, 11)
    assert queue.may_read(11 + seconds - 0.001)
    assert not queue.may_read(11 + seconds)
    assert queue.tick(11 + seconds - 0.001) is None
    assert queue.tick(11 + seconds) is Wish.STEP_DOWN
    queue.leads_no_longer(13)
    assert state_of(queue) is _S.MISSING
    assert queue.leader == 0
    assert not queue.may_read(13)
    assert queue.deadline == 13 + LEASE / 4


def test_a_leader_whose_electors_are_elsewhere_goes_on_without_a_majority() -> None:
    electors = Electors(own=1, members=ELECTORS.members, lease_seconds=LEASE, elects=False)
    queue = QueueElection(electors, 0, first)
    queue.leads(1, 0, is_elected=True)
    assert queue.tick(100) is None
    assert not queue.may_read(100)


def test_a_member_left_behind_by_its_own_promise_is_taken_along_in_a_later_epoch() -> None:
    queue = in_state(_S.LEADING)
    now = 10.0
    queue.not_heard(3, 2, now)  # no later one
    queue.not_heard(3, 5, now)
    for _ in range(8):
        now += LEASE / 4
        queue.answered(2, 2, now)
        wish = queue.tick(now)
        if wish is not None:
            break
    assert (wish, now) == (Wish.RENEW, 12)
    assert queue.tick(12.1) is None
    queue.leads(6, 12.2, is_elected=True)
    assert queue.tick(13) is None


def test_a_host_leads_alone_at_once_but_as_a_follower_first() -> None:
    electors = Electors(own=1, members=frozenset({1}), lease_seconds=LEASE)
    queue = QueueElection(electors, 5, last)
    assert state_of(queue) is _S.FOLLOWING
    assert queue.tick(5) is Wish.ASK_WHERE
    queue.positions({1: CopySight(epoch=0, next_index=0)}, 5)
    assert queue.tick(5) is Wish.FENCE
    queue.leads(1, 5, is_elected=True)
    assert queue.may_read(1e9)


@pytest.mark.parametrize(("members", "needed"), [(3, 1), (4, 2), (5, 2), (6, 3), (7, 3)])
def test_a_lease_needs_a_majority_with_the_leader_itself(members: int, needed: int) -> None:
    others = frozenset(range(2, members + 1))
    lease = Lease(others, LEASE, 0)
    for host in range(2, 2 + needed):
        assert not lease.holds(5)
        lease.answered(host, 5)
        lease.answered(host, 4)  # an older one takes nothing back
    assert lease.holds(5)
    assert lease.hears(5) == frozenset(range(2, 2 + needed))
    lease.answered(99, 100)
    assert not lease.holds(5 + LEASE)


def test_a_lease_counts_from_when_what_was_heard_was_sent() -> None:
    elections = HostElections({"a": ELECTORS}, 0, first)
    elections.connected(2, 0, elects=True)
    elections.connected(3, 0, elects=True)
    elections.queues["a"].leads(1, 0, is_elected=True)
    (said,) = elections.leads_for(2, {"a": 7}, 1.0)
    assert said == Leads(number=1, queues={"a": Led(1, 7)})
    hears = Hears(number=1, queues={"a": 1})
    elections.told_hears(2, hears, 2.9)
    assert elections.queues["a"].may_read(2.9)
    assert not elections.queues["a"].may_read(3.0)
    elections.told_hears(2, hears, 3.0)  # it counts once
    elections.leads_for(2, {}, 3.0)
    elections.connected(2, 3.0, elects=True)
    elections.told_hears(2, Hears(number=2, queues={"a": 1}), 3.0)  # of the connection before
    assert not elections.queues["a"].may_read(3.0)


def test_what_is_said_and_answered_names_queues_of_both() -> None:
    three = dict.fromkeys(("a", "b", "c"), ELECTORS)
    elections = HostElections(three, 0, first)
    promised = {"a": Promised(4, 2), "b": Promised(6, 1)}
    leads = Leads(number=9, queues={"a": Led(4, 0), "b": Led(5, 0), "c": Led(1, 0), "x": Led(1, 0)})
    hears = elections.told_leads(2, leads, lambda name: promised.get(name, NO_PROMISE), 0)
    assert hears == Hears(number=9, queues={"a": 4, "c": 1}, refuses={"b": 6})


def test_many_names_go_in_several_documents() -> None:
    names = {f"{n:0>128}": ELECTORS for n in range(1000)}
    elections = HostElections(names, 0, first)
    elections.connected(2, 0, elects=True)
    for each in elections.queues.values():
        each.leads(1, 0, is_elected=True)
    said = elections.leads_for(2, {}, 0)
    assert [each.number for each in said] == [1, 2, 3, 4]
    assert sum(len(each.queues) for each in said) == 1000


def test_a_member_that_cannot_elect_switches_off_the_queues_that_it_is_a_member_of() -> None:
    two = Electors(own=1, members=frozenset({1, 2, 4}), lease_seconds=LEASE)
    elections = HostElections({"a": ELECTORS, "b": two}, 0, first)
    elections.connected(3, 0, elects=False)
    assert elections.cannot_elect == [3]
    assert state_of(elections.queues["a"]) is _S.OFF
    assert state_of(elections.queues["b"]) is _S.FOLLOWING
    elections.lost(3, 1)  # it may come again as it was
    assert state_of(elections.queues["a"]) is _S.OFF
    elections.connected(3, 2, elects=True)
    assert state_of(elections.queues["a"]) is _S.FOLLOWING
    assert elections.deadline == LEASE
    assert elections.says_every == LEASE / 4


def test_every_move_of_the_table_was_named_by_a_state() -> None:
    assert {state for state, _ in ELECTION_MOVES} == set(ElectionState)


def test_other_members_need_other_answers() -> None:
    elections = HostElections({"a": ELECTORS}, 0, first)
    queue = elections.queues["a"]
    queue.leads(1, 0, is_elected=True)
    queue.answered(2, 1, 1)
    assert queue.may_read(1)
    five = replace(ELECTORS, members=frozenset(range(1, 6)))
    elections.set_queues({"a": five}, 1)
    assert elections.queues["a"] is queue
    assert not queue.may_read(1)
    queue.answered(2, 1, 1)
    assert not queue.may_read(1)
    queue.answered(3, 1, 1)
    assert queue.may_read(1)
    elections.set_queues({}, 1)
    assert not elections.queues


def test_programs_are_told_no_longer_a_lead_than_no_other_host_can_have() -> None:
    queue = QueueElection(ELECTORS, 0, first)
    assert queue.leads_until(1) == 0.0
    queue.leads(2, 10, is_elected=True)
    assert queue.leads_until(10) == 0.0  # nobody has answered yet
    queue.answered(3, 2, 10.5)
    lease = LEASE * (1 - DRIFT)
    assert queue.leads_until(11) == 10.5 + lease
    assert queue.leads_until(10.5 + lease) == 0.0
    queue.answered(3, 2, 13)
    queue.leads_no_longer(13)
    assert queue.leads_until(13) == 0.0


def test_they_are_told_of_no_lead_before_consistent_reads_are_served() -> None:
    queue = QueueElection(ELECTORS, 0, first)
    queue.leads(2, 10, is_elected=False)
    queue.answered(3, 2, 11)
    assert queue.leads_until(10 + LEASE - 0.1) == 0.0
    assert queue.leads_until(10 + LEASE) == 11 + LEASE * (1 - DRIFT)


def test_the_only_member_leads_for_one_lease_at_a_time() -> None:
    queue = QueueElection(replace(ELECTORS, members=frozenset({1})), 0, first)
    queue.leads(1, 10, is_elected=True)
    assert queue.leads_until(50) == 50 + LEASE


def test_a_leader_of_an_epoch_that_cannot_be_is_not_heard() -> None:
    queue = in_state(_S.LEADING)
    assert not queue.hear(3, 3 + EPOCHS_AHEAD_MAX, 2, 1, 10)
    assert (state_of(queue), queue.epoch) == (_S.LEADING, 2)
    assert queue.hear(3, 2 + EPOCHS_AHEAD_MAX, 2, 1, 10)


def test_an_epoch_that_was_only_heard_is_forgotten_with_its_leader() -> None:
    queue = in_state(_S.FOLLOWING)
    assert queue.hear(3, 900, 1, 2, 10)
    assert queue.epoch == 900
    assert queue.tick(10 + LEASE) is Wish.ASK_WHERE
    assert queue.epoch == 1
    queue.leads(2, 12.5, is_elected=True)
    assert (state_of(queue), queue.epoch) == (_S.LEADING, 2)


@pytest.mark.parametrize("state", [_S.MISSING, _S.WAITING])
def test_a_host_whose_service_cannot_serve_asks_for_no_promise(state: ElectionState) -> None:
    queue = in_state(state)
    queue.see({2, 3})
    queue.unfit = "its service is behind"
    assert queue.tick(20) is None
    assert state_of(queue) is _S.MISSING
    if state is _S.WAITING:
        assert queue.last_refusal == "its service is behind"
    queue.unfit = ""
    assert queue.tick(20 + LEASE) is Wish.ASK_WHERE
