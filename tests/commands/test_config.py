"""`cqrepl config`: what it says of a file that can be used, and what can be in one."""

import json
import re
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cqrepl.config.keys import CONTEXT, HOST, QUEUE, process_keys
from cqrepl.config.valuekinds import POLICIES
from tests.support.clusters import FULL, OLDER_PAGE
from tests.support.invoke import Invoke
from tests.support.samples import fill

NAMES = ("--address", "host.port1=h:9001", "--address", "host.port2=h:9002")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Chronicle's page, in a file."""
    path = tmp_path / "page.yaml"
    path.write_text(OLDER_PAGE)
    return path


def test_a_page_can_be_used_once_its_names_are_known(invoke: Invoke, page: Path) -> None:
    result = invoke("config", "check", page)
    assert result.exit_code == 2
    says = "12:19: HOST:PORT, or a name that 'addresses' has one for, expected for 'connectUri'"
    assert says in result.stderr
    result = invoke("config", "check", page, *NAMES)
    assert (result.exit_code, result.stdout) == (0, f"{page}: 2 hosts, 1 queue\n")


def test_a_host_that_is_not_there_is_refused(invoke: Invoke, page: Path) -> None:
    result = invoke("config", "check", page, *NAMES, "--host-id", "3")
    assert result.exit_code == 2
    assert result.stderr.endswith(": the id of a host (1, 2) expected, this host has 3\n")


def test_a_host_that_would_not_start_is_told(
    invoke: Invoke, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directories are looked at, where they are."""
    monkeypatch.chdir(page.parent)
    fill(Path("replica", "sink", "queue1"), "FAST_DAILY", {0: 1})
    result = invoke("config", "check", page, *NAMES, "--host-id", "1")
    assert result.exit_code == 2
    assert "move that one there" in result.stderr
    assert invoke("config", "check", page, *NAMES, "--host-id", "2").exit_code == 0


@pytest.mark.parametrize("verb", ["check", "show"])
def test_a_misspelled_variable_is_told(
    invoke: Invoke, page: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A misspelled variable would have no effect, and no message would say so."""
    monkeypatch.setenv("CQREPL_SCRUBB", "1MiB")
    result = invoke("config", verb, page, *NAMES)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("the nearest one is 'CQREPL_SCRUB'\n")


def test_what_has_no_effect_is_told(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(FULL)
    said = invoke("config", "check", tmp_path / "c.yaml").stdout
    assert "c.yaml:9: 'retryInterval' has no effect here\n" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere.yaml"], "nowhere.yaml: cannot be read: No such file or directory"),
        (["check", "/"], "/: cannot be read: Is a directory"),
        (["show", "{page}", "--address", "host.port1"], "--address: HOST:PORT for each of some"),
        (["show", "{page}", "--listen", "here"], "--listen: HOST:PORT or :PORT expected, 'here'"),
        (["show", "{page}", "--host-id", "0"], "0 is not in the range 1<=x<=127"),
    ],
)
def test_wrong_use_is_one_line(invoke: Invoke, page: Path, arguments: list[str], says: str) -> None:
    result = invoke("config", *[each.format(page=page) for each in arguments])
    assert result.exit_code == 2
    assert says in result.stderr


def test_show_prints_each_setting_with_its_origin(
    invoke: Invoke, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CQREPL_SCRUB", "1MiB")
    monkeypatch.setenv("CQREPL_HOST_ID", "2")
    shown = invoke("config", "show", page, *NAMES, "--listen", ":7000").stdout
    rows = [re.split(r"  +", line) for line in shown.splitlines()]
    assert ["heartbeatTimeoutMs", "500000", "line 5"] in rows
    assert ["cqrepl.scrub", "1048576", "CQREPL_SCRUB"] in rows
    assert ["cqrepl.listen", "0.0.0.0:7000", "--listen"] in rows
    assert ["cqrepl.pauser", "balanced", "default"] in rows
    assert ["host 1", "host1", "h:9001", "is dialled"] in rows
    assert ["host 2", "host2", "h:9002", "this host"] in rows
    own = ["queue queue1", "sink of host 1", "replica/sink/queue1", "not acknowledged"]
    assert own in rows


def test_show_without_a_host_has_the_whole_cluster(invoke: Invoke, page: Path) -> None:
    shown = invoke("config", "show", page, *NAMES).stdout
    assert "queue queue1  from host 1  not acknowledged\n" in shown


def test_show_for_programs(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(FULL)
    result = invoke("config", "show", tmp_path / "c.yaml", "--host-id", "3", "--json")
    (line,) = result.stdout.splitlines()
    shown = json.loads(line)
    assert shown["settings"]["heartbeatIntervalMs"] == {"value": "1000", "from": "line 4"}
    assert shown["settings"]["cqrepl.source.acceptReturns"]["value"] == "[2, 3]"
    assert shown["hosts"][2] == {"id": 3, "name": "host3", "address": "127.0.0.1:9003"}
    assert (shown["host"], shown["dials"], shown["sources"]) == (3, [1, 2], {})
    assert shown["sinks"] == {"orders": "replica/sink/shop/orders", "trades": "replica/sink/trades"}


@pytest.mark.timeout(60)
def test_a_thousand_queues_are_checked_soon(invoke: Invoke, tmp_path: Path) -> None:
    """In a second on a machine at rest: here the limit is ten times that."""
    queue = OLDER_PAGE[OLDER_PAGE.index("    queue1:") : -len("  }\n}\n")]
    queues = (queue.replace("queue1", f"queue{nth}") for nth in range(2, 1001))
    path = tmp_path / "c.yaml"
    path.write_text(OLDER_PAGE.replace(queue, queue + "".join(queues)))
    started = time.monotonic()
    result = invoke("config", "check", path, *NAMES)
    assert time.monotonic() - started < 10
    assert result.stdout == f"{path}: 2 hosts, 1,000 queues\n"


def test_schema_has_every_key_with_its_variable(invoke: Invoke) -> None:
    text = invoke("config", "schema").stdout
    for section in (CONTEXT, HOST, QUEUE):
        for name, key in section.keys.items():
            assert (f"\n  {name}: " if key.is_used else name) in text
    keys = process_keys()
    assert len({key.variable for key in keys.values()}) == len(keys)
    for key in keys.values():
        assert f"[{key.variable}]" in text


def test_schema_for_programs_has_the_same(invoke: Invoke) -> None:
    schema = json.loads(invoke("config", "schema", "--json").stdout)
    parts = schema["properties"]
    assert set(parts["cluster"]["properties"]["context"]["properties"]) == set(CONTEXT.keys)
    queue = parts["queues"]["additionalProperties"]
    assert set(queue["properties"]) == set(QUEUE.keys)
    assert "required" not in queue, "an election may say who leads"
    assert set(parts["cqrepl"]["properties"]["sink"]["properties"]) == {
        name.partition(".")[2] for name in process_keys() if name.startswith("sink.")
    }


@pytest.mark.parametrize(
    ("policy", "is_taken"),
    [
        ({"level": "synced", "from": 2}, True),
        ({"from": "none"}, True),
        ({"on_timeout": "block"}, True),
        ({"on_timeout": "fail", "timeout": "10s"}, True),
        ({"on_timeout": "fail", "preset": "broker-quorum"}, True),
        ({"on_timeout": "fail"}, False),
        ({"on_timeout": "fail", "timeout": "none"}, False),
        ({"on_timeout": "fail", "preset": "queue-acknowledged"}, False),
        ({"on_timeout": "fail", "preset": "broker-quorum", "timeout": "none"}, False),
        ({"level": "received"}, False),
        ({"hosts": [0]}, False),
        ({"window": -1}, False),
        ({"time": "10s"}, False),
    ],
)
def test_schema_of_policies_takes_what_is_read(
    policy: dict[str, Any], is_taken: bool, invoke: Invoke
) -> None:
    schema = json.loads(invoke("config", "schema", "--json").stdout)
    acks = schema["properties"]["cqrepl"]["properties"]["ack"]
    assert Draft202012Validator(acks).is_valid({"a": policy}) is is_taken
    with nullcontext() if is_taken else pytest.raises(ValueError, match="expected"):
        POLICIES.parse(f"a={written(policy)}")


def written(policy: dict[str, Any]) -> str:
    words = policy | {"hosts": "+".join(map(str, policy.get("hosts", ())))}
    return " ".join(f"{name}={value}" for name, value in words.items() if value)
