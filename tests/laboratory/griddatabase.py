"""A grid on the hosts of a run whose map has a loader: a database beside them, and its check.

No fault meets the database itself, but it refuses something now and then. It keeps the numbers of
the transactions that it has committed, in the same transaction, and takes none twice.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cqrepl.grid.gridsettings import MapSettings
from cqrepl.grid.loaders import BackingMap, LoaderChange, LoaderDesk, LoaderTx
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import MapOp
from cqrepl.surroundings import Surroundings
from cqrepl.testing.experiment import Scene
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import RunPlan
from tests.laboratory import gridmaps

REFUSALS = 0.05  # of what is asked
SETTINGS = replace(
    gridmaps.SETTINGS, maps={"m": MapSettings(loader="db", preload=False)}, outcome_seconds=2.0
)


@dataclass
class Database:
    """Its rows, and the numbers of the transactions that it has committed."""

    rng: random.Random
    rows: dict[object, object] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)

    def refuse_now_and_then(self) -> None:
        if self.rng.random() < REFUSALS:
            raise OSError("the database is busy")

    def commit(self, tx: int, changes: Sequence[LoaderChange]) -> None:
        if tx in self.committed:
            raise ValueError(f"transaction {tx:#x} is there already")
        self.committed.add(tx)
        for op, key, value in changes:
            if op is MapOp.CLEAR:
                self.rows.clear()
            elif op is MapOp.PUT:
                self.rows[key] = value
            else:
                self.rows.pop(key, None)


@dataclass
class DatabaseLoader:
    """The loader of one start of a host, with what it has not committed yet."""

    database: Database
    begun: dict[int, list[LoaderChange]] = field(default_factory=dict)

    def preload_map(self, session: GridSession, backing_map: BackingMap) -> None:
        """Nothing is there that the grid has not put."""

    def begin(self, tx: LoaderTx) -> None:
        self.begun[tx.tx] = []

    def apply(self, tx: LoaderTx, changes: Sequence[LoaderChange]) -> None:
        self.database.refuse_now_and_then()
        self.begun[tx.tx] += changes

    def commit(self, tx: LoaderTx) -> None:
        self.database.refuse_now_and_then()
        self.database.commit(tx.tx, self.begun.pop(tx.tx))

    def rollback(self, tx: LoaderTx) -> None:
        self.begun.pop(tx.tx, None)

    def was_committed(self, tx: LoaderTx) -> bool:
        return tx.tx in self.database.committed


def database_run(plan: RunPlan) -> Outcome:
    """A run with a database."""
    database = Database(random.Random(f"database {plan.seed}"))
    codec = ValueCodec()

    def desk(host: int, machine: Surroundings) -> gridmaps.Desk:
        loader = DatabaseLoader(database)
        loaders = LoaderDesk(SETTINGS, {"db": loader}, loader, codec)
        return gridmaps.desk_of(loaders, SETTINGS, machine)

    def rows(scene: Scene) -> Iterator[str]:
        """The database has what the copies make."""
        for host in scene.equal_hosts(QUEUE) if scene.lost_from(QUEUE) is None else ():
            state, _ = gridmaps.replayed(scene, host)
            entries = state.partitions.get(0, {}).get("m", {})
            made = {codec.loads(key): codec.loads(each.value) for key, each in entries.items()}
            if made != database.rows:
                yield f"the copy of host {host} makes {made}, and the database has {database.rows}"

    return run(
        plan,
        programs=[desk],
        workload=gridmaps.workload,
        checks=[*gridmaps.checks, rows],
        writes=True,
    )
