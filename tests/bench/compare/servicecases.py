"""The measurements of services: tasks, storages, and the leaders of groups, beside their peers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqrepl.bench.percentiles import percentile
from cqrepl.bench.report import scratch
from tests.bench import clusters, waitacked
from tests.bench.compare.running import Case, Group, Values
from tests.bench.peers import postgres, quickfix, redis
from tests.bench.peers.programs import missing_program

TASK_SIZE, TASK_SECONDS, FLIGHTS = 100, 5, (1, 8, 64)
ITEM_SIZE, ITEM_COUNT, ITEM_GAP_US = 100, 2000, 500.0
GROUPS, IDLE_SECONDS = 8, 20.0


def service_groups(share: int) -> list[Group]:
    """All of them.

    Args:
        share: of what is measured, to see whether it runs.
    """
    idle = partial(_in_scratch, partial(clusters.idle_share, seconds=IDLE_SECONDS / share))
    return [
        _tasks(share),
        _storages(share),
        Group(
            name="promotions", cases=[Case(name="ours-promotions", run=partial(_in_scratch, _kill))]
        ),
        Group(name="idle-cluster", wants_calm=True, cases=[Case(name="ours-cluster", run=idle)]),
    ]  # fmt: skip


def _in_scratch(run: Callable[[Path], Values], _kept: Path) -> Values:
    with scratch() as folder:
        return run(folder)


def _kill(folder: Path) -> Values:
    return clusters.promoted_after(folder, GROUPS)


def _tasks(share: int) -> Group:
    """Tasks that wait until they are on disks, so many at a time."""
    seconds = max(TASK_SECONDS // share, 1)

    def named(rates: list[float]) -> Values:
        return {f"of_{each}_per_s": rate for each, rate in zip(FLIGHTS, rates, strict=True)}

    def ours(folder: Path) -> Values:
        return named(clusters.submit_rates(folder, TASK_SIZE, FLIGHTS, seconds))

    def theirs(kept: Path) -> Values:
        rates = []
        for each in FLIGHTS:
            with scratch() as folder:
                rates.append(redis.waited_rate(folder, TASK_SIZE, each, seconds, synced=True))
        return named(rates)

    return Group(
        name="tasks",
        cases=[
            Case(name="ours-tasks", run=partial(_in_scratch, ours)),
            Case(name="redis-tasks", run=theirs, missing=redis.missing),
        ],
    )


def _storages(share: int) -> Group:
    """An item, and the wait until a backup has applied it; Redis has it in its memory then."""
    size, count = ITEM_SIZE, max(ITEM_COUNT // share, 100)

    def ours(folder: Path) -> Values:
        return clusters.storage_waits(folder, size, count, ITEM_GAP_US)

    def sync(folder: Path) -> Values:
        return {"p50_us": waitacked.local_sync_us(folder, size)}

    def waited(waits: Callable[[Path], list[float]], folder: Path) -> Values:
        found = waits(folder)
        return {"p50_us": percentile(found, 50), "p99_us": percentile(found, 99)}

    def commits(folder: Path) -> list[float]:
        return postgres.waits_us(folder, size, count, "applied")

    def engine(kept: Path) -> Values:
        with scratch() as folder:
            return clusters.engine_waits(folder, kept, size, count)

    def file_store(kept: Path) -> Values:
        with scratch() as folder:
            return quickfix.store_times(kept, "file", folder, size, count)

    def no_postgres() -> str | None:
        return postgres.missing() or missing_program("pgbench")

    entries = partial(redis.waits_us, size=size, count=count)
    return Group(
        name="storages",
        wants_calm=True,
        cases=[
            Case(name="ours-storages", run=partial(_in_scratch, ours)),
            Case(name="ours-engine", run=engine, missing=quickfix.missing),
            Case(name="fdatasync", run=partial(_in_scratch, sync)),
            Case(
                name="redis-entries",
                run=partial(_in_scratch, partial(waited, entries)),
                missing=redis.missing,
            ),
            Case(
                name="postgres-commits",
                run=partial(_in_scratch, partial(waited, commits)),
                missing=no_postgres,
            ),
            Case(name="file-store", run=file_store, missing=quickfix.missing),
        ],
    )
