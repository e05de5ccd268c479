"""Groups of storages in the file of a cluster."""

from pathlib import Path

import pytest

from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.config.serviceplan import plan_services
from cqrepl.persist.storage.storageservice import StorageSettings
from cqrepl.protocol.ackpolicy import PRESETS

TEXT = """\
cluster:
  context: {{basePath: data}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:7001"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:7002"}}
  host3: {{hostId: 3, connectUri: "127.0.0.1:7003"}}
cqrepl:
  cluster: {{election: {election}}}
  persist: {persist}
{more}
"""


def planned(persist: str, election: str = "majority", more: str = "", path: str = "c") -> HostPlan:
    text = TEXT.format(persist=persist, election=election, more=more)
    config = read_cluster(text.encode(), path)
    return plan_host(config, 1, in_effect(config, {}, {}))


def storages(plan: HostPlan) -> dict[str, StorageSettings]:
    return dict(plan_services(plan).storages)


def test_a_group_has_a_queue_and_each_own_log_another_one() -> None:
    plan = planned("{fix: {ownLog: [east, west], defaults: {mode: sync, ackTimeout: 10ms}}}")
    assert {*plan.sources, *plan.sinks} == {"p-fix", "p-fix-east", "p-fix-west"}
    found = storages(plan)
    assert {name: each.own_log for name, each in found.items()} == {
        "p-fix": False,
        "p-fix-east": True,
        "p-fix-west": True,
    }
    assert found["p-fix"].timeout_seconds == 0.01
    assert plan.settings.source.exclusive == {"p-fix"}  # engines append to the others
    policy = plan.settings.source.policies["p-fix"]
    assert policy.level is PRESETS["persist-synchronous"].level
    assert policy.hosts_min == 1


def test_without_an_election_the_first_host_leads() -> None:
    plan = planned("{fix: {}}", "by-hand")
    assert dict(plan.masters) == {"p-fix": 1}
    assert storages(plan)["p-fix"].timeout_seconds == 0.0


@pytest.mark.parametrize(
    ("defaults", "seconds"),
    [("{ackTimeout: 10ms}", 0.01), ("{mode: async, ackTimeout: 10ms}", 0.0), ("{}", 0.0)],
)
def test_defaults_say_how_long_a_write_waits(defaults: str, seconds: float) -> None:
    assert storages(planned(f"{{fix: {{defaults: {defaults}}}}}"))["p-fix"].timeout_seconds == (
        seconds
    )


def test_a_file_of_properties_says_more(tmp_path: Path) -> None:
    (tmp_path / "replication.properties").write_text(
        "fej.replication.leader.sync=true\nfej.replication.leader.async.timeout=25\n"
    )
    path = str(tmp_path / "cluster.yaml")
    plan = planned("{fix: {properties: replication.properties}}", path=path)
    assert storages(plan)["p-fix"].timeout_seconds == 0.025
    with pytest.raises(ConfigError, match=r"none\.properties"):
        storages(planned("{fix: {properties: none.properties}}", path=path))


@pytest.mark.parametrize(
    ("persist", "message"),
    [
        ("{fix: {defaults: {mode: sync}}}", "expected an 'ackTimeout' above 0 with 'mode: sync'"),
        ("{fix: {defaults: {mode: fast}}}", "expected async or sync as 'mode' of group 'fix'"),
        ("{fix: {defaults: {ackTimeout: soon}}}", "'ackTimeout' of group 'fix'"),
        ("{fix: {timeout: 3}}", "expected ownLog, defaults, properties of group 'fix'"),
        ("{fix: {ownLog: [a, a]}}", "each once, in 'ownLog'"),
    ],
)
def test_bad_groups_are_told_at_their_place(persist: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as wrong:
        planned(persist)
    assert str(wrong.value).startswith("c:8:")


def test_a_group_belongs_to_one_service() -> None:
    plan = planned("{fix: {}}", more="  tasks: {jobs: {group: p-fix}}")
    with pytest.raises(ConfigError, match="expected one service of a group, got board 'jobs'"):
        plan_services(plan)
