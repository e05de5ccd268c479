"""At most one host begins an epoch while no operator accepts a loss: whichever hosts see each
other, and whenever one dies; also while leaders give up the lead, or hosts read files that name
other masters.

The tests use a model of hosts, of which each promotion sees some. `plan_promotion` makes its plan.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.cluster.promotion import Promotion, plan_promotion
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.index import Index

MASTER = 1
END = Index(5)


@dataclass
class Hosts:
    """The model hosts: what each one holds, and what it has promised."""

    count: int
    acks: int
    copies: dict[int, CopyPosition] = field(default_factory=dict)
    begun: dict[int, set[int]] = field(default_factory=dict)  # who began each epoch
    masters: dict[int, int] = field(default_factory=dict)  # by the file of each
    promoting: list[int] = field(default_factory=list)  # hosts that are being promoted

    def __post_init__(self) -> None:
        for each in self.ids:
            self.masters[each] = MASTER
            epochs = Epochs().streamed_from(MASTER)
            self.copies[each] = CopyPosition(
                next_index=END, epochs=epochs, is_source=each == MASTER
            )

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(range(1, self.count + 1))

    def plan(self, to: int, seen: set[int], planned: Promotion | None = None) -> Promotion:
        found = {each: self.copies[each] for each in seen | {to}}
        return plan_promotion(
            "q", to, self.ids, found, master=self.masters[to], acks=self.acks, planned=planned
        )

    def reload(self, host: int, master: int) -> None:
        """The host reads a file that names another master. A host that has streamed the queue gives
        it up; the new master takes it over unless the old one still streams it."""
        copy, was = self.copies[host], self.masters[host]
        if copy.epochs.promised:
            return
        if was == host != master:
            self.copies[host] = replace(copy, is_source=False)
        if master == host != was:
            if self.copies[was].is_source:
                return
            epochs = copy.epochs.streamed_from(host)
            self.copies[host] = replace(copy, epochs=epochs, is_source=True)
        self.masters[host] = master

    def promise(self, host: int, epoch: int, to: int) -> bool:
        copy = self.copies[host]
        epochs = copy.epochs
        if self.may_give_up(host, epoch):
            epochs = epochs.without_claim()
        if epoch <= epochs.promised and (epoch, to) != (epochs.promised, epochs.promised_to):
            return False
        self.copies[host] = replace(copy, epochs=epochs.promise(epoch, to), is_source=False)
        return True

    def may_give_up(self, host: int, epoch: int) -> bool:
        """True where a host claims this epoch for itself, and is not on its way to begin it."""
        return self.copies[host].epochs.is_own_claim(epoch, host) and host not in self.promoting

    def step_down(self, host: int) -> None:
        """A leader gives up the lead by itself."""
        copy = self.copies[host]
        if copy.is_source and copy.epochs.may_lead(host):
            epochs = copy.epochs.promise(copy.epochs.promised + 1, host)
            self.copies[host] = replace(copy, epochs=epochs, is_source=False)

    def begin(self, plan: Promotion) -> None:
        copy = self.copies[plan.leader]
        if (copy.epochs.promised, copy.epochs.promised_to) == (plan.epoch, plan.leader):
            opened = replace(copy.epochs, history=plan.history).opened(END)
            self.copies[plan.leader] = replace(copy, epochs=opened, is_source=True)
            self.begun.setdefault(plan.epoch, set()).add(plan.leader)

    def follow(self, host: int, leader: int) -> None:
        """The host meets the leader, which may be one of an earlier epoch."""
        copy, led = self.copies[host], self.copies[leader]
        last = led.epochs.history[-1] if led.epochs.history else None
        if host != leader and led.is_source and last is not None and last.leader == leader:
            ours = copy.epochs
            is_ours = (ours.promised, ours.promised_to) == (last.number, leader)
            is_ours = is_ours or self.may_give_up(host, last.number)
            if is_ours or ours.promised < last.number:
                epochs = Epochs(
                    promised=last.number, promised_to=leader, history=led.epochs.history
                )
                self.copies[host] = replace(copy, epochs=epochs, is_source=False)
        is_by_file = led.is_source and not led.epochs.promised and self.masters[host] == leader
        if host != leader and is_by_file:
            self.copies[host] = replace(copy, epochs=copy.epochs.streamed_from(leader))


@dataclass
class Operation:
    """A promotion under way."""

    to: int
    plan: Promotion
    promised: set[int]


def run(hosts: Hosts, data: st.DataObject) -> None:
    """Promotions, of which each goes a step at a time, or no further."""
    under_way: list[Operation] = []
    some = st.sets(st.sampled_from(sorted(hosts.ids)))
    one = st.sampled_from(sorted(hosts.ids))
    steps = st.sampled_from(
        ["plan", "promise", "begin", "die", "follow", "reload", "follow", "step down"]
    )
    for step in data.draw(st.lists(steps, max_size=40)):
        if step == "reload":
            hosts.reload(data.draw(one), data.draw(one))
        elif step == "step down":
            hosts.step_down(data.draw(one))
        elif step == "plan":
            to = data.draw(one)
            plan = hosts.plan(to, data.draw(some))
            if not plan.refusal and not plan.is_risky and hosts.promise(to, plan.epoch, to):
                under_way.append(Operation(to, plan, {to}))
                hosts.promoting.append(to)
        elif step == "follow":
            hosts.follow(data.draw(one), data.draw(one))
        elif under_way:
            operation = under_way[data.draw(st.integers(0, len(under_way) - 1))]
            plan, to = operation.plan, operation.to
            if step == "promise":
                asked = data.draw(some)
                operation.promised |= {e for e in asked if hosts.promise(e, plan.epoch, to)}
            else:
                under_way.remove(operation)
                hosts.promoting.remove(to)
                if step == "die":
                    continue
                done = hosts.plan(to, operation.promised, plan)
                if not done.refusal and not done.is_risky:
                    hosts.begin(done)


@pytest.mark.parametrize("acks", [1, 2, 4])
@settings(max_examples=500, deadline=None)
@given(count=st.integers(2, 5), data=st.data())
def test_an_epoch_is_begun_by_one_host_at_most(acks: int, count: int, data: st.DataObject) -> None:
    hosts = Hosts(count, min(acks, count - 1))
    run(hosts, data)
    assert all(len(leaders) == 1 for leaders in hosts.begun.values()), hosts.begun


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("acks", [1, 2, 4])
def test_with_all_others_there_the_last_leader_is_not_missed(count: int, acks: int) -> None:
    """All others promote without the last leader, and again where the promoted host has died."""
    hosts = Hosts(count, min(acks, count - 1))
    others = set(hosts.ids) - {MASTER}
    plan = hosts.plan(2, others)
    assert (plan.is_risky, plan.majority) == (False, (count - 1) // 2 + 1)
    for each in others:
        hosts.promise(each, plan.epoch, 2)
    again = hosts.plan(2, others)  # it died before it had begun, and is back: the old one is not
    assert (again.is_risky, again.epoch) == (False, 2)
    hosts.begin(hosts.plan(2, others, plan))
    for each in others:
        hosts.follow(each, 2)
    hosts.follow(MASTER, 2)
    left = set(hosts.ids) - {2}
    assert not hosts.plan(max(left), left).is_risky


def test_two_copies_that_do_not_see_each_other_do_not_both_do() -> None:
    """Writes wait for all copies: so each has all that was safe, but both could lead in one
    epoch."""
    hosts = Hosts(3, acks=2)
    for own in (2, 3):
        plan = hosts.plan(own, {own})
        assert (plan.may_lose, plan.may_split, plan.majority) == (False, True, 2)
        told = plan.lines(is_done=False)[-1]
        assert told.startswith("may be led by two hosts in epoch 1: 2 hosts expected to promise")
        assert "host 1" not in told
        assert plan.fields()["may_split"]
    assert not hosts.plan(2, {2, 3}).is_risky
    assert not hosts.plan(2, {1, 2}).is_risky  # that promises to one of the two


def test_the_last_leader_and_one_more_do_where_writes_wait_for_one_copy() -> None:
    """Without that leader all others have to promise; so it may be given up with half away."""
    assert not Hosts(5, acks=1).plan(2, {1, 2}).is_risky
    assert Hosts(5, acks=2).plan(2, {1, 2}).may_split


def test_one_of_two_that_was_promised_to_the_other_does_not_lead_alone() -> None:
    """The host that was to lead may go on with that alone: it died in the middle, and is back."""
    hosts = Hosts(2, acks=1)
    for each in hosts.ids:
        hosts.promise(each, 1, 2)
    assert hosts.plan(1, {1}).may_split
    assert not hosts.plan(2, {2}).is_risky


def test_of_two_that_hand_over_by_file_one_at_most_leads_alone() -> None:
    """The old master has given the queue up, and the next one, which it does not see, has the older
    file: each file names the other host."""
    hosts = Hosts(2, acks=1)
    hosts.reload(1, 2)
    assert (hosts.masters, hosts.copies[1].is_source) == ({1: 2, 2: 1}, False)
    assert hosts.plan(1, {1}).may_split
    assert not hosts.plan(2, {2}).is_risky
    hosts.reload(2, 2)
    hosts.follow(1, 2)  # now it knows
    assert not hosts.plan(1, {1}).is_risky
    assert hosts.plan(2, {2}).may_split  # it leads, and begins the first epoch with the other one
    assert not hosts.plan(2, {1, 2}).is_risky


def test_two_halves_with_two_files_do_not_both_lead() -> None:
    """A host that has read a newer file knows of no later leader for that. A host that has an older
    file does not know either that the next leader has begun, and it asks that leader too."""
    hosts = Hosts(4, acks=2)
    hosts.reload(3, 2)  # and host 1 has not handed it over
    assert hosts.plan(3, {1, 3}).majority == 3
    assert not hosts.plan(4, {2, 4}).may_split
    hosts.reload(1, 2)
    hosts.reload(2, 2)
    hosts.follow(1, 2)
    assert not hosts.plan(3, {1, 2, 3}).may_split
    assert hosts.plan(4, {2, 4}).may_split  # one of them knows of the next one, and one does not
    assert hosts.plan(3, {3, 4}).majority == 2  # both know only of the first one
    assert not hosts.plan(1, {1, 3}).may_split  # so does one, and that first one says otherwise
    hosts.reload(2, 3)  # and host 3 has not taken it over
    assert hosts.plan(4, {2, 4}).may_split


def test_copies_of_which_one_has_promised_tell_no_more_who_led() -> None:
    """Either half could be the later one where both know of that promise alone."""
    hosts = Hosts(4, acks=2)
    hosts.promise(3, 1, 3)
    assert hosts.plan(3, {3, 4}).may_split
    assert not hosts.plan(3, {2, 3, 4}).may_split


def test_a_copy_that_has_not_planned_it_counts_as_one_that_may_have_led() -> None:
    hosts = Hosts(4, acks=2)
    plan = hosts.plan(3, {3, 4})
    assert not plan.is_risky
    for each in (2, 3):
        hosts.promise(each, plan.epoch, 3)
    assert hosts.plan(3, {2, 3}, plan).may_split
