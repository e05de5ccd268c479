"""Reading a queue in every direction gives the same: what a walk from the start gives."""

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.queue import ExcerptBatch, Queue, Tailer
from cqrepl.queue.read import count as counting
from cqrepl.queue.read.backward import BackwardTailer
from cqrepl.queue.read.namedtailer import NamedTailer
from cqrepl.queue.read.timesearch import seek_time
from tests.support.reading import cycles_of, down_of
from tests.support.samples import Excerpts, layout, noon_index, rest_of

NAMES = ("TEST_DAILY", "TEST2_DAILY", "TEST4_SECONDLY", "TEST8_DAILY", "FAST_DAILY")
CYCLE_MAX = 60  # excerpts that the smallest of these can hold in a cycle
TIMED = 8  # bytes of an excerpt that has a time


@st.composite
def queues(draw: st.DrawFn) -> tuple[str, dict[int, list[bytes]]]:
    """A roll cycle's name, and payloads for some cycles; times in them never fall."""
    name = draw(st.sampled_from(NAMES))
    aheads = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True).map(sorted))
    most = CYCLE_MAX if name == "TEST_DAILY" else 300
    time, cycles = 0, {}
    for ahead in aheads:
        count = draw(st.integers(1, most))
        has_times = draw(st.sampled_from(["all", "some", "none"]))
        step = draw(st.integers(0, 3))
        payloads = []
        for nth in range(count):
            time += step * (nth % 3 == 0)
            timed = has_times == "all" or (has_times == "some" and (nth * 7 + ahead) % 5 == 0)
            payloads.append(struct.pack("<q", time) if timed else bytes(nth % 7))
        cycles[ahead] = payloads
    return name, cycles


def fill(path: Path, name: str, cycles: dict[int, list[bytes]]) -> Excerpts:
    written: Excerpts = []
    with Queue.open_for_append(path, create=layout(name)) as queue:
        appender = queue.appender()
        for ahead, payloads in cycles.items():
            batch = ExcerptBatch.of(noon_index(name, ahead=ahead), payloads)
            appender.append_at(batch)
            written += [(index, bytes(data) or b"\x8f") for index, data in batch]
    return written


def read_time(payload: memoryview) -> int | None:
    if len(payload) != TIMED:
        return None
    time: int = struct.unpack("<q", payload)[0]
    return time


@settings(max_examples=60, deadline=None)
@given(queues(), st.data())
def test_every_way_of_reading_agrees(
    made: tuple[str, dict[int, list[bytes]]], data: st.DataObject
) -> None:
    name, payloads = made
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue"
        written = fill(path, name, payloads)
        cycles = cycles_of(path, name)
        nth = data.draw(st.integers(0, len(written) - 1))
        other = data.draw(st.integers(0, len(written) - 1))
        index = written[nth][0]

        tailer = Tailer(cycles, index)
        assert rest_of(tailer) == written[nth:]
        tailer.close()
        count_max = data.draw(st.integers(1, 400))
        assert down_of(BackwardTailer(cycles, index), count_max)[::-1] == written[: nth + 1]
        assert down_of(BackwardTailer(cycles))[::-1] == written

        assert counting.count(cycles, 0, written[-1][0]) == len(written)
        assert counting.count(cycles, index, written[other][0]) == max(0, other - nth + 1)
        assert counting.first_index(cycles) == written[0][0]
        assert counting.last_index(cycles) == written[-1][0]

        timed = [(at, read_time(memoryview(payload))) for at, payload in written]
        there = sorted({one for _, one in timed if one is not None} | {0})
        time = data.draw(st.integers(-1, 500) | st.sampled_from(there))
        slowly = [at for at, one in timed if one is not None and one >= time]
        assert seek_time(cycles, time, read_time) == (slowly or [written[-1][0] + 1])[0]


@settings(max_examples=40, deadline=None)
@given(queues(), st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), max_size=30))
def test_named_tailers_resume_where_they_committed(
    made: tuple[str, dict[int, list[bytes]]], runs: list[tuple[int, bool, bool]]
) -> None:
    """Each run reads so many, singly or in a batch; without commit its last read comes again."""
    name, payloads = made
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue"
        written = fill(path, name, payloads)
        at = 0
        for count, singly, commits in runs:
            tailer = NamedTailer(cycles_of(path, name), "one")
            found: Excerpts = []
            if singly:
                for _, excerpt in zip(range(count), tailer, strict=False):
                    found.append((excerpt.index, bytes(excerpt)))
                unread = 1
            else:
                batch = tailer.next_batch(count_max=count)
                found = [(index, bytes(one)) for index, one in batch or ()]
                unread = len(found)
            assert found == written[at : at + len(found)]
            assert found or at == len(written)
            if commits:
                tailer.commit()
                unread = 0
            tailer.close()
            if len(found) < count and singly:
                unread = 0  # it has asked for more, and so has read all
            at += len(found) - (unread if found else 0)
