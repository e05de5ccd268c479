"""`cqrepl persist ls`, `show` and `verify`, asked of hosts that run."""

import json
from pathlib import Path

from cqrepl.persist.storage.records import StorageKind, correlation_id
from cqrepl.persist.storage.storages import StringSerializer
from cqrepl.persist.storage.storagetable import Storage
from tests.net.test_storage_roles import GROUP, SECONDS, hosts, until
from tests.support.invoke import Invoke, invoke

__all__ = ["invoke"]


def test_storages_are_listed_shown_and_compared(tmp_path: Path, invoke: Invoke) -> None:
    both = hosts(tmp_path)
    at = ",".join(both[1].addresses.values())
    with both[1], both[2]:
        service = both[1].services[GROUP]
        until(service.leads)
        factory = both[1].factory()
        numbers = factory.get_or_create_sequence("numbers", None, StringSerializer(), SECONDS)
        orders = factory.get_or_create_queue("orders", StringSerializer(), 0.0)
        orders.append("buy")
        for item in ("a", "b", "c"):
            assert numbers.append(item).is_acked
        until(lambda: service.position == both[2].services[GROUP].position)
        until(lambda: service.appliers(service.position) == "2")
        result = invoke("persist", "ls", "--at", at, "--group", "fix")
        assert result.exit_code == 0, result.output
        assert "numbers" in result.stdout
        assert "3 items  next 4         gen 0    sync 30000ms" in result.stdout
        assert "1 items  next 2         gen 0    async" in result.stdout
        assert "2 storages at 0x" in result.stdout
        assert "applied by the backups 2" in result.stdout
        result = invoke("persist", "show", "numbers", "--at", at, "--group", "fix", "--json")
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert (shown["kind"], shown["items"], shown["next"]) == ("sequence", 3, 4)
        result = invoke("persist", "verify", "--at", at, "--group", "fix")
        assert (result.exit_code, result.stdout) == (
            0,
            "2 storages compared at one position: all are equal\n",
        )
        table = both[2].services[GROUP].table.storages  # another item stands there under 2
        table[correlation_id("numbers")].set_ref(2, table[correlation_id("numbers")].refs(1, 1)[0])
        result = invoke("persist", "verify", "--at", at, "--group", "fix")
        assert result.exit_code == 1
        assert "numbers: items 1 to 3:" in result.stdout
        assert "expected the record of index 2, got SEQUENCE_APPEND with index 1" in result.stdout
        result = invoke("persist", "show", "none", "--at", at, "--group", "fix")
        assert result.exit_code == 5
        assert "expected a storage of group 'fix', got 'none'" in result.stderr
        result = invoke("persist", "ls", "--at", at, "--group", "other")
        assert result.exit_code == 3
        assert "expected one of the groups p-fix that run, got 'p-other'" in result.stderr


def test_a_host_that_is_not_there_and_bad_input_end_in_one_line(invoke: Invoke) -> None:
    result = invoke("persist", "ls", "--at", "127.0.0.1:1", "--group", "fix")
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1
    assert invoke("persist", "ls", "--at", "nowhere", "--group", "fix").exit_code == 2
    result = invoke("persist", "ls", "--at", " , ", "--group", "fix")
    assert result.exit_code == 2
    assert result.stderr == "cqrepl persist ls: --at: expected HOST:PORT, got nothing\n"


def test_storages_whose_names_are_not_known_are_all_listed(tmp_path: Path, invoke: Invoke) -> None:
    """Their CREATE was lost; and a time is far beyond those of any clock."""
    both = hosts(tmp_path)
    at = both[1].addresses[1]
    with both[1]:
        service = both[1].services[GROUP]
        until(service.leads)
        late = (1 << 62) - 1
        with service.guard:
            for id_ in (7, 8):
                lost = Storage(id_, StorageKind.SEQUENCE, "", at=late, damage="it was lost")
                service.table.storages[id_] = lost
        result = invoke("persist", "ls", "--at", at, "--group", "fix", "--json")
        assert result.exit_code == 1, result.output
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [each["name"] for each in rows] == ["0x7", "0x8"]
        assert rows[0]["reset_at"].startswith("9892-")
