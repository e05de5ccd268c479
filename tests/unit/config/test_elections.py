"""Elections and groups in the file of a cluster, and what is wrong with them, at its place."""

from pathlib import Path
from typing import Any

import pytest

from cqrepl.config import electionplan
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.replicator.electionsettings import ElectionKind, ElectionSettings, ZooKeeperSettings

HOSTS = "".join(
    f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:900{each}"}}\n'
    for each in (1, 2, 3, 4)
)
QUEUES = "queues:\n  q: {acknowledge: true}\n"


def text(
    cluster: str,
    *,
    hosts: int = 3,
    queues: str = QUEUES,
    context: str = "{basePath: data/$hostId}",
    more: str = "",
) -> str:
    lines = "".join(HOSTS.splitlines(keepends=True)[:hosts])
    return f"cluster:\n  context: {context}\n{lines}{queues}cqrepl:\n{more}  cluster: {cluster}\n"


def planned(cluster: str, **given: Any) -> HostPlan:
    config = read_cluster(text(cluster, **given).encode(), "c.yaml")
    return plan_host(config, 1, in_effect(config, {}, {}))


def test_a_section_alone_elects_by_majority_and_each_host_starts_as_a_follower() -> None:
    plan = planned(
        "{leaseTimeout: 1500ms}", queues="queues:\n  q: {acknowledge: true, masterId: 1}\n"
    )
    assert plan.settings.election == ElectionSettings(lease_seconds=1.5)
    assert plan.settings.awaits_leader
    assert plan.settings.sources == {}
    assert plan.settings.sinks == {"q": Path("data/1/q")}


def test_by_hand_is_as_without_the_section() -> None:
    queues = "queues:\n  q: {masterId: 1}\n"
    plan = planned("{election: by-hand}", queues=queues)
    assert plan.settings.election is None
    assert plan.settings.sources == {"q": Path("data/1/q")}


def test_groups_are_queues_that_members_lead_in_turn() -> None:
    groups = "{groups: {count: 4, members: [3, 1, 2], rollCycle: FAST_HOURLY}}"
    plan = planned(groups, queues="")
    assert sorted(plan.settings.sinks) == ["g0", "g1", "g2", "g3"]
    assert set(plan.settings.source.made_with.values()) == {"FAST_HOURLY"}
    policy = plan.settings.source.policies["g0"]
    assert (policy.level.name, policy.hosts_min, policy.hosts) == ("SYNCED", 1, frozenset({2, 3}))
    election = plan.settings.election
    assert election is not None
    assert election.preferred == {"g0": 3, "g1": 1, "g2": 2, "g3": 3}
    assert election.gives_back
    assert set(election.members.values()) == {frozenset({1, 2, 3})}
    off = planned("{groups: {count: 1, preferred: false}}").settings.election
    assert off is not None
    assert not off.gives_back


def test_a_group_of_one_member_waits_for_no_other_host() -> None:
    plan = planned("{groups: {count: 1, members: [1]}}", queues="")
    assert plan.settings.source.policies["g0"].hosts_min == 0


def test_candidates_may_stand_in_zookeeper_also_where_there_are_two() -> None:
    pytest.importorskip("kazoo", reason="elections by ZooKeeper need it")
    servers = "{hosts: [zk1:2181, zk2:2181], path: /queues/, sessionTimeout: 4s}"
    plan = planned(f"{{election: zookeeper, zookeeper: {servers}}}", hosts=2)
    election = plan.settings.election
    assert election is not None
    assert election.zookeeper == ZooKeeperSettings(
        hosts=("zk1:2181", "zk2:2181"), path="/queues", session_seconds=4.0
    )


def test_kazoo_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(electionplan, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"expected kazoo for zookeeper \(pip install"):
        planned("{election: zookeeper, zookeeper: {hosts: zk:2181}}")


@pytest.mark.parametrize(
    ("cluster", "given", "message"),
    [
        ("{election: zookeeper}", {}, "expected 'zookeeper: {hosts: [...]}' beside it, got none"),
        ("{zookeeper: {hosts: a:1}}", {}, "expected 'election: zookeeper' beside it, got majority"),
        ("{zookeeper: {path: /x}}", {}, "expected 'hosts' of 'zookeeper', got none"),
        ("{zookeeper: {hosts: a:1, user: me}}", {}, "expected 'user' and 'passwordFile'"),
        ("{zookeeper: {hosts: a:1, path: x}}", {}, "expected a 'path' of 'zookeeper' such as"),
        ("{zookeeper: {hosts: a:1, port: 2}}", {}, "expected hosts, path, sessionTimeout, user"),
        ("{}", {"hosts": 2}, "c.yaml:8:3: 'election': all hosts of the cluster: expected one"),
        (
            "{groups: {count: 1, members: [1, 2]}}",
            {},
            "c.yaml:9:21: 'groups': group 'g0': expected one member or 3 to 7",
        ),
        (
            "{groups: {count: 1, members: [1, 2, 9]}}",
            {},
            "c.yaml:9:32: 'groups': expected ids of hosts (1, 2, 3) as members, got 9",
        ),
        ("{groups: {members: [1]}}", {}, "c.yaml:9:22: expected a 'count' of groups, got none"),
        (
            "{groups: {count: 1, rollCycle: YEARLY}}",
            {},
            "rollCycle of groups: expected the name of a roll cycle, got 'YEARLY'",
        ),
        ("{groups: {count: 65}}", {}, "expected a count of groups from 1 to 64, got '65'"),
        ("{groups: {count: 1, members: [1, 1]}}", {}, "as members of groups, each once, got '1+1'"),
        ("{groups: {count: 1, size: 2}}", {}, "expected count, members, rollCycle and preferred"),
        (
            "{election: by-hand, groups: {count: 1}}",
            {"queues": "queues:\n  q: {masterId: 1}\n"},
            "'groups': expected an election with groups, got by-hand",
        ),
        ("{groups: {count: 1}}", {"queues": "queues:\n  g0: {acknowledge: true}\n"}, "got 'g0'"),
        ("{leaseTimeout: 499ms}", {}, "a time such as 2s or 500ms, from 0.5s to 3600s, expected"),
        ("{leaseTimeout: 2}", {}, "a time such as 2s or 500ms"),
        ("{election: lot}", {}, "one of by-hand, majority, zookeeper expected for 'election'"),
        (
            "{}",
            {"queues": "queues:\n  q: {masterId: 1}\n"},
            "queue 'q': expected 'acknowledge: true' with an election, got false",
        ),
        (
            "{}",
            {"context": "{baseSourcePath: a, baseSinkPath: b}"},
            "expected 'basePath' alone with an election, got 'baseSourcePath'",
        ),
        (
            "{}",
            {"more": "  routes: {q: {3: 2}}\n"},
            "'routes': expected no routes with an election, got some of queue 'q'",
        ),
    ],
)
def test_what_cannot_be_elected_is_refused_at_its_place(
    cluster: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(cluster, **given)
    assert message in str(caught.value)


def test_settings_that_do_not_fit_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": ElectionKind.BY_HAND}, "no settings of elections"),
        ({"lease_seconds": 0.4}, "expected a lease of at least 0.5 s, got 0.4"),
        ({"members": {"q": frozenset({1, 2})}}, "queue 'q': expected one member or 3 to 7"),
        ({"members": {"q": frozenset(range(1, 9))}}, "queue 'q': expected 1 to 7 members, got 8"),
        (
            {"members": {"q": frozenset({1})}, "preferred": {"q": 2}},
            "queue 'q': expected a member (1), got host 2",
        ),
    ]
    for given, message in wrong:
        with pytest.raises(ValueError) as caught:
            ElectionSettings(**given)
        assert message in str(caught.value)
