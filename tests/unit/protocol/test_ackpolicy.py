"""Policies: what they call safe, and how they are written."""

from typing import Any

import pytest

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.ackpolicy import (
    PRESETS,
    AckPolicy,
    From,
    OnTimeout,
    commit_index,
    parse_policy,
)

APPENDED, SYNCED, APPLIED = AckLevel
THREE = {
    2: {APPENDED: 90, SYNCED: 50, APPLIED: 70},
    3: {APPENDED: 80, SYNCED: 80},
    4: {APPENDED: 60, SYNCED: 10, APPLIED: 60},
}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("from=none", 100),
        ("from=any", 90),
        ("from=2", 80),
        ("from=3", 60),
        ("from=4", -1),
        ("from=all hosts=2+3+4", 60),
        ("from=all hosts=2+3", 80),
        ("from=all hosts=2+5", -1),  # never seen, and counted
        ("from=all", -1),  # the policy names no hosts: which are all is not known
        ("from=1 hosts=4", 60),
        ("level=synced from=any", 80),
        ("level=synced from=2", 50),
        ("level=applied from=2", 60),
        ("level=applied from=3", -1),
    ],
)
def test_what_is_safe(text: str, safe: int) -> None:
    assert commit_index(parse_policy(text), THREE, 100) == safe


@pytest.mark.parametrize("name", PRESETS)
def test_the_rules_of_the_five_systems_have_names(name: str) -> None:
    assert parse_policy(name) == PRESETS[name]
    assert parse_policy(f"preset={name} window=5").window == 5


def test_what_the_presets_say() -> None:
    said = {name: (each.level, each.from_) for name, each in PRESETS.items()}
    assert said == {
        "queue-unacknowledged": (APPENDED, From.NONE),
        "queue-acknowledged": (APPENDED, From.ANY),
        "persist-synchronous": (APPLIED, From.ANY),
        "persist-asynchronous": (APPENDED, From.NONE),
        "grid-synchronous": (APPLIED, From.ALL),
        "grid-asynchronous": (APPENDED, From.NONE),
        "broker-quorum": (SYNCED, From.MAJORITY),
    }
    persist = PRESETS["persist-synchronous"]
    assert (persist.timeout_seconds, persist.on_timeout) == (0.01, OnTimeout.WARN)
    assert PRESETS["grid-synchronous"].timeout_seconds is None
    broker = PRESETS["broker-quorum"]
    assert (broker.timeout_seconds, broker.on_timeout) == (40, OnTimeout.STEP_DOWN)
    assert parse_policy("broker-quorum from=3").hosts_min == 3


def test_all_hosts_are_those_that_are_configured() -> None:
    policy = PRESETS["grid-synchronous"].among({2, 3})
    assert (policy.hosts, policy.hosts_min) == (frozenset({2, 3}), 2)
    assert policy.among({4}) is policy
    with pytest.raises(ValueError, match="from 1 to 2 expected for 'from', 3 came"):
        AckPolicy(from_=3).among({2, 3})
    others = {
        count: AckPolicy(from_="majority").among(range(2, count + 1)) for count in range(2, 8)
    }
    needed = {count: each.hosts_min for count, each in others.items()}
    assert needed == {2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3}
    assert AckPolicy(from_="majority").hosts_min is None
    assert commit_index(AckPolicy(from_="majority"), THREE, 100) == -1
    with pytest.raises(ValueError, match="hosts expected with 'from: all', none came"):
        AckPolicy(from_=From.ALL).among(())
    assert AckPolicy(from_=From.NONE).among(()).hosts_min == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a policy such as"),
        ("level", "one of queue-unacknowledged"),
        ("level=", "one of appended, synced, applied expected for 'level', '' came"),
        ("level=received", "one of appended"),  # for measuring, never in a policy
        ("from=0", "a number of hosts from 1 to 127 expected for 'from', 0 came"),
        ("from=-1", "none, any, all, majority or a number expected for 'from', '-1'"),
        ("from=128", "from 1 to 127 expected"),
        ("from=3 hosts=2+3", "from 1 to 2 expected for 'from', 3 came"),
        ("hosts=0", "host ids from 1 to 127 expected"),
        ("hosts=a", "host ids expected for 'hosts', 'a' came"),
        ("timeout=5", "a time such as 10ms"),
        ("timeout=99999999m", "0 to 1000000 s expected for 'timeout'"),
        ("on_timeout=maybe", "one of warn, fail, block, step_down expected"),
        ("on_timeout=fail", "a 'timeout' expected with 'on_timeout: fail', none came"),
        ("broker-quorum timeout=none", "a 'timeout' expected with 'on_timeout: step_down'"),
        ("window=0", "a number of excerpts from 1 to"),
        ("window=x", "a number of excerpts expected"),
        ("copies=2", "one of preset, level, from"),
        ("from=2 from=3", "'from' expected once"),
        ("broker-quorum preset=broker-quorum", "'preset' expected once"),
    ],
)
def test_what_is_no_policy_is_told_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        parse_policy(text)
    assert says in str(caught.value)


def test_what_has_a_name_may_be_given_by_it() -> None:
    by_name: Any = {"level": "synced", "from_": "all", "hosts": [2, 3], "on_timeout": "step_down"}
    policy = AckPolicy(**by_name, timeout_seconds=1)
    assert policy == parse_policy("level=synced from=all hosts=2+3 timeout=1s on_timeout=step_down")
    assert policy.level is SYNCED
    assert policy.from_ is From.ALL
    assert policy.on_timeout is OnTimeout.STEP_DOWN
    assert hash(policy) == hash(policy.among({4}))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("level", "stored", "one of appended, synced, applied expected for 'level', 'stored' came"),
        ("level", 1, "expected for 'level', 1 came"),
        ("level", ["synced"], "expected for 'level', ['synced'] came"),
        ("from_", "some", "none, any, all, majority or a number expected for 'from', 'some'"),
        ("from_", 1.0, "expected for 'from', 1.0 came"),
        ("from_", True, "expected for 'from', True came"),
        ("from_", None, "expected for 'from', None came"),
        ("hosts", 2, "host ids from 1 to 127 expected for 'hosts', 2 came"),
        ("hosts", "2+3", "expected for 'hosts', '2+3' came"),
        ("hosts", [2.0], "expected for 'hosts', [2.0] came"),
        ("hosts", [True], "expected for 'hosts', [True] came"),
        ("timeout_seconds", "1s", "a number of seconds expected for 'timeout', '1s' came"),
        ("timeout_seconds", True, "expected for 'timeout', True came"),
        ("timeout_seconds", float("nan"), "0 to 1000000 s expected for 'timeout', nan came"),
        ("on_timeout", "panic", "expected for 'on_timeout', 'panic' came"),
        ("on_timeout", None, "expected for 'on_timeout', None came"),
        ("on_timeout", OnTimeout.FAIL, "a 'timeout' expected with 'on_timeout: fail', none came"),
        ("window", 1.5, "expected for 'window', 1.5 came"),
        ("window", True, "expected for 'window', True came"),
        ("window", "5", "expected for 'window', '5' came"),
    ],
)
def test_what_is_no_value_of_a_field_is_told_in_one_line(field: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        AckPolicy(**{field: value})
    assert says in str(caught.value)
