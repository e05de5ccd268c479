"""Each set of hosts, of three to seven, that may make one of them the leader: any two share a host,
and each meets every set of copies that a write can have waited for.

All sets are tried, with each number of copies that a write waits for.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import combinations

import pytest

from cqrepl.cluster.promotion import plan_promotion
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import Epoch, Epochs
from cqrepl.queue.format.index import Index

SIZES = range(3, 8)
LED = 1  # the host that has led last
END = Index(5)


def subsets(hosts: Iterable[int], least: int = 1) -> Iterator[frozenset[int]]:
    found = sorted(hosts)
    for count in range(least, len(found) + 1):
        yield from map(frozenset, combinations(found, count))


def followers(hosts: Set[int], led: int = LED) -> dict[int, CopyPosition]:
    """Copies of a queue that a host leads in its first epoch."""
    epochs = Epochs(promised=1, promised_to=led, history=(Epoch(1, led, Index(0)),))
    return {h: CopyPosition(next_index=END, epochs=epochs, is_source=h == led) for h in hosts}


def may_lead(
    copies: Mapping[int, CopyPosition],
    hosts: Set[int],
    acks: int,
    also: Set[int] = frozenset(),
    master: int = LED,
) -> list[frozenset[int]]:
    """The sets of hosts that make one of them the leader, where they alone answer."""
    found = []
    for seen in subsets(copies):
        positions = {each: copies[each] for each in seen}
        to = max(seen)  # not the one that leads, but where it is alone
        plan = plan_promotion("q", to, hosts, positions, master=master, acks=acks, also=also)
        if not plan.refusal and not plan.is_risky:
            found.append(seen)
    return found


def unmet(sets: Iterable[Set[int]], others: Iterable[Set[int]]) -> list[tuple[Set[int], Set[int]]]:
    second = list(others)
    return [(one, other) for one in sets for other in second if not one & other]


def waited_for(hosts: Set[int], led: int, acks: int) -> Iterator[frozenset[int]]:
    """The sets of copies that a write of a leader can have waited for, with its own."""
    for copies in combinations(sorted(hosts - {led}), acks):
        yield frozenset({led, *copies})


@pytest.mark.parametrize("count", SIZES)
def test_a_leader_of_an_epoch_is_there_or_not(count: int) -> None:
    hosts = frozenset(range(1, count + 1))
    for acks in range(1, count):
        sets = may_lead(followers(hosts), hosts, acks)
        assert hosts in sets
        assert hosts - {LED} in sets
        assert not unmet(sets, sets)
        assert not unmet(sets, waited_for(hosts, LED, acks))


@pytest.mark.parametrize("count", SIZES)
def test_copies_disagree_on_which_host_has_led(count: int) -> None:
    """By the file another host has led since, of which some copies have not heard. The one before
    has given the queue up, and follows or not yet."""
    hosts = frozenset(range(1, count + 1))
    for late in range(count - 1):
        stale = frozenset(range(3, 3 + late))  # none is the one that leads now
        for has_heard in (True, False):
            known = {each: LED if each in stale else 2 for each in hosts}
            known[LED] = 2 if has_heard else LED
            copies = {
                each: CopyPosition(
                    next_index=END, epochs=Epochs().streamed_from(known[each]), is_source=each == 2
                )
                for each in hosts
            }
            for acks in range(1, count):
                sets = may_lead(copies, hosts, acks)
                assert hosts in sets
                assert not unmet(sets, sets)
                heard = [
                    each
                    for each in waited_for(hosts, 2, acks)
                    if all(known[one] == 2 for one in each)  # others have taken nothing from it
                ]
                assert not unmet(sets, heard)


@pytest.mark.parametrize("count", SIZES)
def test_no_host_has_ever_led(count: int) -> None:
    hosts = frozenset(range(1, count + 1))
    copies = {h: CopyPosition(next_index=Index(0), epochs=Epochs(), is_source=False) for h in hosts}
    for acks in range(1, count):
        sets = may_lead(copies, hosts, acks, master=0)
        assert sets == list(subsets(hosts, count // 2 + 1))


@pytest.mark.parametrize("count", range(3, 7))
def test_two_lists_of_members_that_may_both_be_the_last(count: int) -> None:
    """One host came in, or one goes. Hosts that count both lists meet those that know but one."""
    older = frozenset(range(1, count + 1))
    for newer in (older | {count + 1}, older - {count}):
        if len(newer) < 3:
            continue
        for acks in range(1, min(len(older), len(newer))):
            both = may_lead(followers(older | newer), newer, acks, also=older)
            assert older | newer in both
            assert not unmet(both, both)
            for one in (older, newer):
                assert not unmet(both, may_lead(followers(one), one, acks))
                assert not unmet(both, waited_for(one, LED, acks))
