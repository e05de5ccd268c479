"""The time of a put with one synchronous replica, beside that of a bare append.

    python -m tests.bench.gridputs [--count 1000] [--rounds 5] [--entries 100]

The primary runs in this process, its event loop in a thread; the replica is a process of its own,
and so is the client. Each round measures, in turn: `Leading.append` under the same policy, in a
plain thread; a put in the primary's process; a put of the client; the bare append of as much as
`--entries` entries, and a transaction of so many in the primary's process. Told are the middle
times, their ratios to the bare append, and how often the process of the primary has given up the
processor, and its event loop has run a task, for each put.
"""

import contextlib
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

import cqrepl.grid
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.report import scratch
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.hostedstore import HostedStore
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.host import Host
from cqrepl.protocol.ackpolicy import parse_policy
from cqrepl.queue import Queue
from cqrepl.replicator.leadership import Leading
from cqrepl.replicator.settings import HostSettings, SourceSettings
from tests.bench.rounds import asked, in_turn, loaded, verdict

LOG, BARE = "s-0", "bare"
SETTINGS = cqrepl.grid.GridSettings(
    name="s",
    maps={"m": cqrepl.grid.MapSettings()},
    partitions=1,
    groups=1,
    replicas=cqrepl.grid.ReplicaSettings(sync=1),
)
POLICY = parse_policy("level=appended from=1")
RECORD = bytes(110)  # as long as the record of such a put
ENTRY = 30  # bytes that one entry more takes
WARM = 100


def grid_desk() -> GridDesk:
    desk = LoaderDesk(SETTINGS, {}, None, ValueCodec())
    return GridDesk([GridGroup(SETTINGS, 0, desk, lambda: (1, 2))])


async def replica(folder: str, address: str) -> None:
    """In a process of its own."""
    sinks = {each: Path(folder) / each for each in (LOG, BARE)}
    desk = grid_desk()
    async with Host(
        HostSettings.of(host_id=2, connect=address, sinks=sinks), programs=[desk]
    ) as host:
        async with desk.running(host, lambda _: None), desk.answering():
            await trio.sleep_forever()


def client(address: str) -> None:
    """In a process of its own: for each line a number of puts, and their times."""
    with cqrepl.grid.connect(address, "s", timeout=60.0) as grid:
        for line in sys.stdin:
            times = put_times(grid.session(), int(line), 1)
            print(json.dumps(times), flush=True)


def put_times(session: cqrepl.grid.GridSession, count: int, entries: int) -> list[float]:
    def put(nth: int) -> None:
        with session:
            for each in range(entries):
                session.map("m").put(each, nth)

    return times_of(put, count)


def times_of(call: Callable[[int], object], count: int) -> list[float]:
    times = []
    for nth in range(count):
        began = time.perf_counter()
        call(nth)
        times.append((time.perf_counter() - began) * 1e6)
    return times


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


class Primary:
    """The primary, whose event loop runs in a thread."""

    def __init__(self, folder: Path) -> None:
        self.paths = {each: folder / each for each in (LOG, BARE)}
        self.steps = Steps()
        self.port = 0
        self.leading: Leading
        self.store: HostedStore
        self.is_there = threading.Event()
        self.group: GridGroup
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken

    async def serve(self) -> None:
        for path in self.paths.values():
            Queue.open_for_append(path, create="FAST_DAILY").close()
        source = SourceSettings(
            policies=dict.fromkeys(self.paths, POLICY), exclusive=frozenset({LOG})
        )
        settings = HostSettings.of(
            host_id=1, listen="127.0.0.1:0", sources=self.paths, source=source
        )
        desk = grid_desk()
        self.group = desk.groups[LOG]
        with self._scope:
            async with Host(settings, programs=[desk]) as host:
                assert host.port is not None
                self.port, self.leading = host.port, host.queue(BARE).leading
                self._token = trio.lowlevel.current_trio_token()
                self.store = HostedStore(self.group, self._token)
                self.is_there.set()
                async with desk.running(host, lambda _: None), desk.answering():
                    await trio.sleep_forever()

    def run(self) -> None:
        trio.run(self.serve, instruments=[self.steps])

    def end(self) -> None:
        trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)


@contextlib.contextmanager
def process(*words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.bench.gridputs", *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        try:
            yield made
        finally:
            made.kill()


def main() -> None:
    options = asked(__doc__, count=1000, rounds=5, entries=100)
    found: dict[str, list[tuple[float, float]]] = {}
    with scratch() as folder:
        primary = Primary(folder / "1")
        loop = threading.Thread(target=primary.run)
        loop.start()
        primary.is_there.wait()
        address = f"127.0.0.1:{primary.port}"
        with process("replica", str(folder / "2"), address), process("client", address) as far:
            try:
                while not primary.group.fields()["peers"]:
                    time.sleep(0.05)
                long = bytes(len(RECORD) + (options.entries - 1) * ENTRY)
                cases: dict[str, Callable[[int], list[float]]] = {
                    "bare": lambda n: times_of(
                        lambda _: primary.leading.append([RECORD], policy=POLICY), n
                    ),
                    "put here": lambda n: put_times(primary.store.session(), n, 1),
                    "put of a client": lambda n: asked_of(far, n),
                    f"bare of {options.entries}": lambda n: times_of(
                        lambda _: primary.leading.append([long], policy=POLICY), n
                    ),
                    f"{options.entries} here": lambda n: put_times(
                        primary.store.session(), n, options.entries
                    ),
                }
                for name, case in cases.items():
                    case(WARM)
                    found[name] = []
                for nth in range(options.rounds):
                    for name in in_turn(cases, nth):
                        before, steps = switches(), primary.steps.count
                        times = sorted(cases[name](options.count))
                        gave = (switches() - before) / options.count
                        ran = (primary.steps.count - steps) / options.count
                        p50, p99 = percentile(times, 50), percentile(times, 99)
                        found[name].append((p50, p99))
                        told = f"p50 {p50:7.0f} us, p99 {p99:7.0f} us, {gave:5.1f} turns"
                        print(f"{name:16} {told}, {ran:5.1f} steps  {loaded()}", flush=True)
            finally:
                primary.end()
                loop.join()
    bare = "bare"
    for name, times_found in found.items():
        if name.startswith("bare"):
            bare = name
        pairs = list(zip(times_found, found[bare], strict=True))
        ratios = [one / least for (one, _), (least, _) in pairs]
        middle = statistics.median(p50 for p50, _ in times_found)
        print(f"{name:16} p50 {middle:7.0f} us, {verdict(ratios)}")


def asked_of(far: "subprocess.Popen[str]", count: int) -> list[float]:
    assert far.stdin is not None
    assert far.stdout is not None
    far.stdin.write(f"{count}\n")
    far.stdin.flush()
    times: list[float] = json.loads(far.stdout.readline())
    return times


def switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


if __name__ == "__main__":
    if sys.argv[1:2] == ["replica"]:
        trio.run(replica, sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["client"]:
        client(sys.argv[2])
    else:
        main()
