"""Hosts that elect, over a network that loses, delays and is cut, with clocks that drift and hosts
that freeze, start again and are promoted by an operator: an epoch has one leader, a read is
answered only while no later leader serves, and once all is quiet there is a leader soon."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.electorate import LEASE, Electorate

TROUBLED_SECONDS = 60.0
QUIET_LEASES = 14  # a random time of eight, when candidates met again and again, and what is around


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), hosts=st.integers(3, 7), troubles=st.integers(0, 40))
@example(seed=1, hosts=3, troubles=40)
@example(seed=2, hosts=4, troubles=40)
@example(seed=3, hosts=6, troubles=40)
# a lease that is counted from the answer reads after a thaw here
@example(seed=16, hosts=5, troubles=40)
@example(seed=18, hosts=4, troubles=40)
def test_elections_keep_their_promises(seed: int, hosts: int, troubles: int) -> None:
    electorate = Electorate(seed, hosts)
    electorate.run(TROUBLED_SECONDS, troubles=troubles)
    electorate.quiet()
    electorate.run(QUIET_LEASES * LEASE)
    assert not electorate.faults
    assert len(electorate.leaders) == 1
    leader = electorate.members[electorate.leaders[0]]
    assert leader.queue.may_read(leader.now)
    assert all(each.queue.leader == leader.host_id for each in electorate.members.values())


def test_reads_are_answered_at_all() -> None:
    electorate = Electorate(7, 3)
    electorate.run(20.0)
    assert electorate.reads > 50
    assert len(electorate.began) == 1
