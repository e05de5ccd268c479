"""The cost of a cycle before an excerpt is read: planning, and audits that read nothing.

    python -m tests.bench.spark_cycles [--rounds 3] [--cycles 1000,4000,16000] [--audited 1000]

read      the plan of a batch: what each cycle holds, cut into tasks
stream    the plan of one batch of a stream that takes 100 excerpts of the whole backlog
archive   the plan of a first run of `archive`
audit     the job, of two copies whose side files prove them equal, in a session that has had a job

Seconds on the clock and of the processors, and microseconds of the processors for each cycle;
medians. The queues are in the file system's cache, and have 20 excerpts in a cycle.
"""

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType

from cqrepl.bench.report import scratch
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Cycle
from cqrepl.spark.datasource import ChronicleSource
from cqrepl.spark.jobs.archiveplan import plan_archive
from cqrepl.spark.jobs.audit import audit
from cqrepl.spark.ranges import present, split
from cqrepl.spark.session import SessionSettings, session
from tests.bench.rounds import asked, loaded, numbers
from tests.bench.spark_jobs import measured
from tests.spark.queues import note_chains

_COLUMNS = StructType([StructField("index", LongType(), False)])
_DAY_MS = 86_400_000
_FIRST = 1_000
_EXCERPTS = 20
_PAGE = 4096
_ZEROS = bytes(_PAGE)


def make_queue(path: Path, cycles: int) -> None:
    """A queue of so many cycles, closed but for the last: copies of one store file."""
    with Queue.open(path, create="FAST_DAILY") as queue:
        for cycle in (_FIRST, _FIRST + cycles - 1):
            payloads = [b"excerpt %012d" % number for number in range(_EXCERPTS)]
            queue.append_many(payloads, now_ms=cycle * _DAY_MS)
        first = queue.cycles.path_of(Cycle(_FIRST))
        data = first.read_bytes()
        for cycle in range(_FIRST + 1, _FIRST + cycles - 1):
            _lay(queue.cycles.path_of(Cycle(cycle)), data)


def _lay(path: Path, data: bytes) -> None:
    """Writes a file without what is zeros in it."""
    with path.open("wb") as file:
        file.truncate(len(data))
        for at in range(0, len(data), _PAGE):
            page = data[at : at + _PAGE]
            if page != _ZEROS:
                file.seek(at)
                file.write(page)


def copy_queue(path: Path, target: Path) -> None:
    """Another directory with the same."""
    target.mkdir()
    for each in path.iterdir():
        if each.is_file():
            _lay(target / each.name, each.read_bytes())


def plans(path: Path) -> dict[str, Callable[[], object]]:
    """The steps that are measured of one queue without Spark, by name."""

    def read() -> None:
        with Queue.open(path) as queue:
            split(present(queue))

    def stream() -> None:
        source = ChronicleSource({"path": str(path), "maxexcerptsperbatch": "100"})
        reader = source.streamReader(schema=_COLUMNS)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.partitions(start, end)

    def archive() -> None:
        with Queue.open(path) as queue:
            plan_archive(queue, {}, with_open=False)

    return {"read": read, "stream": stream, "archive": archive}


def show(name: str, cycles: int, found: list[tuple[float, float]]) -> None:
    clock, processors = (statistics.median(each) for each in zip(*found, strict=True))
    each = processors / cycles * 1e6
    print(
        f"{name:<8} {cycles:>6,} cycles  {clock:6.2f} s  {processors:6.2f} s of the processors"
        f"  {each:5.0f} us each",
        flush=True,
    )


def audited(folder: Path, cycles: int, rounds: int) -> None:
    """The job `audit`, of two copies that are proved to be equal."""
    paths = [folder / "one", folder / "two"]
    make_queue(paths[0], cycles)
    copy_queue(*paths)
    for path in paths:
        note_chains(path)
    with session(SessionSettings(), "bench") as spark:
        found = audit(spark, paths)
        if not found.is_same or found.read != 1:
            raise RuntimeError(f"expected all but the last cycle proved, found {found.read} read")
        taken = [measured(lambda: audit(spark, paths)) for _ in range(rounds)]
    show("audit", cycles, taken)


def main() -> None:
    options = asked(__doc__, rounds=3, cycles="1000,4000,16000", audited=1000)
    with scratch() as folder:
        for cycles in numbers(options.cycles):
            make_queue(folder / str(cycles), cycles)
            for what, work in plans(folder / str(cycles)).items():
                work()
                show(what, cycles, [measured(work) for _ in range(options.rounds)])
            shutil.rmtree(folder / str(cycles))
        audited(folder, options.audited, options.rounds)
    print(loaded())


if __name__ == "__main__":
    main()
