"""`cqrepl grid` as a user runs it, against hosts that `cqrepl run` started."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.support.commands import Command, Start, commands
from tests.support.invoke import Invoke
from tests.support.ports import reserved_port

PAGE: Final = """\
cluster:
  context: {{heartbeatIntervalMs: 500, heartbeatTimeoutMs: 60000, basePath: "{folder}/$hostId"}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:{one}"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:{two}"}}
  host3: {{hostId: 3, connectUri: "127.0.0.1:{three}"}}
cqrepl:
  cluster: {{leaseTimeout: 2s}}
  grid:
    shop:
      partitions: 4
      groups: 1
      maps: {{orders: {{}}, items: {{routing: 0}}}}
      replicas: {{sync: 1, async: 1}}
      replicaReads: token
"""


def grid(ports: list[int], verb: str, *words: str) -> "subprocess.CompletedProcess[str]":
    at = ",".join(f"127.0.0.1:{each}" for each in ports)
    asked = [sys.executable, "-m", "cqrepl", "grid", verb, "--at", at, "--set", "shop"]
    return subprocess.run([*asked, *words], capture_output=True, text=True, check=False)


def file_in(folder: Path, ports: list[int]) -> Path:
    path = folder / "cluster.yaml"
    one, two, three = ports
    path.write_text(PAGE.format(folder=folder, one=one, two=two, three=three))
    return path


async def begin(start: Start, folder: Path, ports: list[int]) -> list[Command]:
    words = ("run", "-c", file_in(folder, ports), "--run-dir", folder / "run", "--host-id")
    return [await start(*words, str(each)) for each in (1, 2, 3)]


async def test_maps_are_written_read_and_shown(tmp_path: Path) -> None:
    ports = [reserved_port() for _ in range(3)]
    with trio.fail_after(120):
        async with commands() as start:
            await begin(start, tmp_path, ports)
            run = partial(trio.to_thread.run_sync)
            put = await run(partial(grid, ports, "put", "--wait", "60s", "orders", "17", "[1, 2]"))
            assert put.returncode == 0, put.stderr
            token = put.stdout.strip()
            assert re.fullmatch(r"shop/0/[0-9a-f]{16}/[0-9]+/[0-9a-f]+", token)
            got = await run(partial(grid, ports, "get", "--token", token, "orders", "17"))
            assert (got.returncode, got.stdout) == (0, "[1, 2]\n"), got.stderr
            scanned = await run(partial(grid, ports, "scan", "orders"))
            assert scanned.stdout == "17\t[1, 2]\n"
            none = await run(partial(grid, ports, "get", "orders", '"17"'))
            assert none.returncode == 1
            assert "map 'orders' has no entry of \"17\"" in none.stderr
            bad = await run(partial(grid, ports, "put", "nowhere", "1", "1"))
            assert bad.returncode == 5
            assert "expected a map of map set 'shop' (items, orders), got 'nowhere'" in bad.stderr
            told = await run(partial(grid, ports, "status", "--json"))
            rows = [json.loads(line) for line in told.stdout.splitlines()]
            assert [row["entries"] for row in rows if row["serves"]] == [1]
            assert len(rows) == 3


def test_no_host_is_told_in_one_line(tmp_path: Path) -> None:
    done = grid([reserved_port()], "get", "--wait", "1s", "orders", "1")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("cqrepl grid: map set 'shop': expected a host that answers 'hello'")


def test_the_places_of_groups_are_printed(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("grid", "plan", str(file_in(tmp_path, [1, 2, 3])))
    assert re.fullmatch(r"shop-0  hosts [123], [123], [123]  whole\n", result.stdout)


def test_the_places_of_a_host_that_is_not_there_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    path = file_in(tmp_path, [1, 2, 3])
    path.write_text(path.read_text() + "      members: [1, 2, 9]\n")
    result = invoke("grid", "plan", str(path))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith("expected ids of hosts (1, 2, 3) as members, got 9")


def test_hosts_that_cannot_be_reached_are_told_in_one_line(invoke: Invoke) -> None:
    at = f"127.0.0.1:{reserved_port()}"
    result = invoke("grid", "status", "--at", at, "--set", "x", "--wait", "1s")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("cqrepl grid: map set 'x': expected a host that answers 'hello'")


def test_what_a_table_of_postgresql_needs_is_printed(invoke: Invoke) -> None:
    result = invoke("grid", "sql", "orders", "--key", "id", "--partitions", "16")
    assert result.exit_code == 0
    index = "create index if not exists orders_cq_partition_16 on orders (cq_partition(id, 16), id)"
    assert index in result.stdout
    bad = invoke("grid", "sql", "or ders", "--key", "id", "--partitions", "16")
    assert bad.exit_code == 5
    assert bad.stderr == ("cqrepl grid: expected a name of letters, digits and _, got 'or ders'\n")
