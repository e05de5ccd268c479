"""A policy calls an excerpt safe exactly when so many of the hosts that count have it, at the
policy's level: whatever comes, goes, was never seen, is forged or absurd."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.ackpolicy import (
    AckPolicy,
    From,
    Marks,
    OnTimeout,
    commit_index,
    parse_policy,
)
from cqrepl.replicator.leadership import AckOutcome, Leading
from cqrepl.replicator.marks.ackboard import AckBell

LAST = 40
HOSTS = range(1, 128)
SINKS = st.integers(1, 6)
# of hosts that were never seen, of guests, and of ids that no host has
PEERS = st.one_of(SINKS, st.sampled_from([0, -1, 127, 128, 1 << 40]))
INDEXES = st.one_of(
    st.integers(-1, LAST), st.sampled_from([-(1 << 63), -2, LAST + 1, (1 << 63) - 1])
)
MARKS = st.dictionaries(PEERS, st.dictionaries(st.sampled_from(AckLevel), INDEXES))


@st.composite
def policies(draw: st.DrawFn) -> AckPolicy:
    hosts = draw(st.none() | st.frozensets(SINKS, min_size=1))
    most = 127 if hosts is None else len(hosts)
    timeout = draw(st.none() | st.integers(0, 10**9).map(lambda us: us / 1e6))
    return AckPolicy(
        level=draw(st.sampled_from(AckLevel)),
        from_=draw(st.sampled_from(From) | st.integers(1, min(most, 7))),
        hosts=hosts,
        timeout_seconds=timeout,
        on_timeout=OnTimeout.BLOCK if timeout is None else draw(st.sampled_from(OnTimeout)),
        window=draw(st.none() | st.integers(1, 1000)),
    )


def is_safe(policy: AckPolicy, marks: Marks, index: int) -> bool:
    """The statement: one excerpt, one host after the other."""
    counted = HOSTS if policy.hosts is None else policy.hosts
    have_it = 0
    for host in counted:
        levels = marks.get(host, {})
        if all(levels.get(each, -1) >= index for each in (AckLevel.APPENDED, policy.level)):
            have_it += 1
    match policy.from_:
        case From.NONE:
            return True
        case From.ANY:
            return have_it >= 1
        case From.ALL:
            return policy.hosts is not None and have_it == len(policy.hosts)
        case From.MAJORITY:  # with the leader, which has it, more than half of all
            return policy.hosts is not None and 2 * (have_it + 1) > len(policy.hosts) + 1
    return have_it >= policy.from_


@given(policies(), MARKS, st.integers(-1, LAST))
def test_all_is_safe_up_to_the_index_and_nothing_behind_it(
    policy: AckPolicy, marks: Marks, last: int
) -> None:
    safe = commit_index(policy, marks, last)
    assert -1 <= safe <= last
    assert [is_safe(policy, marks, index) for index in range(last + 1)] == [
        index <= safe for index in range(last + 1)
    ]


@given(policies(), MARKS, PEERS, st.sampled_from(AckLevel), INDEXES)
def test_what_a_host_has_more_takes_nothing_back(
    policy: AckPolicy, marks: Marks, host: int, level: AckLevel, index: int
) -> None:
    known = marks.get(host, {})
    more = {**marks, host: {**known, level: max(index, known.get(level, -1))}}
    assert commit_index(policy, more, LAST) >= commit_index(policy, marks, LAST)


@given(policies(), MARKS, st.integers(0, LAST))
def test_what_the_queue_has_more_takes_nothing_back(
    policy: AckPolicy, marks: Marks, last: int
) -> None:
    assert commit_index(policy, marks, LAST) >= commit_index(policy, marks, last)


@given(MARKS, st.frozensets(SINKS, min_size=1), st.sampled_from(AckLevel))
def test_more_hosts_call_no_more_safe(marks: Marks, hosts: frozenset[int], level: AckLevel) -> None:
    asked = [AckPolicy(level=level, from_=count, hosts=hosts) for count in range(1, len(hosts) + 1)]
    safe = [commit_index(policy, marks, LAST) for policy in asked]
    assert safe == sorted(safe, reverse=True)
    assert safe[0] == commit_index(AckPolicy(level=level, hosts=hosts), marks, LAST)
    every = AckPolicy(level=level, from_=From.ALL, hosts=hosts)
    assert safe[-1] == commit_index(every, marks, LAST)


def has_it(leading: Leading, policy: AckPolicy, index: int) -> bool:
    """True when a wait, which looks once, calls the index safe."""
    once = replace(policy, timeout_seconds=0, on_timeout=OnTimeout.WARN)
    return leading.wait(index, once) is AckOutcome.ACKED


@given(
    policies().filter(lambda policy: policy.hosts_min is not None),
    st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.sampled_from(AckLevel), INDEXES)),
)
def test_a_wait_and_the_index_agree(
    policy: AckPolicy, said: list[tuple[bool, int, AckLevel, int]]
) -> None:
    """A wait and the commit index agree, whatever marks were raised and lowered, at whichever level
    first. A policy that waits for no host calls all safe up to the end of the queue."""
    board = AckBell().board("q")
    leading = Leading("q", Path(), board, policy)
    for is_raised, host, level, index in said:
        row = board.row(host)
        (row.raise_to if is_raised else row.lower_to)(level, index)
    safe = commit_index(policy, leading.marks(), LAST)
    assert safe == -1 or has_it(leading, policy, safe)
    assert safe == LAST or not has_it(leading, policy, safe + 1)


@given(policies())
def test_a_policy_is_read_as_it_is_written(policy: AckPolicy) -> None:
    read = parse_policy(str(policy))
    timeouts = policy.timeout_seconds, read.timeout_seconds
    assert (timeouts[0] is None) == (timeouts[1] is None)
    if timeouts[0] is not None and timeouts[1] is not None:
        assert abs(timeouts[0] - timeouts[1]) < 1e-6
    assert replace(read, timeout_seconds=timeouts[0]) == policy
