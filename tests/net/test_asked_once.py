"""A batch is measured once on its way: counted calls, in one replicated run of both roles.

Every excerpt has a length of its own, so what a call was about is told by the lengths it was given,
whichever array holds them. A context variable tells the two roles apart: both run in this process.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

import pytest

from cqrepl.kernel import batch as kernel
from cqrepl.kernel import live
from cqrepl.net import sharedsocket
from cqrepl.queue import Appender, ExcerptBatch, Queue
from tests.support.replicas import acked, live_sink, live_source
from tests.support.samples import layout, noon_index, read, stored

ROLL_CYCLE: Final = "TEST4_DAILY"  # an index page is due every 128 excerpts
EXCERPTS: Final = 1500  # more than a megabyte: several frames' worth, cut anywhere
PER_BATCH: Final = 50

T = TypeVar("T")
Sizer = Callable[["array[int]", int, int], T]
Said = list[tuple[str, list[int]]]  # by which role, and about which excerpts
role: ContextVar[str] = ContextVar("role", default="")


@dataclass(slots=True)
class Asked:
    """The questions of each role, with the lengths that they were about."""

    measured: Said = field(default_factory=list)  # of the whole of an array
    cut: Said = field(default_factory=list)  # of a stretch within an array
    laid: Said = field(default_factory=list)
    tried: Said = field(default_factory=list)  # by `append_now`

    def measure(self, lengths: "array[int]", start: int, count: int) -> None:
        into = self.measured if count == len(lengths) else self.cut
        into.append((role.get(), lengths[start : start + count].tolist()))

    def lay(self, lengths: "array[int]", start: int, count: int) -> None:
        self.laid.append((role.get(), lengths[start : start + count].tolist()))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Notes every call from now on, whichever module makes it."""
    found = Asked()
    for name, note in (("measure_lengths", found.measure), ("laid_size", found.lay)):
        original: Sizer[object] = getattr(kernel, name)
        for module in modules():
            if getattr(module, name, None) is original:
                monkeypatch.setattr(module, name, noting(note, original))
    append_now = Appender.append_now

    def noted(appender: Appender, batch: ExcerptBatch) -> bool:
        found.tried.append((role.get(), batch.lengths.tolist()))
        return append_now(appender, batch)

    monkeypatch.setattr(Appender, "append_now", noted)
    return found


def modules() -> list[ModuleType]:
    """All modules of the product that are loaded."""
    return [each for name, each in sys.modules.items() if name.split(".")[0] == "cqrepl"]


def noting(note: Sizer[None], original: Sizer[T]) -> Sizer[T]:
    """A function that notes each call, and does what it did."""

    def noted(lengths: "array[int]", start: int, count: int) -> T:
        note(lengths, start, count)
        return original(lengths, start, count)

    return noted


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Work that is started in the block acts for this role."""
    token = role.set(name)
    try:
        yield
    finally:
        role.reset(token)


def times(said: Iterable[tuple[str, list[int]]], by: str) -> Counter[int]:
    """The number of times that a role has asked about each excerpt."""
    return Counter(length for who, about in said if who == by for length in about)


def fill_with_lengths(path: Path) -> list[tuple[int, bytes]]:
    """A queue whose excerpts have all the lengths from 1 on; what is in it."""
    payloads = [bytes([length % 251]) * length for length in range(1, EXCERPTS + 1)]
    written = []
    with Queue.open_for_append(path, create=layout(ROLL_CYCLE)) as queue:
        appender = queue.appender()
        for start in range(0, EXCERPTS, PER_BATCH):
            index = noon_index(ROLL_CYCLE, sequence=start)
            batch = ExcerptBatch.of(index, payloads[start : start + PER_BATCH])
            appender.append_at(batch)
            written += stored(batch)
    return written


@pytest.mark.parametrize("has_pump", [True, False], ids=["usual", "without a live pump"])
async def test_each_step_asks_once(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, has_pump: bool
) -> None:
    if not has_pump:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill_with_lengths(original)
    await replicate(original, copy, written[-1][0])
    assert read(copy) == written
    once = Counter(range(1, EXCERPTS + 1))
    assert times(asked.measured, "source") <= once
    assert times(asked.cut, "source") <= once, "acknowledged in part, and the same part again"
    assert times(asked.measured, "sink") <= once
    assert times(asked.laid, "sink") <= times(asked.measured, "sink")
    assert times(asked.tried, "sink") <= once
    assert asked.laid, "the test's own appends, at least"
    if not (has_pump and live.AVAILABLE):  # a pump keeps no lengths of what is acknowledged
        assert times(asked.measured, "sink") == times(asked.tried, "sink") == once
        assert times(asked.measured, "source") == once
    assert not times(asked.cut, "sink")
    assert not times(asked.laid, "source")
    assert not times(asked.tried, "source")


async def replicate(original: Path, copy: Path, last: int) -> None:
    """Until the source knows that the copy is complete."""
    async with AsyncExitStack() as stack:
        with acting_as("source"):
            source = await stack.enter_async_context(live_source(original))
        with acting_as("sink"):
            await stack.enter_async_context(live_sink(copy, source.port))
        with acting_as("source"):
            await acked(source, last)  # looks at what a live pump has done
