"""Boards, checkpoints and retention in the file of a cluster."""

from pathlib import Path

import pytest

from cqrepl.broker.service import BoardSettings
from cqrepl.cluster.checkpoints import CheckpointSettings
from cqrepl.commands.services import Services
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import in_effect, plan_host
from cqrepl.config.planchanges import NewValue, changes_between, merged
from cqrepl.config.serviceplan import ServicePlan, plan_services
from cqrepl.replicator.followfeed import JoinBy

TEXT = """\
cluster:
  context: {{basePath: data}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:7001"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:7002"}}
  host3: {{hostId: 3}}
queues:
  orders: {{masterId: 1, acknowledge: true}}
cqrepl:
  cluster: {cluster}
  tasks: {tasks}
"""


def planned(tasks: str = "{}", cluster: str = "{election: by-hand}") -> ServicePlan:
    config = read_cluster(TEXT.format(tasks=tasks, cluster=cluster).encode(), "c.yaml")
    return plan_services(plan_host(config, 1, in_effect(config, {}, {})))


def test_without_any_there_are_the_usual_values() -> None:
    plan = planned()
    assert plan.boards == {}
    assert plan.checkpoints == CheckpointSettings()
    assert plan.join is JoinBy.AUTO
    assert plan.addresses == {1: "127.0.0.1:7001", 2: "127.0.0.1:7002"}


def test_boards_are_read() -> None:
    given = "{group: orders, workerLease: 5s, attempts: 7, backoff: 2s, keepFinished: 1h}"
    assert planned(f"{{jobs: {given}}}").boards["jobs"] == BoardSettings(
        group="orders", lease_seconds=5.0, attempts=7, backoff_ms=2000, keep_ms=3_600_000
    )
    assert planned("{jobs: {group: orders}}").boards["jobs"] == BoardSettings(group="orders")


def test_a_reload_says_in_a_line_that_other_boards_need_a_restart() -> None:
    plans = []
    for tasks in ("{jobs: {group: orders}}", "{jobs: {group: orders, attempts: 5}}"):
        text = TEXT.format(tasks=tasks, cluster="{election: by-hand}")
        config = read_cluster(text.encode(), "c.yaml")
        plans.append(plan_host(config, 1, in_effect(config, {}, {})))
    found = changes_between(*plans)
    more = "backoff: 1000ms, keepFinished: 86400000ms, maxTasks: 1000000}"
    assert found.restart == {
        "cqrepl.tasks": NewValue(
            old=f"jobs={{group: orders, workerLease: 30s, attempts: 3, {more}",
            new=f"jobs={{group: orders, workerLease: 30s, attempts: 5, {more}",
        )
    }
    assert found.values == {}
    assert merged(*plans).process["tasks"].value == plans[0].process["tasks"].value


def test_a_host_has_no_board_whose_group_it_has_no_copy_of() -> None:
    cluster = "{groups: {count: 1, members: [1]}}"
    text = TEXT.format(tasks="{jobs: {group: g0}}", cluster=cluster).replace("data", "d/$hostId")
    config = read_cluster(text.encode(), "c.yaml")
    plans = [plan_host(config, each, in_effect(config, {}, {})) for each in (1, 2)]
    boards = [Services(each).desk.boards.keys() for each in plans]
    assert boards == [{"jobs"}, set()]
    assert Services(plans[1]).programs == []


def test_checkpoints_and_retention_are_read() -> None:
    cluster = "{election: by-hand, checkpoint: {interval: 1m, records: 10, keep: 3, directory: d}"
    plan = planned(cluster=cluster + ", retention: {minAge: 1h}, join: snapshot}")
    assert plan.checkpoints == CheckpointSettings(
        interval_seconds=60.0, records=10, keep=3, directory=Path("d"), age_min_ms=3_600_000
    )
    assert plan.join is JoinBy.SNAPSHOT


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("{jobs: {attempts: 3}}", "expected the 'group' of board 'jobs', which is its log, got no"),
        ("{jobs: {group: g9}}", "expected one of the groups orders for board 'jobs', got 'g9'"),
        (
            "{a: {group: orders}, b: {group: orders}}",
            "expected one service of a group, got 'a' and 'b'",
        ),
        ("{jobs: {group: orders, size: 3}}", "keepFinished, maxTasks of board 'jobs', each once"),
        ("{jobs: {group: orders, attempts: 0}}", "'attempts' of board 'jobs': a number from 1 to"),
        ("{jobs: {group: orders, workerLease: 5}}", "'workerLease' of board 'jobs': a time such"),
        ("{jobs: {group: orders, workerLease: 5ms}}", "a time of at least 1000ms expected, '5ms'"),
    ],
)
def test_bad_boards_are_told_at_their_place(tasks: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:10:") as error:
        planned(tasks)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("checkpoint: {keep: 1}", "'keep' of a checkpoint: a number from 2 to 1000 expected, '1'"),
        ("checkpoint: {every: 1}", "expected interval, records, keep, directory of a checkpoint"),
        ("retention: {minAge: old}", "'minAge' of retention: a time such as 500ms"),
        ("join: never", "one of auto, replay, snapshot expected for 'join'"),
    ],
)
def test_bad_rules_are_told_at_their_place(cluster: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:9:") as error:
        planned(cluster=f"{{election: by-hand, {cluster}}}")
    assert message in str(error.value)
