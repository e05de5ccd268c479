"""Replicates two queues on this machine while a pipeline of Spark audits, archives and derives.

The queues hold documents; their fields are columns of a table of Parquet.

The pipeline is killed in the midst of its work, driver and Java, and begun again. Then what came
out is counted: each row of the queues has to be in each table once.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

import trio

import wire
from cqrepl.console.output import flush, json_line, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.typed.schemafile import json_schema

_NAMES: Final = ("orders", "trades")
_DAY_MS: Final = 86_400_000
_START_MS: Final = 1_700_006_400_000
_PATIENCE_S: Final = 600.0
_LOOK_S: Final = 0.1
_APART: Final = 3  # cycles of each queue, and then as many again


@dataclass
class QueuedOrder:
    """A document of the queues."""

    wire_event: ClassVar[str] = "order"
    sym: str
    px: float
    at: datetime


@dataclass(slots=True)
class PipelineResult:
    """The findings of a demonstration.

    Args:
        rows: that were appended to both queues.
        typed: that are in the table of Parquet.
        twice, lost: of the rows that were derived into a queue.
        archived: cycles.
        kills: of the pipeline.
        place: of the tables.
    """

    rows: int
    typed: int
    twice: int
    lost: int
    archived: int
    kills: int
    place: str

    @property
    def is_right(self) -> bool:
        """True where nothing is lost and nothing came twice."""
        return self.typed == self.rows and not self.twice and not self.lost and self.archived > 0


def run_pipeline_demo(count: int, keep: Path | None, *, as_json: bool) -> bool:
    """Runs it with about so many rows, and prints what was found; true where all is right.

    Raises:
        QueueError: the pipeline has not come to an end.
    """
    with demo_folder(keep and keep.absolute()) as folder:
        result = trio.run(_demonstrate, folder, max(1, count // (4 * _APART)))
    if as_json:
        write_text(json_line(asdict(result)))
    else:
        write_text(
            f"{result.rows:,} rows in, {result.typed:,} rows typed, twice {result.twice}, lost"
            f" {result.lost}; {result.archived} cycles archived; the pipeline was killed"
            f" {result.kills} time\ntables: {result.place}\n"
        )
    flush()
    return result.is_right


async def _demonstrate(folder: Path, size: int) -> PipelineResult:
    sources = [folder / "queues" / name for name in _NAMES]
    copies = {name: folder / "copies" / name for name in _NAMES}
    for each in (*sources, *copies.values(), folder / "archive" / "x"):
        each.parent.mkdir(parents=True, exist_ok=True)
    for path in sources:
        Queue.open_for_append(path, create="FAST_DAILY").close()
    file = _written(folder)
    async with (
        serve_source(sources, listen="127.0.0.1:0") as source,
        serve_sink(copies, connect=f"127.0.0.1:{source.port}"),
    ):
        await _append(source, sources, 0, size)
        async with _pipeline(folder, file, "--every", "0.5"):
            await _wait_for_rows(folder / "seen")
            await _append(source, sources, _APART, size)
    # it was killed; what it has done half is done by the next run
    await _finish(folder, file)
    return _found(folder, sources)


async def _append(source: Any, paths: list[Path], day: int, size: int) -> None:
    """Appends to both queues, in several cycles, and waits until the copies have it."""
    for path in paths:
        with Queue.open_for_append(path) as queue:
            for nth in range(day, day + _APART):
                now_ms = _START_MS + nth * _DAY_MS
                at = datetime.fromtimestamp(now_ms / 1000, UTC)
                orders = [QueuedOrder(f"S{number % 9}", number / 4, at) for number in range(size)]
                queue.append_many([wire.encode(each) for each in orders], now_ms=now_ms)
                last = queue.last_index()
            await source.wait_acked(last, path.name)


def _written(folder: Path) -> Path:
    (folder / "order.json").write_text(json.dumps(json_schema(QueuedOrder)))
    section = {
        "state": str(folder / "state"),
        "queues": {
            str(folder / "queues" / "*"): {
                "copies": [str(folder / "copies" / "{name}")],
                "archive": str(folder / "archive" / "{name}"),
                "release": True,
                "schema": str(folder / "order.json"),
            }
        },
        "tables": {
            "typed": {
                "sql": "select queue, index, sym, px, at from typed where _error is null",
                "to": "parquet",
                "path": str(folder / "typed"),
            },
            "seen": {
                "sql": "select concat(queue, ' ', index) as payload from queues",
                "to": "queue",
                "path": str(folder / "seen"),
                "rollCycle": "FAST_DAILY",
            },
        },
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"pipeline": section}))
    return file


def _command(file: Path, *more: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "cqrepl", "spark", "pipeline", "-c", str(file)]
    return [*command, "--conf", "spark.driver.memory=1g", *more]


@asynccontextmanager
async def _pipeline(folder: Path, file: Path, *more: str) -> AsyncIterator[None]:
    """Runs until the block ends; then it is killed, with its Java and all workers."""
    with (folder / "pipeline.log").open("ab") as log:
        running = await trio.lowlevel.open_process(
            _command(file, *more), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await running.wait()


async def _wait_for_rows(path: Path) -> None:
    """Waits until a queue has rows.

    Raises:
        QueueError: it has none in all that time.
    """
    with trio.move_on_after(_PATIENCE_S):
        while True:
            with suppress(QueueError), Queue.open(path) as queue:
                if queue.first_index() is not None:
                    return
            await trio.sleep(_LOOK_S)
    raise QueueError("expected rows of the pipeline, found none; pipeline.log tells", path=path)


async def _finish(folder: Path, file: Path) -> None:
    log = folder / "pipeline.log"
    with log.open("ab") as out:
        done = await trio.run_process(
            _command(file), stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        said = log.read_text(errors="replace").splitlines()[-1:]
        raise QueueError(f"the pipeline ended with {done.returncode}: {said}", path=file)


def _found(folder: Path, sources: list[Path]) -> PipelineResult:
    import pyarrow.parquet as pq

    wanted: Counter[str] = Counter()
    for path in sources:
        with Queue.open(path) as queue:
            wanted.update(f"{path.name} {each.index}" for each in queue.tailer())
    with Queue.open(folder / "seen") as queue:
        seen = Counter(bytes(each).decode() for each in queue.tailer())
    # the table's own log names its files; others are of batches that were killed
    log = folder / "typed" / "_spark_metadata"
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for each in log.iterdir()
        if each.name.split(".")[0].isdigit()
        for line in each.read_text().splitlines()[1:]
    }
    typed = sum(pq.read_metadata(each).num_rows for each in files)
    manifests = [folder / "archive" / path.name for path in sources]
    archived = sum(len({each.parent for each in path.rglob("*.parquet")}) for path in manifests)
    return PipelineResult(
        rows=wanted.total(),
        typed=typed,
        twice=(seen - wanted).total(),
        lost=(wanted - seen).total(),
        archived=archived,
        kills=1,
        place=str(folder),
    )
