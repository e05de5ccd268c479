"""Which replicas a commit waits for, and which hosts have a copy."""

import doctest
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cqrepl.grid import placement
from cqrepl.grid.partition.peerset import PeerSet, WaitedCopies
from cqrepl.grid.placement import place, rendezvous

LEASE = 2.0


def peers(sync: int = 1, least: int = 1) -> PeerSet:
    return PeerSet([3, 2, 5], sync, least, LEASE, 0.0)


def test_a_replica_is_a_peer_once_it_has_all_there_was() -> None:
    """E-42: it is looked at twice, so one that never comes level is none."""
    those = peers()
    those.look(1.0, {3: 90, 2: 50}, 100)
    assert (those.peers, those.waited()) == ([], WaitedCopies(1, frozenset({3, 2, 5})))
    those.look(1.1, {3: 99, 2: 100}, 120)
    assert (those.peers, those.waited()) == ([2], WaitedCopies(1, frozenset({2})))
    those.look(1.2, {3: 120, 2: 119}, 125)
    assert (those.peers, those.waited()) == (
        [3, 2],
        WaitedCopies(1, frozenset({3})),
    )  # the order of the group


def test_a_replica_that_is_silent_for_a_lease_leaves_and_comes_back() -> None:
    those = peers(sync=2)
    for now in (1.0, 1.1):
        those.look(now, {3: 100, 2: 100}, 100)
    assert those.waited() == WaitedCopies(2, frozenset({3, 2}))
    those.look(2.0, {3: 100, 2: 150}, 150)
    those.look(3.0, {3: 100, 2: 199}, 200)  # it lacks some, and more comes to it
    assert those.waited() == WaitedCopies(2, frozenset({3, 2}))
    those.look(3.2, {3: 100, 2: 200}, 200)
    assert (those.peers, those.missing) == ([2], [])
    assert those.waited() == WaitedCopies(1, frozenset({2}))
    those.look(4.0, {3: 199, 2: 200}, 200)
    assert those.peers == [2]
    those.look(4.1, {3: 200, 2: 200}, 210)
    assert those.peers == [3, 2]


def test_a_quiet_replica_that_has_all_stays() -> None:
    those = peers()
    for now in (1.0, 1.1, 50.0, 500.0):
        those.look(now, {3: 100, 2: 100}, 100)
    assert those.peers == [3, 2]


def test_fewer_than_the_least_are_never_waited_for() -> None:
    those = peers(sync=2, least=2)
    for now in (1.0, 1.1):
        those.look(now, {3: 100}, 100)
    assert those.waited() == WaitedCopies(2, frozenset({3, 2, 5}))
    assert those.missing == [2, 5]


def test_without_synchronous_replicas_no_host_is_waited_for() -> None:
    those = peers(sync=0, least=0)
    those.look(1.0, {3: 100}, 100)
    assert those.waited() == WaitedCopies(0, frozenset())


@given(st.sets(st.integers(1, 127), min_size=1, max_size=8), st.integers(0, 63))
def test_a_host_that_goes_changes_nothing_else(hosts: set[int], group: int) -> None:
    """Never two copies on one host (E-06); fewer where there are too few hosts."""
    order = rendezvous("s", group, hosts)
    assert sorted(order) == sorted(hosts)
    gone = order[0]
    assert rendezvous("s", group, hosts - {gone}) == order[1:]
    copies = place("s", group, hosts, 3, {})
    assert len(set(copies)) == len(copies) == min(3, len(hosts))


def test_copies_are_spread_over_hosts_and_zones() -> None:
    first = Counter(rendezvous("s", group, range(1, 5))[0] for group in range(400))
    assert all(60 < each < 140 for each in first.values())
    zones = {1: "a", 2: "a", 3: "b", 4: "b"}
    for group in range(50):
        assert {zones[each] for each in place("s", group, zones, 2, zones)} == {"a", "b"}


def test_the_examples_of_the_module_are_right() -> None:
    assert doctest.testmod(placement).failed == 0
