"""The measurements: our own benchmarks and the peers', in groups that take turns."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqrepl.bench.catchup import catch_up_round, prepared
from cqrepl.bench.fanout import queues_round, sinks_round
from cqrepl.bench.latency import latency_round
from cqrepl.bench.local import append_round, tail_round
from cqrepl.bench.percentiles import percentile
from cqrepl.bench.report import scratch
from cqrepl.cli.main import cli
from tests.bench import audits, idle, stalled, twoways, waitacked, waiters
from tests.bench.compare.running import Case, Group, Values
from tests.bench.compare.servicecases import service_groups
from tests.bench.fullhost import full_host_round
from tests.bench.peers import aeron, java, limits, nats, postgres, redis
from tests.bench.peers.programs import missing_program
from tests.bench.waitacked import applied_waits
from wire.header import HEADER_BYTES, align4

SIZES = (64, 256, 1024, 16384)
OUR_COUNTS = (6_000_000, 3_000_000, 800_000, 50_000)  # Java's and Aeron's too
REDIS_COUNTS = (600_000, 500_000, 200_000, 10_000)
NATS_COUNTS = (200_000, 150_000, 100_000, 8_000)
POSTGRES_COUNTS = (500_000, 300_000, 100_000, 6_000)
STREAM_MIB = 1024
LATENCY_SIZE, LATENCY_COUNT, GAP_US = 256, 4000, 500
LIVE_SIZE, LIVE_BATCH, LIVE_BATCHES = 40, 1670, 10_000  # one batch a millisecond
LOCAL_SIZE, LOCAL_COUNT = 64, 1_000_000
MEMORY_SIZE, MEMORY_BYTES = 1024, 4 << 30
FAN_SIZE, FAN_COUNT = 1024, 200_000
SINKS, QUEUES = (1, 4, 16), (1, 10, 100)
QUEUES_MANY = 1000
QUEUES_SIZE, QUEUES_COUNT = 256, 4_000_000
STALLED_SIZE, STALLED_COUNT = 256, 4_000_000
SLOW_BYTES_PER_S = 1 << 20
HOST_QUEUES, HOST_PEERS, HOST_SECONDS = 1000, 20, 30.0
WAITERS, WAITERS_SECONDS, WAITERS_SIZE = 64, 5, 64
WAITERS_LEVELS = ("appended", "synced", "applied")
APPLIED_SIZE, APPLIED_COUNT = 64, 2000
WAITED_SIZE, WAITED_COUNT, WAITED_QUEUES = 64, 2000, (1, 100)
IDLE_QUEUES, IDLE_PEERS, IDLE_SECONDS = 100, 3, 20.0
AUDIT_CYCLES, AUDIT_SIZE, AUDIT_COUNT = (1, 10), 256, 12_000_000
QUICK_SHARE = 20
POLLS = "import os\nwhile True: os.sched_yield()"


def groups(*, quick: bool) -> list[Group]:
    """All groups, in the order in which they run; `quick` only tries whether they do."""
    share = QUICK_SHARE if quick else 1
    return [
        *(_catch_up(number, share) for number in range(len(SIZES))),
        _latency(share),
        _two_ways(share),
        Group(name="live", cases=[Case(name="ours-live", run=partial(_live, share))],
              wants_calm=True),
        _local(share),
        Group(name="memory", cases=[Case(name="ours-memory", run=partial(_memory, share))],
              rounds_max=1),
        _fan_out(share),
        _stalled(share),
        _audits(share),
        *(_waiters(level, share) for level in WAITERS_LEVELS),
        _applied(share),
        _waited(share),
        Group(name="idle", cases=[Case(name="ours-idle", run=partial(_idle, share))],
              wants_calm=True),
        Group(name="host", cases=[Case(name="ours-host", run=partial(_full_host, share))],
              rounds_max=1),
        *service_groups(share),
    ]  # fmt: skip


def stored_bytes(size: int) -> int:
    """Bytes that one excerpt of this size takes in a store file: what a run sends for it."""
    return HEADER_BYTES + align4(size)


def _catch_up(number: int, share: int) -> Group:
    size, count = SIZES[number], OUR_COUNTS[number] // share
    peers = [
        Case(
            name=f"{name}-{size}",
            run=partial(rate, size=size, count=counts[number] // share),
            missing=missing,
        )
        for name, rate, missing, counts in (
            ("java", java.rate, java.missing, OUR_COUNTS),
            ("aeron", aeron.rate, aeron.missing, OUR_COUNTS),
            ("redis", redis.rate, redis.missing, REDIS_COUNTS),
            ("nats", nats.rate, nats.missing, NATS_COUNTS),
            ("postgres", postgres.rate, postgres.missing, POSTGRES_COUNTS),
        )
    ]
    stream = partial(limits.stream, mib=STREAM_MIB // share)
    return Group(
        name=f"catch-up-{size}",
        cases=[
            Case(name=f"c-stream-{size}", run=stream, missing=limits.missing),
            Case(name=f"ours-fresh-{size}", run=partial(_ours, size, count, False)),
            Case(name=f"ours-touched-{size}", run=partial(_ours, size, count, True)),
            Case(name=f"ours-frames-{size}", run=partial(_ours, size, count, False, runs=False)),
            *peers,
        ],
    )


def _ours(size: int, count: int, touched: bool, kept: Path, *, runs: bool | None = None) -> Values:
    work = prepared(kept, size, count)
    with scratch() as folder:
        values = catch_up_round(folder, work, touched=touched, runs=runs).values
    return values | {"stored_gb_per_s": values["excerpts_per_s"] * stored_bytes(size) / 1e9}


def _latency(share: int) -> Group:
    count = LATENCY_COUNT // share
    echo = partial(limits.echo, size=LATENCY_SIZE, count=count, gap_us=GAP_US)
    return Group(
        name="latency",
        wants_calm=True,
        cases=[
            Case(name="c-spin", run=partial(echo, mode="spin"), missing=limits.missing),
            Case(
                name="c-spin-three",
                run=partial(_among_three, partial(echo, mode="spin")),
                missing=limits.missing,
            ),
            _ours_latency("busy", count),
            Case(name="c-block", run=partial(echo, mode="block"), missing=limits.missing),
            _ours_latency("balanced", count),
            Case(
                name="java-delay",
                run=partial(java.delay, size=LATENCY_SIZE, count=count, gap_us=GAP_US),
                missing=java.missing,
            ),
        ],
    )


def _among_three(echo: Callable[[Path], Values], kept: Path) -> Values:
    """The two polling sides with one process more that polls, as our writer beside two hosts."""
    with subprocess.Popen([sys.executable, "-S", "-c", POLLS]) as third:
        try:
            return echo(kept)
        finally:
            third.kill()


def _two_ways(share: int) -> Group:
    """Two hosts that stream to each other: one of them writes, or both do."""

    def run(_kept: Path, *, ways: int) -> Values:
        with scratch() as folder:
            return twoways.measure(
                folder,
                ways=ways,
                size=LATENCY_SIZE,
                count=LATENCY_COUNT // share,
                gap_us=GAP_US,
                pauser="balanced",
            )

    cases = [Case(name=f"ours-{ways}-ways", run=partial(run, ways=ways)) for ways in (1, 2)]
    return Group(name="two-ways", wants_calm=True, cases=cases)


def _waited(share: int) -> Group:
    """A plain thread that waits for each of its excerpts, beside twice the one-way delay."""

    def run(_kept: Path, *, queues: int) -> Values:
        size, count = WAITED_SIZE, WAITED_COUNT // share
        asked = waitacked.Asked(size=size, count=count, gap_us=GAP_US)
        with scratch() as folder:
            waited = waitacked.measured(folder, asked, max(queues // share, 1))
        return {"least_us": waited.least, "p50_us": waited.p50, "p99_us": waited.p99}

    cases = [
        Case(name=f"ours-waited-{queues}", run=partial(run, queues=queues))
        for queues in WAITED_QUEUES
    ]
    return Group(name="waited", wants_calm=True, cases=cases)


def _idle(share: int, _kept: Path) -> Values:
    """A source's share of a core while nothing comes, and that of a process that only sleeps."""
    with scratch() as folder:
        queues = idle.make_queues(folder, max(IDLE_QUEUES // share, 1), is_empty=False)
        with idle.replicated(folder, queues, IDLE_PEERS, "balanced") as processes:
            source, *_, peer = idle.shares(processes, max(IDLE_SECONDS / share, 2.0))
    return {"core": source, "peer_core": peer}


def _ours_latency(pauser: str, count: int) -> Case:
    def run(_kept: Path) -> Values:
        with scratch() as folder:
            return latency_round(
                folder, size=LATENCY_SIZE, batches=count, interval_ns=GAP_US * 1000, pauser=pauser
            ).values

    return Case(name=f"ours-{pauser}", run=run, missing=_pauser_missing)


def _pauser_missing() -> str | None:
    known = {option for each in cli.commands["source"].params for option in each.opts}
    return None if "--pauser" in known else "cqrepl source has no option --pauser"


def _live(share: int, _kept: Path) -> Values:
    with scratch() as folder:
        return latency_round(
            folder,
            size=LIVE_SIZE,
            batches=LIVE_BATCHES // share,
            interval_ns=1_000_000,
            batch=LIVE_BATCH,
        ).values


def _local(share: int) -> Group:
    count = LOCAL_COUNT // share

    def run(kept: Path) -> Values:
        queue = prepared(kept, LOCAL_SIZE, count).queue
        with scratch() as folder:
            samples = append_round(folder, LOCAL_SIZE, count)
        samples += tail_round(queue, LOCAL_SIZE, count)
        names = ("append_ns", "append_single_ns", "copied_ns", "viewed_ns", "read_single_ns")
        taken = (sample.values["ns_per_excerpt"] for sample in samples)
        return dict(zip(names, taken, strict=True))

    java_run = partial(java.local, size=LOCAL_SIZE, count=count)
    return Group(
        name="local",
        cases=[
            Case(name="ours-local", run=run),
            Case(name="java-local", run=java_run, missing=java.missing),
        ],
    )


def _memory(share: int, _kept: Path) -> Values:
    """Its queue is large, and removed with the case."""
    with scratch() as folder:
        work = prepared(folder, MEMORY_SIZE, MEMORY_BYTES // MEMORY_SIZE // share)
        return catch_up_round(folder, work).values


def _fan_out(share: int) -> Group:
    def sinks(number: int, kept: Path) -> Values:
        with scratch() as folder:
            work = prepared(kept, FAN_SIZE, FAN_COUNT // share)
            return sinks_round(folder, work, number).values

    def queues(number: int, kept: Path) -> Values:
        with scratch() as folder:
            count = QUEUES_COUNT // share
            return queues_round(folder, kept, QUEUES_SIZE, count, number).values

    def cases(
        name: str, run: Callable[[int, Path], Values], numbers: tuple[int, ...]
    ) -> list[Case]:
        return [Case(name=f"ours-{each}-{name}", run=partial(run, each)) for each in numbers]

    numbers = (*QUEUES, QUEUES_MANY)
    return Group(
        name="fan-out", cases=[*cases("sinks", sinks, SINKS), *cases("queues", queues, numbers)]
    )


def _stalled(share: int) -> Group:
    """A good sink, beside one that is stopped by a signal, one that is slow, one that has all."""

    def run(_kept: Path, *, stops: bool = False, slow: int = 0) -> Values:
        with scratch() as folder:
            size, count = STALLED_SIZE, STALLED_COUNT // share
            rate, grown_mib = stalled.measure(folder, size, count, stops=stops, slow=slow)
            return {"excerpts_per_s": rate, "grown_mib": grown_mib}

    return Group(
        name="stalled",
        cases=[
            Case(name="ours-beside-stalled", run=partial(run, stops=True)),
            Case(name="ours-beside-resting", run=run),
            Case(name="ours-beside-slow", run=partial(run, slow=SLOW_BYTES_PER_S)),
        ],
    )


def _audits(share: int) -> Group:
    """The cases that measure the reading behind a catch-up of one cycle, and of several."""

    def run(cycles: int, _kept: Path) -> Values:
        with scratch() as folder:
            return audits.measure(folder, AUDIT_SIZE, AUDIT_COUNT // share, cycles)

    names = [(each, f"ours-audits-{each}") for each in AUDIT_CYCLES]
    return Group(
        name="audits", cases=[Case(name=name, run=partial(run, each)) for each, name in names]
    )


def _full_host(share: int, _kept: Path) -> Values:
    peers = max(HOST_PEERS // share, 2)
    seconds, settle_s = HOST_SECONDS / share, 60.0 / share
    with scratch() as folder:
        return full_host_round(folder, HOST_QUEUES // share, peers, seconds, settle_s)


def _waiters(level: str, share: int) -> Group:
    """One thread that waits for each of its writes, and many."""
    size, seconds = WAITERS_SIZE, max(WAITERS_SECONDS // share, 2)

    def run(rate: Callable[[Path, int], float], _kept: Path) -> Values:
        rates = []
        for threads in (1, WAITERS):
            with scratch() as folder:
                rates.append(rate(folder, threads))
        return {"one_per_s": rates[0], "many_per_s": rates[1], "share": rates[1] / rates[0]}

    own = partial(waiters.own_rate, level, size=size, seconds=seconds, pauser="balanced")
    cases = [Case(name=f"ours-waiters-{level}", run=partial(run, own))]
    if level == "appended":

        def redis_rate(folder: Path, threads: int) -> float:
            return redis.waited_rate(folder, size, threads, seconds)

        cases.append(
            Case(name="redis-waiters", run=partial(run, redis_rate), missing=redis.missing)
        )

    def postgres_rate(folder: Path, threads: int) -> float:
        return postgres.waited_rate(folder, size, threads, seconds, level)

    def missing() -> str | None:
        return postgres.missing() or missing_program("pgbench")

    name = f"postgres-waiters-{level}"
    cases.append(Case(name=name, run=partial(run, postgres_rate), missing=missing))
    return Group(name=f"waiters-{level}", cases=cases)


def _applied(share: int) -> Group:
    """A thread that waits until a program at the sink has taken its excerpt."""
    size, count = APPLIED_SIZE, APPLIED_COUNT // share

    def run(_kept: Path) -> Values:
        with scratch() as folder:
            waits = applied_waits(folder, size=size, count=count, gap_us=GAP_US)
        return {"p50_us": percentile(waits, 50), "p99_us": percentile(waits, 99)}

    echo = partial(limits.echo, size=size, count=count, gap_us=GAP_US, mode="apart")
    return Group(
        name="applied",
        wants_calm=True,
        cases=[
            Case(name="c-apart", run=echo, missing=limits.missing),
            Case(name="ours-applied", run=run),
        ],
    )
