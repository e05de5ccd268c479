"""The demonstration of a grid: three processes that load two maps from SQLite, and transfers.

A primary is killed when 80 % of the rows are loaded, and comes back; then money moves between
accounts, each transfer one transaction, while another primary is killed. Each row has to be read
once, but for those of the blocks that were under way; no transfer may be half done; what was
written is seen by whom reads with its token; and the database has the same as the maps.
"""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

import cqrepl.grid
from cqrepl.console.endings import held_back
from cqrepl.console.output import flush, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.demohosts import DemoHosts, cluster_file
from cqrepl.demonode import addresses_in
from cqrepl.grid.errors import Conflict, LoaderError, LockTimeout, OutcomeUnknown
from cqrepl.routing import partition_of

HOSTS: Final = (1, 2, 3)
SET: Final = "bank"
PARTITIONS: Final = 16
GROUPS: Final = 4
BALANCE: Final = 100
BLOCK: Final = 100
KILL_AT: Final = 0.8  # of the rows
SETTLE_SECONDS: Final = 120.0
_CLIENTS: Final = 3
_PAUSE_SECONDS: Final = 0.005


@dataclass(slots=True)
class GridResult:
    """The findings of a demonstration.

    Args:
        rows: in both tables.
        read: by preloads, on all hosts.
        read_after_kill: those of them after the first kill.
        leads: so often has a host come to lead a group while rows were read.
        missing: rows that no map has.
        transfers: that were acknowledged.
        unknown: those whose outcome is not known.
        after_kill: those that were acknowledged after the second kill.
        stale: reads with a token that were older than it.
        before, after: the sums of all accounts.
        database: the sum there, in the end.
        differs: accounts that the database has otherwise.
        killed: the hosts, in order.
    """

    rows: int
    read: int = 0
    read_after_kill: int = 0
    leads: int = 0
    missing: int = 0
    transfers: int = 0
    unknown: int = 0
    after_kill: int = 0
    stale: int = 0
    before: int = 0
    after: int = 0
    database: int = 0
    differs: int = 0
    killed: list[int] = field(default_factory=list)

    @property
    def twice(self) -> int:
        """Rows that were read more than once."""
        return self.read - self.rows

    @property
    def is_right(self) -> bool:
        """True where all was read once, but for the blocks under way, and nothing was lost."""
        sums = {self.before, self.after, self.database, self.rows // 2 * BALANCE}
        is_read = not self.missing and 0 <= self.twice <= BLOCK * self.leads
        has_gone_on = len(self.killed) == 2 and self.transfers > 0 and self.after_kill > 0
        return is_read and has_gone_on and len(sums) == 1 and not self.stale and not self.differs


def run_grid(rows: int, seconds: float, keep: Path | None, *, as_json: bool) -> bool:
    """Runs the demonstration and prints its result; true where that is right.

    Args:
        rows: in both tables together.
        seconds: for so long money is moved.

    Raises:
        OSError: its files cannot be written, or no process be started.
    """
    with demo_folder(keep) as folder:
        demo = _GridDemo(folder, rows - rows % 2, seconds)
        with held_back():
            trio.run(demo.run)
    _print_grid(demo.result, as_json=as_json)
    return demo.result.is_right


class _GridDemo:
    """One demonstration.

    Args:
        folder: for all that it writes.
    """

    def __init__(self, folder: Path, rows: int, seconds: float) -> None:
        self.result = GridResult(rows=rows)
        self._folder = folder
        self._hosts = DemoHosts("cqrepl.gridnode", folder, self._heard)
        self._database = folder / "bank.db"
        self._seconds = seconds
        self._leaders: dict[str, tuple[int, int]] = {}  # by queue: epoch and host
        self._loading = trio.Event()  # 80 % are there
        self._is_over = False

    async def run(self) -> None:
        """Until all is loaded, moved and counted."""
        self._hosts.say(f"{self.result.rows:,} rows go into a SQLite file")
        await trio.to_thread.run_sync(_fill, self._database, self.result.rows)
        self._hosts.file.write_text(cluster_file(self._folder, HOSTS, _grid_line(self._database)))
        self._hosts.begin()
        async with self._hosts.running(HOSTS) as nursery:
            await self._load(nursery)
            await self._move()

    async def _load(self, nursery: trio.Nursery) -> None:
        with trio.fail_after(SETTLE_SECONDS):
            await self._loading.wait()
        first = self._busiest()
        self._hosts.say(f"80 % are loaded: host {first}, a primary, is killed")
        before = self.result.read
        await self._kill(first)
        count = partial(_counted, self._addresses())
        self.result.before, found = await trio.to_thread.run_sync(count)
        self.result.missing = self.result.rows - found
        self.result.read_after_kill = self.result.read - before
        self._hosts.say(
            f"all is loaded; {self.result.read_after_kill:,} rows were read after the kill"
        )
        self._hosts.say(f"host {first} comes back")
        await self._hosts.start(nursery, first)

    async def _move(self) -> None:
        """Money moves; another primary is killed on the way."""
        ends = trio.current_time() + self._seconds
        async with trio.open_nursery() as clients:
            for _ in range(_CLIENTS):
                mover = _Mover(self.result, self._addresses(), lambda: self._is_over)
                clients.start_soon(trio.to_thread.run_sync, mover.run)
            try:
                await trio.sleep(self._seconds / 2)
                second = self._busiest(but=self.result.killed[0])
                self._hosts.say(f"host {second}, a primary, is killed")
                await self._kill(second)
                await trio.sleep_until(ends)
                with trio.move_on_after(SETTLE_SECONDS):
                    while not self.result.after_kill:
                        await trio.sleep(0.1)
            finally:  # also where one of them has failed
                self._is_over = True
        self._hosts.say("all is counted")
        check = partial(_checked, self.result, self._addresses(), self._database)
        await trio.to_thread.run_sync(check)

    def _busiest(self, but: int = 0) -> int:
        """The host that leads most groups."""
        led = Counter(host for _, host in self._leaders.values() if host != but)
        return led.most_common(1)[0][0]

    async def _kill(self, host_id: int) -> None:
        self.result.killed.append(host_id)
        await self._hosts.kill(host_id)

    def _addresses(self) -> str:
        return ",".join(addresses_in(self._hosts.file).values())

    def _heard(self, host_id: int, told: dict[str, object]) -> None:
        if "read" in told:
            assert isinstance(told["rows"], int)
            self.result.read += told["rows"]
            if self.result.read >= KILL_AT * self.result.rows:
                self._loading.set()
        elif told["role"] == "leading":
            queue, epoch = str(told["queue"]), int(str(told["epoch"]))
            self.result.leads += not self.result.before
            if epoch > self._leaders.get(queue, (0, 0))[0]:
                self._leaders[queue] = epoch, host_id


class _Mover:
    """Moves money between two accounts of a partition, time after time, in a thread."""

    def __init__(self, result: GridResult, hosts: str, is_over: Callable[[], bool]) -> None:
        self._result = result
        self._hosts = hosts
        self._rng = random.SystemRandom()
        self._is_over = is_over
        keys: dict[int, list[int]] = {}
        for each in range(result.rows // 2):
            keys.setdefault(partition_of(each, PARTITIONS), []).append(each)
        self._keys = [each for each in keys.values() if len(each) > 1]

    def run(self) -> None:
        """Until it is over."""
        with cqrepl.grid.connect(self._hosts, SET, timeout=SETTLE_SECONDS) as grid:
            while not self._is_over():
                try:
                    self._move(grid)
                except OutcomeUnknown:
                    self._result.unknown += 1
                except (Conflict, LockTimeout, LoaderError):
                    continue

    def _move(self, grid: cqrepl.grid.RemoteGrid) -> None:
        one, two = self._rng.sample(self._rng.choice(self._keys), 2)
        amount = self._rng.randint(1, 9)
        with grid.session() as s:
            accounts = s.map("accounts")
            (first, nth), (second, other) = map(_account, map(accounts.get, (one, two)))
            accounts.put(one, (first - amount, nth + 1))
            accounts.put(two, (second + amount, other + 1))
        self._result.transfers += 1
        if len(self._result.killed) == 2:
            self._result.after_kill += 1
        late = grid.session(at=s.token, timeout=SETTLE_SECONDS).map("accounts")
        if _account(late.get(one))[1] <= nth or _account(late.get(two))[1] <= other:
            self._result.stale += 1


def _account(value: object) -> tuple[int, int]:
    assert isinstance(value, tuple)
    balance, nth = value
    return int(balance), int(nth)


def _fill(path: Path, rows: int) -> None:
    count = rows // 2
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("pragma journal_mode=wal")
        db.execute(
            "create table accounts (id integer primary key, balance integer, nth integer, part int)"
        )
        db.execute("create table owners (id integer primary key, name text, part integer)")
        parts = [partition_of(each, PARTITIONS) for each in range(count)]
        accounts = [(each, BALANCE, 0, parts[each]) for each in range(count)]
        db.executemany("insert into accounts values (?, ?, ?, ?)", accounts)
        owners = [(each, f"owner {each}", parts[each]) for each in range(count)]
        db.executemany("insert into owners values (?, ?, ?)", owners)
        db.execute("create index accounts_part on accounts (part, id)")
        db.execute("create index owners_part on owners (part, id)")


def _counted(hosts: str) -> tuple[int, int]:
    """The sum of all accounts, and the number of rows of both maps."""
    total = rows = 0
    with cqrepl.grid.connect(hosts, SET, timeout=SETTLE_SECONDS) as grid:
        for partition in range(PARTITIONS):
            found = dict(grid.session().map("accounts").scan(partition))
            total += sum(_account(each)[0] for each in found.values())
            owners = dict(grid.session().map("owners").scan(partition))
            rows += len(found.keys() & owners.keys()) * 2
    return total, rows


def _checked(result: GridResult, hosts: str, database: Path) -> None:
    """Counts once more, and holds the maps against the database."""
    result.after, _ = _counted(hosts)
    with closing(sqlite3.connect(database)) as db:
        kept = {each: (balance, nth) for each, balance, nth in db.execute(_ALL)}
    result.database = sum(balance for balance, _ in kept.values())
    with cqrepl.grid.connect(hosts, SET, timeout=SETTLE_SECONDS) as grid:
        for partition in range(PARTITIONS):
            for key, value in grid.session().map("accounts").scan(partition):
                result.differs += kept.get(int(str(key))) != value


_ALL: Final = "select id, balance, nth from accounts"


def _grid_line(database: Path) -> str:
    loaders = {
        name: {
            "url": f"sqlite:///{database}",
            "table": name,
            "key": "id",
            "partitionColumn": "part",
            "block": BLOCK,
        }
        for name in ("accounts", "owners")
    }
    settings = {
        "partitions": PARTITIONS,
        "groups": GROUPS,
        "replicas": {"sync": 1, "async": 1},
        "replicaReads": "token",
        "maps": {name: {"loader": name} for name in loaders},
        "loaders": loaders,
    }
    return f"  grid: {json.dumps({SET: settings})}"


def _print_grid(result: GridResult, *, as_json: bool) -> None:
    if as_json:
        write_text(json.dumps({"v": 1, **asdict(result), "twice": result.twice}) + "\n")
    else:
        write_text(
            f"rows {result.rows:,}, read after the kill {result.read_after_kill:,}, read twice"
            f" {result.twice:,} (a block of {BLOCK} each of the {result.leads} times that a host"
            f" came to lead at most), missing {result.missing:,}\n"
            f"transfers {result.transfers:,}, unknown {result.unknown:,}, after the kill"
            f" {result.after_kill:,}; sum of all accounts {result.before:,} before,"
            f" {result.after:,} after, {result.database:,} in the database\n"
            f"accounts that differ {result.differs:,}, stale reads by token {result.stale:,}\n"
        )
    flush()
