"""Options of single queues in the file of a cluster: members, and who may append."""

from pathlib import Path

import pytest

from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host

HOSTS = "".join(
    f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:900{each}"}}\n' for each in (1, 2, 3)
)
QUEUES = "queues:\n" + "".join(
    f"  {name}: {{masterId: 1, acknowledge: true}}\n" for name in ("orders", "orders-old", "trades")
)


def planned(options: str, host_id: int = 1, more: str = "") -> HostPlan:
    text = f"cluster:\n  context: {{basePath: data}}\n{HOSTS}{QUEUES}cqrepl:\n  queues: {options}\n"
    config = read_cluster((text + more).encode(), "c.yaml")
    return plan_host(config, host_id, in_effect(config, {}, {}))


def test_members_alone_have_a_queue() -> None:
    """Its policy counts them, too."""
    options, ack = "{orders: {members: [1, 2]}}", "  ack: {orders: {from: all}}\n"
    first, third = planned(options, 1, ack), planned(options, 3, ack)
    assert first.settings.members == {"orders": {1, 2}}
    assert first.settings.source.policies["orders"].hosts == frozenset({2})
    assert first.settings.source.led_takers["orders"] == {2}
    assert third.sinks == {each: Path("data") / each for each in ("orders-old", "trades")}
    assert "orders" not in third.settings.sink.masters


def test_a_pattern_stands_for_queues_without_a_name_of_their_own() -> None:
    options = "{'orders*': {members: [1, 2], exclusive: true}, orders: {exclusive: false}}"
    settings = planned(options).settings
    assert settings.members == {"orders-old": {1, 2}}
    assert settings.source.exclusive == {"orders-old"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("{order: {members: [1, 2]}}", "a queue expected, 'order' came; the nearest one is"),
        ("{orders: {members: [1, 4]}}", r"ids of hosts \(1, 2, 3\) expected as members, 4 came"),
        ("{orders: {members: [2, 3]}}", r"its master, host 1, expected among its members \(2, 3\)"),
        ("{orders: {members: []}}", "expected for 'queues'"),
        ("{orders: {members: [1, 1]}}", "expected for 'queues'"),
        ("{orders: {member: [1]}}", "one of members, exclusive, startLock expected, 'member' came"),
        ("{orders: {exclusive: maybe}}", "expected for 'queues'"),
        ("{orders: {startLock: true}}", "an election expected with 'startLock', none came"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(options: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"c\.yaml:11:\d+: .*{why}"):
        planned(options)


def test_a_route_leads_by_members_only() -> None:
    with pytest.raises(ConfigError, match="host 3 is none of its members"):
        planned("{orders: {members: [1, 2]}}", 1, "  routes: {orders: {3: 2}}\n")
