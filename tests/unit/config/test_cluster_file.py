"""The file of a cluster: Chronicle's pages are read as they stand, and so are our own keys."""

import re
from pathlib import Path

import pytest

from cqrepl.config.clusterfile import ClusterConfig, nearest, read_cluster
from cqrepl.config.errors import ConfigError, TextSpot
from cqrepl.config.hostplan import HostPlan, check_places, in_effect, plan_host
from cqrepl.kernel.board import AckLevel
from cqrepl.kernel.live import Pausing
from cqrepl.net.address import Address
from cqrepl.protocol import AckPolicy, WireShape
from cqrepl.queue import Queue
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.support.clusters import FULL, NEWER_PAGE, OLDER_PAGE, THIRD_HOST
from tests.support.samples import fill

MISSPELLED = {
    "CQREPL_SCRUBB": "SCRUB",
    "CQREPL_WAITFOR": "WAIT_FOR",
    "CQREPL_limitRate": "LIMIT_RATE",
    "CQREPL_HOSTID": "HOST_ID",
    "CQREPL_KERNELS": "KERNEL",
    "cqrepl_scrub": "SCRUB",
}
NAMED = {"CQREPL_ADDRESSES": "host.port1=h:1, host.port2=h:2, host.port3=h:3"}


def cluster(text: str) -> ClusterConfig:
    return read_cluster(text.encode(), "cluster.yaml")


def plan(text: str, host_id: int, environ: dict[str, str] | None = None) -> HostPlan:
    config = cluster(text)
    return plan_host(config, host_id, in_effect(config, environ or {}, {}))


@pytest.mark.parametrize("page", [OLDER_PAGE, NEWER_PAGE], ids=["older", "newer"])
def test_chronicles_pages_are_read_as_they_stand(page: str) -> None:
    config = cluster(page)
    assert {each.host_id: (each.name, each.uri) for each in config.hosts.values()} == {
        1: ("host1", "host.port1"),
        2: ("host2", "host.port2"),
    }
    assert (config.heartbeat.interval_ms, config.heartbeat.timeout_ms) == (300_000, 500_000)
    (queue,) = config.queues.values()
    assert (queue.name, queue.path, queue.master_id) == ("queue1", Path("queue1"), 1)
    assert not queue.acknowledge
    assert config.ignored == ()


def test_both_pages_say_where_queues_are() -> None:
    for host_id, own, name in ((1, "sources", "source"), (2, "sinks", "sink")):
        older, newer = plan(OLDER_PAGE, host_id, NAMED), plan(NEWER_PAGE, host_id, NAMED)
        assert getattr(older, own) == {"queue1": Path(f"replica/{name}/queue1")}
        assert getattr(newer, own) == {"queue1": Path(f"replica/{host_id}/queue1")}
        assert not {"sources": older.sinks, "sinks": older.sources}[own]


def test_the_higher_id_dials_and_everybody_listens() -> None:
    page = OLDER_PAGE.replace("...", THIRD_HOST)
    nets = {host_id: plan(page, host_id, NAMED).settings.net for host_id in (1, 2, 3)}
    assert {host_id: each.listen for host_id, each in nets.items()} == {
        host_id: Address("h", host_id) for host_id in (1, 2, 3)
    }
    assert {host_id: sorted(each.peers) for host_id, each in nets.items()} == {
        1: [],
        2: [1],
        3: [1, 2],
    }
    assert nets[3].peers[2] == Address("h", 2)


def test_a_host_without_an_address_only_dials() -> None:
    page = OLDER_PAGE.replace("...", THIRD_HOST).replace("connectUri: host.port1,", "")
    nets = {host_id: plan(page, host_id, NAMED).settings.net for host_id in (1, 2, 3)}
    assert nets[1].listen is None
    assert {host_id: sorted(each.peers) for host_id, each in nets.items()} == {
        1: [2, 3],
        2: [],
        3: [2],
    }


def test_a_host_takes_only_the_hosts_of_its_cluster_and_queues_only_from_their_masters() -> None:
    settings = plan(FULL, 2).settings
    assert settings.protocol.remote_ids == {1, 3}
    assert settings.sink.masters == {"orders": 1, "trades": 2}


def test_every_key_reaches_the_settings() -> None:
    made = plan(FULL, 1)
    settings = made.settings
    assert made.sources == {
        "orders": Path("replica/source/shop/orders"),
        "trades": Path("replica/sink/trades"),  # it is passed on
    }
    assert made.sinks == {"trades": Path("replica/sink/trades")}
    assert settings.net.listen == Address("0.0.0.0", 9999)
    assert settings.net.pausing is Pausing.SLEEPY
    assert (settings.net.guests_max, settings.net.guest_bytes_per_s) == (3, 1 << 20)
    assert (settings.net.limits, settings.net.limit_bytes_per_s) == ({2: 1 << 20}, 10 << 20)
    assert [settings.net.limit_of(each) for each in (2, 3)] == [1 << 20, 10 << 20]
    assert settings.protocol.payload_max == 1 << 20
    assert settings.protocol.shape is WireShape.SEED
    assert not settings.protocol.runs
    assert settings.scrub_bytes_per_s == 10 << 20
    source, sink = settings.source, settings.sink
    assert source.asks_ack("orders")
    assert not source.asks_ack("trades")
    assert source.policies["orders"] == AckPolicy(
        level=AckLevel.SYNCED, from_=2, hosts=frozenset({2, 3}), timeout_seconds=0.01
    )
    assert source.source_ids == {"orders": 1002}
    assert source.made_with == {"orders": "FAST_HOURLY", "trades": "FAST_DAILY"}
    assert source.ack_log == Path("acks")
    assert source.returns.hosts == frozenset({2, 3})
    assert (source.returns.excerpts_max, source.returns.seconds_max) == (1000, 5)
    assert source.wait_for is not None
    assert (source.wait_for, source.wait_for_seconds) == (frozenset(), 3)
    assert source.all_tailers
    assert sink.roll_cycles == source.made_with
    assert (sink.touch_ahead_bytes, sink.append_log) == (0, Path("appended"))
    assert (sink.any_cycle, sink.puts_aside) == (True, True)
    assert plan(FULL, 3).settings.net.peers[2] == Address("127.0.0.1", 9002)


def test_what_is_not_said_is_as_with_the_other_commands() -> None:
    process = in_effect(cluster(OLDER_PAGE), {}, {})
    assert {each.origin for each in process.values()} == {"default"}
    settings = plan(OLDER_PAGE, 1, NAMED).settings
    assert settings.net.pausing is Pausing.BALANCED
    assert not settings.source.returns.hosts
    assert settings.source.wait_for is None
    assert settings.sink.touch_ahead_bytes is None


def test_a_variable_goes_before_the_file_and_says_so() -> None:
    environ = {"CQREPL_SCRUB": "1MiB", "CQREPL_WAIT_FOR": "2,3", "CQREPL_PAUSER": ""}
    process = in_effect(cluster(FULL), environ, {})
    assert (process["scrub"].value, process["scrub"].origin) == (1 << 20, "CQREPL_SCRUB")
    assert process["source.waitFor"].written == "[2, 3]"
    assert (process["pauser"].value, process["pauser"].origin) == ("sleepy", "line 30")


WAITING = "ack: {orders: {level: synced, from: 2, hosts: [2, 3], timeout: 10ms}}"


def test_a_policy_counts_the_hosts_that_take_its_queue_in() -> None:
    page = FULL.replace(WAITING, "ack: {orders: {from: all}}")
    policy = plan(page, 1).settings.source.policies["orders"]
    assert policy.hosts == frozenset({2, 3})
    assert policy.hosts_min == 2
    assert "other" not in plan(page, 1).settings.source.policies


def test_a_policy_goes_by_name_and_in_a_variable() -> None:
    page = FULL.replace(WAITING, "ack: {orders: broker-quorum}")
    by_name = plan(page, 1).settings.source.policies["orders"]
    assert (by_name.level, by_name.hosts_min) == (AckLevel.SYNCED, 1)
    said = {"CQREPL_ACK": "orders=persist-synchronous from=all,trades=from=none"}
    policies = plan(FULL, 1, said).settings.source.policies
    assert policies["orders"].hosts_min == 2
    assert policies["orders"].timeout_seconds == 0.01
    assert policies["trades"].hosts_min == 0


@pytest.mark.parametrize(
    ("ack", "says"),
    [
        ("{order: {from: any}}", "a queue expected, 'order' came; the nearest one is 'orders'"),
        ("{orders: {hosts: [1, 2]}}", "queue 'orders': ids of its sinks (2, 3) expected, 1 came"),
        (
            "{orders: {from: 3}}",
            "queue 'orders': a number of hosts from 1 to 2 expected for 'from', 3 came",
        ),
        ("{trades: {from: any}}", "queue 'trades': 'acknowledge: true' expected"),
        ("{orders: {level: stored}}", "queue 'orders': one of appended, synced, applied expected"),
    ],
)
def test_a_policy_that_its_cluster_cannot_keep_is_one_line_with_its_place(
    ack: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(FULL.replace(WAITING, f"ack: {ack}"), 1)
    assert says in str(caught.value)
    column = 18 if "level" in ack else 9  # of the entry at fault
    assert str(caught.value).startswith(f"cluster.yaml:26:{column}: ")
    assert "\n" not in str(caught.value)


def test_a_variable_that_has_no_value_of_its_kind_is_named() -> None:
    others = ("KERNEL", "REQUIRE", "TALLY", "HOME", "KILL_SEED", "NETWORK_SECONDS", "CONFIG")
    in_effect(cluster(FULL), {f"CQREPL_{each}": "1" for each in others} | {"SCRUBB": "1"}, {})
    in_effect(cluster(FULL), {"CQREPL_SCRUBB": ""}, {})
    for wrong, right in MISSPELLED.items():
        says = f"^variable {wrong}: one of .*; the nearest one is 'CQREPL_{right}'$"
        with pytest.raises(ConfigError, match=says):
            in_effect(cluster(FULL), {wrong: "1"}, {})
    with pytest.raises(ConfigError, match=r"^variable CQREPL_GUESTS: an integer from 0 to .*'x'"):
        in_effect(cluster(FULL), {"CQREPL_GUESTS": "x"}, {})


def test_what_only_a_jvm_can_do_is_told_and_has_no_effect() -> None:
    assert cluster(FULL).ignored == (
        ("retryInterval", TextSpot(9, 5)),
        ("tcpBufferSize", TextSpot(11, 58)),
    )


def test_a_thousand_queues_are_one_table(tmp_path: Path) -> None:
    queues = [f"    q{nth}: {{masterId: {nth % 3 + 1}}}" for nth in range(1000)]
    start = FULL.index("  orders:")
    text = FULL[:start] + "\n".join(queues).replace("    q", "  q") + "\ncqrepl: {}\n"
    text = text.replace("connectUri: third", "connectUri: 'h:1'")
    made = plan(text, 2)
    assert (len(made.sources), len(made.sinks)) == (333, 667)


def test_a_banner_of_comments_takes_no_time() -> None:
    banner = f"{'#' * 70}\n#\n#  # the cluster #\n\n{' ' * 40}\n{'#' * 70}\n\n"
    assert len(cluster(banner + FULL).queues) == 2
    assert len(cluster(banner + OLDER_PAGE).queues) == 1


def test_aliases_stand_for_what_they_name() -> None:
    text = OLDER_PAGE.replace("queue1: {", "queue1: &usual {").replace(
        '      path: "queue1",\n', ""
    )
    text = text.replace("  }\n}\n", "    queue2: *usual\n  }\n}\n")
    queues = cluster(text).queues
    assert [(each.name, each.master_id) for each in queues.values()] == [
        ("queue1", 1),
        ("queue2", 1),
    ]


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert nearest("MASTERID", ["path", "masterId", "sourceId"]) == "masterId"
    assert nearest("aknowledge", ["path", "acknowledge"]) == "acknowledge"


ROUTES = "routes: {trades: {3: 1}}"


def test_who_takes_a_queue_from_whom() -> None:
    first, second, third = (plan(FULL, each) for each in (1, 2, 3))
    assert [each.settings.sink.masters["trades"] for each in (first, second, third)] == [2, 2, 1]
    takers = [each.settings.source.takers["trades"] for each in (first, second, third)]
    assert takers == [{3}, {1}, set()]
    assert [sorted(each.passed_on) for each in (first, second, third)] == [["trades"], [], []]
    assert first.sources["trades"] == first.sinks["trades"] == Path("replica/sink/trades")
    assert first.process["routes"].written == "trades=3=1"
    said = {"CQREPL_ROUTES": "trades=3=1 1=2,orders=2=3"}
    assert plan(FULL.replace(WAITING, "ack: {}"), 3, said).passed_on == {"orders"}


@pytest.mark.parametrize(
    ("routes", "says"),
    [
        ("{order: {3: 2}}", "a queue expected, 'order' came; the nearest one is 'orders'"),
        ("{orders: {3: 4}}", "queue 'orders': ids of hosts (1, 2, 3) expected, 4 came"),
        ("{orders: {1: 2}}", "queue 'orders': host 1 is its master"),
        (
            "{orders: {3: 2, 2: 3}}",
            "queue 'orders': a way to its master, host 1, expected; hosts 3, 2, 3 take it from one"
            " another in a circle",
        ),
        ("{orders: {3: 3}}", "queue 'orders': a way to its master, host 1, expected; hosts 3, 3"),
    ],
)
def test_routes_that_lead_nowhere_are_one_line_with_their_place(routes: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(FULL.replace(ROUTES, f"routes: {routes}"), 1)
    assert f"'routes': {says}" in str(caught.value)
    column = 12 if "order:" in routes else 21  # of the entry at fault
    assert str(caught.value).startswith(f"cluster.yaml:35:{column}: ")


@pytest.mark.parametrize("routes", ["{orders: 3}", "{orders: {3: 200}}", "[1]", "{orders: {a: 2}}"])
def test_what_is_no_route(routes: str) -> None:
    with pytest.raises(ConfigError, match="whom each of some hosts takes it from, such as"):
        plan(FULL.replace(ROUTES, f"routes: {routes}"), 1)


def test_a_policy_counts_those_that_take_it_from_the_master() -> None:
    page = FULL.replace(ROUTES, "routes: {orders: {3: 2}}")
    with pytest.raises(ConfigError, match=r"ids of its sinks \(2\) expected, 3 came"):
        plan(page, 1)


@pytest.mark.parametrize(
    ("ack", "counted"),
    [
        ("{orders: {from: all}}", {1: {2, 3}, 2: {1, 3}, 3: {1, 2}}),
        ("{orders: {from: 2, hosts: [2, 3]}}", {1: {2, 3}, 2: {1, 3}, 3: {1, 2}}),
        ("{orders: {from: any, hosts: [3]}}", {1: {3}, 2: {3}, 3: {1}}),
    ],
)
def test_a_policy_of_a_host_is_for_when_it_leads(ack: str, counted: dict[int, set[int]]) -> None:
    """A host may be promoted. As a leader it never waits for itself, and it waits for its master as
    for other hosts."""
    page = FULL.replace(WAITING, f"ack: {ack}")
    for each, hosts in counted.items():
        assert plan(page, each).settings.source.policies["orders"].hosts == frozenset(hosts)


def test_who_takes_a_queue_from_a_host_is_by_the_file_or_by_who_leads_it() -> None:
    """The ways of the file lead to its master: from another leader all take it directly."""
    passed, led = {1: {3}, 2: {1}, 3: set[int]()}, {1: {2, 3}, 2: {1}, 3: {1, 2}}
    for each in (1, 2, 3):
        source = plan(FULL, each).settings.source
        assert source.takers_of("trades", is_passed_on=True) == frozenset(passed[each])
        assert source.takers_of("trades", is_passed_on=False) == frozenset(led[each])


def test_a_queue_that_was_not_moved_when_its_master_changed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check tells of a queue that still lies in its old place. Otherwise an empty queue in the
    new place would lead, and no host would look at what the old queue holds."""
    monkeypatch.chdir(tmp_path)
    made = plan(OLDER_PAGE, 1, NAMED)
    check_places(made)
    fill(Path("replica", "sink", "queue1"), "FAST_DAILY", {0: 1})
    with pytest.raises(ConfigError, match=r"replica/source/queue1 .*is replica/sink/q"):
        check_places(made)
    new = Path("replica", "source", "queue1")
    new.mkdir(parents=True)
    with pytest.raises(ConfigError, match="move that one there"):
        check_places(made)
    (new / FILE_NAME).touch()  # a creator that has died is no queue
    with pytest.raises(ConfigError, match="move that one there"):
        check_places(made)
    fill(Path("replica", "source", "queue1"), "FAST_DAILY", {0: 1})
    check_places(made)
    check_places(plan(OLDER_PAGE, 2, NAMED))


def test_a_queue_that_was_not_moved_when_its_master_became_another_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check tells of a queue that still lies in its old place. Otherwise what only that queue
    has would never come to light, and programs could go on appending to it."""
    monkeypatch.chdir(tmp_path)
    made, old = plan(OLDER_PAGE, 2, NAMED), Path("replica", "source", "queue1")
    old.mkdir(parents=True)
    check_places(made)
    fill(old, "FAST_DAILY", {0: 1})
    check_places(made)  # another host of this machine may be its master
    with Queue.open(old) as queue:
        assert queue.host_marks.raise_to(1, MarkLevel.SENT, 0)
    with pytest.raises(ConfigError, match=r"replica/sink/queue1 .*takes it in.* is replica/sour"):
        check_places(made)
    with Queue.open(old) as queue:
        assert queue.host_marks.raise_to(2, MarkLevel.SENT, 0)
    check_places(made)  # it was sent to this host: so it is another one's


# below `cqrepl: KEY:`, from the line after it on: where the fault is, and what is said of it
PLACED = [
    ("ack", "    trades: {from: none}\n    orders: {level: stored}\n", (2, 14), "level"),
    ("ack", "    trades:\n      from: none\n      window: 0\n", (3, 7), "window"),
    ("ack", "    trades: now\n", (1, 5), "'now' came"),
    ("ack", "    trades: {from: none}\n    orders: {from: 3, hosts: [2, 3]}\n", (2, 5), "orders"),
    (
        "ack",
        "    trades: {from: none}\n    oders: {from: none}\n",
        (2, 5),
        "nearest one is 'orders'",
    ),
    ("ack", "    orders: {from: all}\n    trades: {from: all}\n", (2, 5), "'acknowledge: true'"),
    ("routes", "    orders: {2: 3}\n    trades: {3: 1, 1: x}\n", (2, 20), "'1: x' came"),
    ("routes", "    orders: {2: 3}\n    trades: 3\n", (2, 5), "'trades: 3' came"),
    ("routes", "    orders: {2: 3}\n    trdes: {3: 1}\n", (2, 5), "nearest one is 'trades'"),
    ("routes", "    orders:\n      2: 3\n      3: 9\n", (3, 7), "(1, 2, 3) expected, 9 came"),
    ("routes", "    orders: {2: 3, 1: 2}\n", (1, 20), "host 1 is its master"),
    ("routes", "    trades: {3: 1}\n    orders: {2: 3, 3: 2}\n", (2, 14), "in a circle"),
    ("limitRate", "    others: 1MiB\n    2: fast\n", (2, 5), "'2: fast' came"),
    ("limitRate", "    others: 1MiB\n    4: 1MiB\n", (2, 5), "the id of a host (1, 2, 3)"),
    ("addresses", "    third: '127.0.0.1:9003'\n    b: here\n", (2, 5), "'b: here' came"),
]


@pytest.mark.parametrize(("key", "text", "place", "says"), PLACED)
def test_an_entry_of_a_mapping_is_named_by_its_own_place(
    key: str, text: str, place: tuple[int, int], says: str
) -> None:
    lines = FULL.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"  {key}:"))
    whole = "\n".join([*lines[:at], f"  {key}:\n{text.rstrip()}", *lines[at + 1 :]])
    with pytest.raises(ConfigError) as caught:
        plan(whole, 1)
    error = caught.value
    assert error.spot is not None
    assert (error.spot.line - at - 1, error.spot.column) == place
    assert says in error.message


PATTERNS = """\
cluster:
  context: {{baseSourcePath: {folder}/source, baseSinkPath: "{folder}/sink$hostId"}}
  one: {{hostId: 1, connectUri: "a:1"}}
  two: {{hostId: 2, connectUri: "a:2"}}
queues:
  {queues}
"""


def test_directories_that_fit_a_pattern_are_queues(tmp_path: Path) -> None:
    queues = (
        'prices-x: {masterId: 2, path: prices-other}\n  "prices-[a-m]*": {masterId: 1, sourceId: 7}'
        '\n  "prices-*": {masterId: 2}'
    )
    text = PATTERNS.format(folder=tmp_path, queues=queues)
    for name in ("source/prices-a", "source/prices-z", "sink2/prices-other", "sink2/prices-k"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "source" / "prices-file").touch()
    (tmp_path / "source" / "prices- ").mkdir()
    for base in ("source", "sink2"):
        (tmp_path / base / "prices-loop").symlink_to("prices-loop")  # the system refuses to look
    one, two = plan(text, 1), plan(text, 2)
    assert one.sources == {"prices-a": tmp_path / "source" / "prices-a"}
    assert set(one.sinks) == {"prices-x", "prices-z"}
    assert one.settings.source.source_ids == {"prices-a": 7}
    assert two.sources["prices-x"] == tmp_path / "source" / "prices-other"
    assert set(two.sinks) == {"prices-a", "prices-k"}
    kept = plan_host(cluster(text), 1, in_effect(cluster(text), {}, {}), {"prices-zone", "other"})
    assert kept.sinks.keys() - one.sinks.keys() == {"prices-zone"}


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        ('"prices-*": {masterId: 1, path: p}', ":6:35: no 'path' expected with the pattern"),
        ('"../*": {masterId: 1}', ":6:3: "),
        ('"*/x": {masterId: 1}', ":6:3: "),
        ('"a[": {masterId: 1}', ":6:3: "),
        ('"prices-*": {masterId: 3}', "the id of a host (1, 2) expected for 'masterId', 3 came"),
        ('"prices-*": {}', "'masterId' expected for queue 'prices-*'"),
    ],
)
def test_a_pattern_that_cannot_be_is_named(queues: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        cluster(PATTERNS.format(folder="/d", queues=queues))
