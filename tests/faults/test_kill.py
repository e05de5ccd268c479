"""`kill -9` of a source and of a sink in the middle of a stream, at chosen documents.

Where, is random for each run; the seed is printed, and CQREPL_KILL_SEED repeats it. After each kill
the copy must be partly there: more than nothing, less than all. In the end both processes have
ended in order, and Java finds what was in the source.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.faults.killing import FRAMES, RUNS, Case, Pair, pair
from tests.support.copies import assert_same
from tests.support.goldens import READ_TO_END, manifest, unpack
from tests.support.java import JavaQueue, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javachecks import CHECKED, assert_java_finds

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

MILLION = 1_000_000
EVERY = 4  # of the golden queues are tried with a change; all of them are replicated without kills
WIDE: dict[str, object] = {"interop.blockSize": 16 << 20}
NOON = {"interop.time": 1_709_640_000_000}  # a clock that stands, far from midnight
BOTH = ("sink", "source")


@pytest.fixture
def quick_java() -> Iterator[JavaQueue]:
    """Compiles what runs often, for queues that take long."""
    require_java()
    with JavaQueue(java_options=(*CHECKED, "-XX:TieredStopAtLevel=4")) as queue:
        yield queue


async def kill_in_turn(both: Pair, rng: random.Random, kills: int) -> None:
    """Kills sink and source in turn, each time in another stretch of the stream."""
    total = len(both.case.indexes)
    copied = both.case.copied()
    first, stretch = copied, total - copied
    for nth in range(kills):
        begin = max(first + stretch * nth // kills, copied + 1)
        passed = rng.randint(begin, first + stretch * (nth + 1) // kills - 1)
        least = rng.randint(copied + 1, passed)
        role, in_flight = BOTH[nth % 2], rng.random() < 0.5
        copied = await both.kill(role, passed, least, in_flight=in_flight)
        print(
            f"{role} killed: {copied} of {total} copied, limits {least} to {passed}, {in_flight=}"
        )
        assert copied <= passed < total
        assert copied >= least or not both.case.has_frames


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if nth % EVERY == 0 else [pytest.mark.long])
        for nth, name in enumerate(READ_TO_END)
    ],
)
async def test_a_golden_queue(
    java: JavaQueue, tmp_path: Path, rng: random.Random, name: str
) -> None:
    golden = manifest(name)
    case = Case(
        source=unpack(name, tmp_path),
        sink=tmp_path / "copy",
        indexes=golden.indexes,
        dialler=rng.choice(BOTH),
        options=FRAMES,
    )
    async with pair(case) as both:
        await kill_in_turn(both, rng, 2)
        await both.finish()
    assert_java_finds(java, case.sink, golden.dumped(), block_size=golden.block_size)


@pytest.mark.parametrize("options", [FRAMES, RUNS], ids=["frames", "runs"])
async def test_a_back_copy(
    java: JavaQueue, tmp_path: Path, rng: random.Random, options: tuple[str, ...]
) -> None:
    """The sink has more than the source, which keeps other writers out while it takes that back:
    a source that is killed leaves both locks behind, and the next one takes them over."""
    golden = manifest("test4_secondly_overflow")
    sink, source = unpack(golden.name, tmp_path), tmp_path / "source"
    with Queue.open(sink) as ahead, Queue.open_for_append(source, create=ahead.layout) as behind:
        first = ahead.tailer().next_batch(count_max=300)
        assert first is not None
        behind.appender().append_at(first)
    case = Case(
        source=source,
        sink=sink,
        indexes=golden.indexes,
        dialler=rng.choice(BOTH),
        sender="sink",
        options=options,
    )
    async with pair(case) as both:
        await kill_in_turn(both, rng, 4)
        await both.finish()
    for path in (source, sink):
        assert_java_finds(java, path, golden.dumped(), block_size=golden.block_size)
        assert java.call("tryappend", path, "01").lines[0]["status"] == "written"


def make_many(java: JavaQueue, path: Path, count: int) -> range:
    """A queue of so many excerpts of about 100 bytes; their indexes."""
    answer = java.call("append", path, "FAST_DAILY", count, "95-105", 1, props=WIDE | NOON)
    first, last = (int(answer.lines[-1][key], 16) for key in ("firstIndex", "lastIndex"))
    assert last - first + 1 == count
    return range(first, last + 1)


@pytest.mark.parametrize(
    ("count", "kills", "options"),
    [
        (MILLION // 5, 8, RUNS),
        (MILLION // 5, 4, FRAMES),
        pytest.param(MILLION, 30, RUNS, marks=pytest.mark.long),
    ],
    ids=["runs", "frames", "long"],
)
async def test_many_excerpts(
    quick_java: JavaQueue,
    tmp_path: Path,
    rng: random.Random,
    count: int,
    kills: int,
    options: tuple[str, ...],
) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    indexes = make_many(quick_java, source, count)
    case = Case(source=source, sink=sink, indexes=indexes, options=options)
    async with pair(case, seconds=600) as both:
        await kill_in_turn(both, rng, kills)
        await both.finish()
    assert_same(source, sink)
    props = WIDE | {"interop.readOnly": True}
    out = {path: path.with_suffix(".dump") for path in (source, sink)}
    verifying = quick_java.start("verify", sink, 2000, props=props)
    dumping = [quick_java.start("dump", path, "--sha", props=props, out=out[path]) for path in out]
    assert verifying.result(300).lines[0]["ok"], verifying
    assert [each.result(300).exit for each in dumping] == [0, 0]
    assert out[source].read_bytes() == out[sink].read_bytes()
