"""Reads and writes the maps of a cluster, and prints their state and their places."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from cqrepl.commands import outcome
from cqrepl.config.clusterfile import load_cluster
from cqrepl.config.electionplan import check_grid_hosts, grids_in
from cqrepl.config.hostplan import in_effect
from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.grid.errors import GridError, GridRefused
from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.partitionsql import partition_sql
from cqrepl.grid.remotegrid import RemoteGrid
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import NO_TLS, TlsSettings


@dataclass(frozen=True, slots=True)
class SetPlace:
    """The map set, and where it is looked for.

    Args:
        wait_seconds: for a host that serves it.
        tls: by which hosts are met.
    """

    hosts: str
    map_set: str
    wait_seconds: float
    as_json: bool = False
    tls: TlsSettings = NO_TLS

    def addresses(self) -> list[Address]:
        """Those that were given.

        Raises:
            BadArguments: one is none.
        """
        try:
            found = [Address.parse(each.strip()) for each in self.hosts.split(",") if each.strip()]
        except ValueError as error:
            raise BadArguments(f"--at: {error}") from None
        if not found:
            raise BadArguments("--at: expected HOST:PORT, got nothing")
        return found

    def grid(self) -> RemoteGrid:
        """A client of it."""
        return RemoteGrid(self.addresses(), self.map_set, (), (), self.wait_seconds, self.tls)


def value_of(text: str) -> object:
    """A key or a value as it was typed: JSON, with lists for tuples; else the text itself."""
    try:
        return _tuples(json.loads(text))
    except ValueError:
        return text


def _tuples(value: object) -> object:
    if isinstance(value, list):
        return tuple(_tuples(each) for each in value)
    if isinstance(value, dict):
        raise BadArguments(f"expected a text, number, bool, null or list, got {json.dumps(value)}")
    return value


def shown(value: object) -> str:
    """A value, as `value_of` takes it."""
    if isinstance(value, str) and value_of(value) == value:
        return value
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=lambda each: each.hex(), ensure_ascii=False)


def _guarded(work: Callable[[], int]) -> int:
    def run() -> int:
        try:
            return work()
        except GridRefused as error:
            output.write_error(f"cqrepl grid: {error}")
            return exitcodes.REFUSED
        except GridError as error:
            output.write_error(f"cqrepl grid: {error}")
            return exitcodes.UNREACHABLE

    return outcome.guarded("cqrepl grid", run)


def get(place: SetPlace, name: str, key: str, at: str | None) -> int:
    """Prints the value of a key; the exit code: 1 where there is none.

    Args:
        at: a token; None: as the primary has it.
    """

    def work() -> int:
        nothing = object()
        with place.grid() as grid:
            found = grid.session(at=at).map(name).get(value_of(key), nothing)
        if found is nothing:
            output.write_error(f"cqrepl grid: map {name!r} has no entry of {key}")
            return exitcodes.STOPPED
        output.write_text(shown(found) + "\n")
        output.flush()
        return exitcodes.OK

    return _guarded(work)


def put(place: SetPlace, name: str, key: str, value: str) -> int:
    """Puts a value, and prints the token; the exit code."""

    def work() -> int:
        with place.grid() as grid, grid.session() as session:
            session.map(name).put(value_of(key), value_of(value))
        output.write_text(f"{session.token}\n")
        output.flush()
        return exitcodes.OK

    return _guarded(work)


def scan(place: SetPlace, name: str, partition: int | None) -> int:
    """Prints all entries, of one partition or of all; the exit code."""

    def work() -> int:
        with place.grid() as grid:
            count = grid.settings.partitions
            for each in range(count) if partition is None else (partition,):
                for key, value in grid.session().map(name).scan(each):
                    output.write_text(f"{shown(key)}\t{shown(value)}\n")
        output.flush()
        return exitcodes.OK

    return _guarded(work)


def status(place: SetPlace) -> int:
    """Prints the groups as each host that was given has them; the exit code."""

    def work() -> int:
        for row in trio.run(partial(_statuses, place)):
            output.write_text((json.dumps(row) if place.as_json else _line(row)) + "\n")
        output.flush()
        return exitcodes.OK

    return _guarded(work)


async def _statuses(place: SetPlace) -> list[dict[str, object]]:
    client = GridClient(place.addresses(), place.map_set, place.wait_seconds, tls=place.tls)
    async with client.running():
        return await client.statuses()


def _line(row: dict[str, object]) -> str:
    if "why" in row:
        return f"{row['host']}: {row['why']}"
    waits = row["waitsFor"]
    parts = [f"{row['host']}  group {row['group']}", str(row["state"])]
    parts.append(f"{row['entries']} entries, {row['bytes']} bytes, {row['open']} open")
    if row["serves"]:
        parts.append(f"{row['started']} of {row['partitions']} partitions started")
        parts.append(f"peers {_ids(row['peers'])}")
    if waits:
        parts.append(f"waits for host {_ids(waits)}")
    if row["fault"]:
        parts.append(f"ended: {row['fault']}")
    return ", ".join(parts)


def _ids(hosts: object) -> str:
    assert isinstance(hosts, Iterable)
    return ", ".join(map(str, hosts)) or "none"


def sql(table: str, key: str, partitions: int) -> int:
    """Prints the statements that a table of PostgreSQL needs; the exit code."""

    def work() -> int:
        output.write_text(partition_sql(table, key, partitions))
        output.flush()
        return exitcodes.OK

    return _guarded(work)


def plan(path: Path, as_json: bool) -> int:
    """Prints the hosts of each group by a file; the exit code."""

    def work() -> int:
        config = load_cluster(path)
        process = in_effect(config, {}, {})
        check_grid_hosts(config, process)
        for grid in grids_in(process).values():
            wanted = 1 + grid.settings.replicas.sync + grid.settings.replicas.others
            for name, hosts in grid.copies(sorted(config.hosts)).items():
                state = "whole" if len(hosts) == wanted else "degraded"
                row = {"group": name, "hosts": hosts, "state": state}
                ids = ", ".join(map(str, hosts))
                line = json.dumps(row) if as_json else f"{name}  hosts {ids}  {state}"
                output.write_text(line + "\n")
        output.flush()
        return exitcodes.OK

    return _guarded(work)
