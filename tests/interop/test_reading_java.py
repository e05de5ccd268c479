"""Named tailers, repairs and retention beside the real Java library, on the same files."""

import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from cqrepl.queue import Queue, Tailer
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.storefile import START, StoreFile
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.read.namedtailer import NamedPosition, NamedTailer
from cqrepl.queue.write.endrepair import EndRepair
from cqrepl.queue.write.retention import Policy, plan, remove
from tests.support.goldens import manifest, unpack
from tests.support.java import Answer, JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.reading import cycles_of
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    fill,
    noon_index,
    noon_path,
    read,
    rest_of,
    without_end_mark,
)
from tests.support.tables import keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

DAY_MS = 86_400_000
PATIENCE_S = 120.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def excerpts_in(answer: Answer) -> Excerpts:
    return [
        (int(line["index"], 16), bytes.fromhex(line["payload"]))
        for line in answer.lines
        if "index" in line
    ]


def java_tail(java: JavaQueue, path: Path, name: str, count: int) -> Excerpts:
    answer = java.call("tail", path, count, 120, "--name", name)
    assert answer.exit == 0, answer
    return excerpts_in(answer)


def our_tail(path: Path, name: str, count: int) -> Excerpts:
    tailer = NamedTailer(cycles_of(path), name)
    found = [(one.index, bytes(one)) for _, one in zip(range(count), tailer, strict=False)]
    tailer.commit()
    tailer.close()
    return found


@pytest.mark.parametrize("name", ["alpha", "replicated:alpha"])
@pytest.mark.parametrize("java_first", [True, False])
def test_each_goes_on_where_the_other_stopped(
    java: JavaQueue, path: Path, name: str, java_first: bool
) -> None:
    """Over ends of cycles, and over cycles that are not there."""
    written = fill(path, "FAST_DAILY", {0: 7, 1: 1, 3: 5, 9: 12})
    found: Excerpts = []
    for turn, count in enumerate([4, 3, 1, 2, 3, 5, 7]):
        if (turn % 2 == 0) == java_first:
            found += java_tail(java, path, name, count)
        else:
            found += our_tail(path, name, count)
        assert found == written[: len(found)]
    assert found == written
    position = NamedPosition(cycles_of(path), name)
    assert position.load() == written[-1][0] + 1
    assert (position.version() > 0) == name.startswith("replicated:")
    position.close()


def test_moves_of_ours_count_as_those_of_java(java: JavaQueue, path: Path) -> None:
    """Their version rises by one for each, wherever it was made."""
    written = fill(path, "FAST_DAILY", {0: 20})
    assert java_tail(java, path, "replicated:a", 3) == written[:3]
    before = keys_of(path)["index.replicated:a.version"]
    assert our_tail(path, "replicated:a", 5) == written[3:8]
    keys = keys_of(path)
    assert keys["index.replicated:a.version"] == before + 5
    assert java_tail(java, path, "replicated:a", 2) == written[8:10]
    assert keys_of(path)["index.replicated:a"] == written[10][0]


def test_golden_positions_go_on_in_java_after_us(java: JavaQueue, tmp_path: Path) -> None:
    path = unpack("named_tailers", tmp_path)
    indexes = [index for index, _ in manifest("named_tailers").digests]
    for name, first in [("alpha", 4), ("beta", 0), ("replicated:gamma", 7)]:
        assert [index for index, _ in our_tail(path, name, 2)] == indexes[first : first + 2]
        found = java_tail(java, path, name, 1)
        assert [index for index, _ in found] == indexes[first + 2 : first + 3]


def test_a_repair_sets_a_waiting_java_reader_free(java: JavaQueue, tmp_path: Path) -> None:
    path, count = (
        unpack("missing_eof_middle", tmp_path),
        len(manifest("missing_eof_middle").digests),
    )
    waiting = java.start("tail", path, count, 120)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, repair=EndRepair(cycles))
    given = 0
    deadline = time.monotonic() + PATIENCE_S
    while given < count and tailer.wait(deadline - time.monotonic()):
        given += sum(1 for _ in tailer)
    tailer.close()
    assert given == count
    answer = waiting.result(300)
    assert answer.exit == 0, answer
    assert len(excerpts_in(answer)) == count


def in_place(path: Path, name: str, index: int) -> None:
    """Waits until a live Java reader of that name has come to an index."""
    deadline = time.monotonic() + PATIENCE_S
    position = NamedPosition(cycles_of(path), name)
    while position.load() < index:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    position.close()


def test_java_goes_on_while_cycles_are_deleted(java: JavaQueue, path: Path) -> None:
    """A live reader, an appender, and readers that come later."""
    written = fill(path, "FAST_DAILY", dict.fromkeys(range(5), 4))
    live: Future[Answer] = java.start("tail", path, len(written) + 3, 60, "--name", "live")
    in_place(path, "live", written[-1][0] + 1)
    removed = remove(cycles_of(path), Policy(cycles_min=2))
    assert [one.path for one in removed] == [noon_path(path, ahead=ahead) for ahead in range(3)]
    keys = keys_of(path)
    noon = noon_index() >> 32
    assert (keys["listing.lowestcycle"], keys["listing.highestcycle"]) == (noon + 3, noon + 4)
    props = {"interop.time": NOON_MS + 5 * DAY_MS}
    appended = java.call("append", path, "FAST_DAILY", 3, 20, 1, props=props)
    assert appended.exit == 0, appended
    answer = live.result(300)
    assert answer.exit == 0, answer
    assert excerpts_in(answer)[: len(written)] == written
    assert len(excerpts_in(answer)) == len(written) + 3
    left = read(path)
    assert left[:8] == written[12:]
    for read_only in (False, True):
        dump = java.call("dump", path, props={"interop.readOnly": read_only})
        assert excerpts_in(dump) == left
    assert java.call("verify", path, 2000).exit == 0


def test_java_in_a_deleted_cycle_reads_on_from_the_next_there_is(
    java: JavaQueue, path: Path
) -> None:
    """It waits in an open cycle, which is deleted, with the next one, and then closed."""
    written = fill(path, "FAST_DAILY", {0: 4, 1: 2, 3: 4})
    without_end_mark(path)
    waiting = java.start("tail", path, 8, 120, "--name", "reader")
    in_place(path, "reader", written[3][0] + 1)
    store = StoreFile.open(noon_path(path), 0, writable=True)
    assert store is not None
    table = TableStore(path / FILE_NAME, writable=True)
    with WordLock(table, WRITE_LOCK_KEY).held(5):
        noon_path(path).unlink()
        noon_path(path, ahead=1).unlink()
        Listing(table).renew(cycles_of(path).listing())
    table.close()
    store.write_end_mark(store.walk(START).place.position)
    store.close()
    answer = waiting.result(300)
    assert answer.exit == 0, answer
    assert excerpts_in(answer) == written[:4] + written[6:]


def test_a_java_reader_holds_what_it_has_not_read(java: JavaQueue, path: Path) -> None:
    written = fill(path, "FAST_DAILY", dict.fromkeys(range(4), 3))
    assert java_tail(java, path, "slow", 4) == written[:4]
    assert [one.is_removable for one in plan(cycles_of(path), Policy())] == [
        True, False, False, False,
    ]  # fmt: skip
    assert len(remove(cycles_of(path), Policy())) == 1
    assert java_tail(java, path, "slow", 8) == written[4:]
    assert len(remove(cycles_of(path), Policy())) == 2
    with Queue.open(path) as queue:
        assert rest_of(queue.tailer()) == written[9:]
