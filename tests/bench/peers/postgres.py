"""PostgreSQL: one COPY at a primary, until a hot standby has replayed it.

Nothing waits for a disk (fsync off, commits not waited for), which is its best case. Beside that,
clients that each wait until the standby has what they have committed.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.bench.peers.programs import WAIT_SECONDS, missing_program, run
from tests.support.ports import reserved_port

INSTALL = "PostgreSQL, 15 or newer, server and client, with initdb and pg_ctl on the path"
COMMANDS = (
    "initdb; pg_ctl start with fsync=off synchronous_commit=off full_page_writes=off "
    "max_wal_size=16GB shared_buffers=512MB wal_writer_delay=10ms autovacuum=off",
    "pg_basebackup -R -X stream; a hot standby; COPY t FROM STDIN until "
    "pg_last_wal_replay_lsn() has reached its end",
)
SETTINGS = (
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_wal_size=16GB",
    "shared_buffers=512MB",
    "wal_writer_delay=10ms",
    "wal_keep_size=8GB",
    "autovacuum=off",
)
# what a commit waits for: that the standby's system has it, its disk, or that it is applied there
WAITED = {
    "appended": ("synchronous_commit=remote_write", "fsync=off"),
    "synced": ("synchronous_commit=on", "fsync=on"),
    "applied": ("synchronous_commit=remote_apply", "fsync=off"),
}
LONG_BYTES = 8000  # longer values are stored beside the table, uncompressed
LOOK_SECONDS = 0.002


def missing() -> str | None:
    """The reason why PostgreSQL cannot run here; None when it can."""
    absent = missing_program("initdb", "pg_ctl", "pg_basebackup", "psql")
    if absent is None and os.getuid() == 0:
        absent = missing_program("runuser")
    return absent


def rate(folder: Path, size: int, count: int) -> dict[str, float]:
    """From the first row sent to the last one visible at the standby: `excerpts_per_s`."""
    storage = "plain" if size < LONG_BYTES else "external"
    rows = folder / f"rows-{size}-{count}"
    if not rows.exists():
        text = "x" * size
        with rows.open("w") as file:
            file.writelines(f"{number}\t{text}\n" for number in range(count))
    with _pair(folder) as (primary_port, standby_port):
        with Session(primary_port) as primary, Session(standby_port) as standby:
            primary.ask(
                f"create table t(i bigint, d text); alter table t alter d set storage {storage}"
            )
            primary.wait_for_standby("state = 'streaming'")
            began = time.perf_counter()
            primary.ask(f"\\copy t from '{rows}'")
            end = primary.ask("select pg_current_wal_insert_lsn()")
            while standby.ask(f"select pg_last_wal_replay_lsn() >= '{end}'::pg_lsn") != "t":
                time.sleep(LOOK_SECONDS)
                primary.ask("select 1")
            seconds = time.perf_counter() - began
            if (found := standby.ask("select count(*) from t")) != str(count):
                raise RuntimeError(f"expected {count} rows at the standby, found {found}")
    return {"excerpts_per_s": count / seconds}


def waited_rate(folder: Path, size: int, clients: int, seconds: int, level: str) -> float:
    """Commits of one row a second, by so many clients that each wait for their own."""
    words = ["-c", clients, "-j", min(clients, 2), "-T", seconds]
    said = _committed(folder, size, level, words)
    found = re.search(r"tps = ([0-9.]+)", said)
    if found is None:
        raise RuntimeError(f"a rate expected, pgbench said {said[-200:]!r}")
    return float(found[1])


def waits_us(folder: Path, size: int, count: int, level: str) -> list[float]:
    """The times of commits of one client that waits for each; the shortest first."""
    logs = folder / f"pgbench-{time.monotonic_ns()}"
    _committed(folder, size, level, ["-c", 1, "-t", count, "-l", "--log-prefix", logs])
    (log,) = folder.glob(f"{logs.name}*")
    took = [float(line.split()[2]) for line in log.read_text().splitlines()]
    log.unlink()
    return sorted(took)


def _committed(folder: Path, size: int, level: str, words: list[object]) -> str:
    """Commits of one row; the text that pgbench prints of them."""
    script = folder / "insert.sql"
    script.write_text(f"insert into t values (repeat('x', {size}));\n")
    with _pair(folder, (*SETTINGS, *WAITED[level])) as (port, _):
        with Session(port) as primary:
            primary.ask("create table t(d text)")
            primary.ask("alter system set synchronous_standby_names = '*'")
            primary.ask("select pg_reload_conf()")
            primary.wait_for_standby("sync_state = 'sync'")
        command: list[object] = ["pgbench", "-n", "-f", script, *words]
        return run([*command, "-h", "127.0.0.1", "-p", port, "-U", "postgres", "postgres"])


class Session:
    """One connection, held by `psql`; asks one thing at a time."""

    def __init__(self, port: int) -> None:
        command = ["psql", "-qAtX", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
        self._process = subprocess.Popen(
            [*command, "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, statement: str) -> str:
        """The answer to a statement, on one line; a mark behind it says that it is whole."""
        assert self._process.stdin is not None is not self._process.stdout
        end = "" if statement.startswith("\\") else ";"
        self._process.stdin.write(f"{statement}{end}\n\\echo --\n")
        self._process.stdin.flush()
        lines = []
        while (line := self._process.stdout.readline().strip()) != "--":
            if self._process.poll() is not None:
                raise RuntimeError(f"psql ended at {statement!r}")
            lines.append(line)
        return " ".join(lines)

    def wait_for_standby(self, condition: str) -> None:
        """Returns when the standby is so."""
        question = f"select count(*) from pg_stat_replication where {condition}"
        while self.ask(question) == "0":
            time.sleep(LOOK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("\\q\n", timeout=WAIT_SECONDS)


@contextmanager
def _pair(folder: Path, settings: tuple[str, ...] = SETTINGS) -> Iterator[tuple[int, int]]:
    """Ports of a primary and of its standby."""
    ports = reserved_port(), reserved_port()
    place = folder / f"postgres-{ports[0]}"
    place.mkdir()
    user = _user()
    if user:
        shutil.chown(place, user[2])
        folder.chmod(folder.stat().st_mode | 0o011)  # that user has to get through
    primary, standby = place / "primary", place / "standby"
    server = [*user, "pg_ctl", "-w", "-D"]
    try:
        run([*user, "initdb", "-D", primary, "-A", "trust", "-U", "postgres"])
        logged, told = ("-l", place / "primary.log"), _options(place, ports[0], settings)
        run([*server, primary, *logged, "-o", told, "start"])
        source = ["-h", "127.0.0.1", "-p", ports[0], "-U", "postgres"]
        run([*user, "pg_basebackup", *source, "-D", standby, "-R", "-X", "stream", "-c", "fast"])
        logged, told = ("-l", place / "standby.log"), _options(place, ports[1], settings)
        run([*server, standby, *logged, "-o", told, "start"])
        yield ports
    finally:
        for each in (standby, primary):
            if (each / "postmaster.pid").exists():
                with suppress(RuntimeError):
                    run([*server, each, "-m", "immediate", "stop"])
        shutil.rmtree(place, ignore_errors=True)


def _user() -> list[str]:
    """The words that go before a command: servers do not run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []


def _options(place: Path, port: int, settings: tuple[str, ...]) -> str:
    settings = (f"port={port}", f"unix_socket_directories={place}", *settings)
    return " ".join(f"-c {setting}" for setting in settings)
