"""`kill -9` of a source and of a sink in the middle of a stream, at chosen documents.

Where, is random for each run; the seed is printed, and CQREPL_KILL_SEED repeats it. After each kill
the copy must be partly there: more than nothing, less than all. In the end both processes have
ended in order, and Java finds what was in the source.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cqrepl.demo import difference
from cqrepl.queue import Queue
from tests.faults.killing import Case, Pair, pair
from tests.interop.build import BUILD_TIMEOUT_S
from tests.interop.goldens import (
    READ_TO_END,
    assert_java_finds,
    excerpts_of,
    indexes_of,
    manifest,
    unpack,
)
from tests.interop.java import JavaQueue, require_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 240)]

CHECKED = ("-ea", "-Dqueue.check.index=true")
MILLION = 1_000_000
WIDE = {"interop.blockSize": 16 << 20}
BOTH = ("sink", "source")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(java_options=CHECKED) as queue:
        yield queue


@pytest.fixture
def rng() -> random.Random:
    seed = os.environ.get("CQREPL_KILL_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"CQREPL_KILL_SEED={seed}")  # shown when the test fails
    return random.Random(seed)


async def kill_in_turn(both: Pair, rng: random.Random, kills: int) -> None:
    """Kills sink and source in turn, each time in another stretch of the stream."""
    total = len(both.case.indexes)
    copied = both.case.copied()
    first, stretch = copied, total - copied
    for nth in range(kills):
        begin = max(first + stretch * nth // kills, copied + 1)
        passed = rng.randint(begin, first + stretch * (nth + 1) // kills - 1)
        least = rng.randint(copied + 1, passed)
        role = BOTH[nth % 2]
        before, copied = copied, await both.kill(role, passed, least)
        print(f"{role} killed with {copied} of {total} copied, {passed} passed on")
        assert before < least <= copied <= passed < total
        assert 0 < copied < total


@pytest.mark.parametrize("name", READ_TO_END)
async def test_a_golden_queue(
    java: JavaQueue, tmp_path: Path, rng: random.Random, name: str
) -> None:
    golden = manifest(name)
    case = Case(
        source=unpack(name, tmp_path),
        sink=tmp_path / "copy",
        indexes=indexes_of(golden),
        dialler=rng.choice(BOTH),
    )
    async with pair(case) as both:
        await kill_in_turn(both, rng, 2)
        await both.finish()
    assert_java_finds(java, case.sink, excerpts_of(golden), block_size=golden["blockSize"])


def million(java: JavaQueue, path: Path) -> range:
    """A queue of a million excerpts of about 100 bytes; their indexes."""
    answer = java.call("append", path, "FAST_DAILY", MILLION, "95-105", 1, props=WIDE)
    first, last = (int(answer.lines[-1][key], 16) for key in ("firstIndex", "lastIndex"))
    assert last - first + 1 == MILLION, "the day has changed meanwhile"
    return range(first, last + 1)


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.long)])
async def test_a_million_excerpts(
    java: JavaQueue, tmp_path: Path, rng: random.Random, kills: int
) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    case = Case(source=source, sink=sink, indexes=million(java, source))
    async with pair(case, seconds=180) as both:
        await kill_in_turn(both, rng, kills)
        await both.finish()
    assert difference(source, sink) is None
    verified = java.call("verify", sink, 2000, props=WIDE, timeout=120)
    assert verified.exit == 0, verified
    dumps = [tmp_path / "source.dump", tmp_path / "sink.dump"]
    for path, out in zip((source, sink), dumps, strict=True):
        assert java.call("dump", path, "--sha", props=WIDE, out=out, timeout=120).exit == 0
    assert dumps[0].read_bytes() == dumps[1].read_bytes()
