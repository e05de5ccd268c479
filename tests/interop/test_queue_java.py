"""Our appender and tailer against the real Java library, on the same files, also at the same time.

Java runs with its assertions on (`-ea`) and checks its index on the way.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue, QueueLayout, QueueLocked, Tailer, cycle_of, index_of
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, Sequence
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.quarantine import quarantine
from cqrepl.queue.write import appender as appender_module
from cqrepl.queue.write.nextcycle import precreate
from tests.support.goldens import WRITABLE, manifest, unpack
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payload, payloads
from tests.support.samples import NOON_MS

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

Excerpts = list[tuple[int, bytes]]


def excerpts_of(tailer: Tailer) -> Excerpts:
    found: Excerpts = []
    while (batch := tailer.next_batch()) is not None:
        found += [(index, bytes(data)) for index, data in batch]
    return found


def dump_of(java: JavaQueue, path: Path) -> Excerpts:
    """The excerpts that Java reads from the start, without an application's metadata documents."""
    out = path.with_name(path.name + ".dump")
    answer = java.call("dump", path, out=out)
    assert answer.exit == 0, answer
    lines = [json.loads(text) for text in out.read_text().splitlines()[:-1]]
    return [(int(line["index"], 16), bytes.fromhex(line["payload"])) for line in lines]


def assert_verified(java: JavaQueue, path: Path, count: int) -> None:
    answer = java.call("verify", path, 2000)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == count, answer


def runs(
    roll_cycle_name: str, counts: dict[int, int], size: int = 40, per_batch: int = 50
) -> Iterator[ExcerptBatch]:
    roll_cycle = by_name(roll_cycle_name)
    first = roll_cycle.cycle_at(NOON_MS, 0)
    for ahead, count in counts.items():
        data = [payload(first + ahead, i, (i * 7) % size) for i in range(count)]
        for start in range(0, count, per_batch):
            index = index_of(Cycle(first + ahead), Sequence(start), roll_cycle.shift)
            yield ExcerptBatch.of(index, data[start : start + per_batch])


def stored(batches: list[ExcerptBatch]) -> Excerpts:
    """The excerpts that a reader must find; an excerpt without bytes is kept as the byte 8F."""
    return [(index, bytes(data) or b"\x8f") for batch in batches for index, data in batch]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("FAST_DAILY", {0: 700, 1: 3, 4: 300}),
        ("FAST_HOURLY", {0: 300, 2: 257, 30: 1}),
        ("TEST_SECONDLY", {0: 40, 1: 900, 2: 1, 70: 60}),
        ("TEST4_SECONDLY", {0: 1200, 1: 4, 5: 129, 6: 300}),
        ("TEST_DAILY", {0: 64, 1: 63, 3: 9}),
        ("LARGE_DAILY", {0: 300, 2: 130}),
        ("HUGE_DAILY", {0: 2200, 1: 5}),
        ("MINUTELY", {0: 500, 3: 33}),
        ("TEST2_DAILY", {0: 512, 1: 200}),
        ("TWENTY_MINUTELY", {0: 600, 1: 1}),
    ],
)
@pytest.mark.parametrize("per_batch", [1, 61])
def test_java_verifies_what_we_append(
    java: JavaQueue, tmp_path: Path, name: str, counts: dict[int, int], per_batch: int
) -> None:
    path = tmp_path / "queue"
    batches = list(runs(name, counts, per_batch=per_batch))
    layout = QueueLayout.of(by_name(name))
    with Queue.open_for_append(path, create=layout) as queue:
        appender = queue.appender()
        for batch in batches:
            appender.append_at(batch)
    assert_verified(java, path, sum(counts.values()))
    assert dump_of(java, path) == stored(batches)


@pytest.mark.parametrize("cut", [(0, 300), (1, 0), (1, 5), (4, 0)], ids=str)
def test_java_reads_before_a_cut_and_behind_it_and_writes_there(
    java: JavaQueue, tmp_path: Path, cut: tuple[int, int]
) -> None:
    path = tmp_path / "queue"
    batches = list(runs("FAST_DAILY", {0: 700, 1: 30, 4: 300}, per_batch=61))
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
        for batch in batches:
            queue.appender().append_at(batch)
    first = cycle_of(batches[0].index_first, 32)
    index = index_of(Cycle(first + cut[0]), Sequence(cut[1]), 32)
    before = [each for each in stored(batches) if each[0] < index]
    done = quarantine(path, index)
    assert dump_of(java, path) == before
    assert_verified(java, path, len(before))
    assert dump_of(java, done.folder)[-1] == stored(batches)[-1]
    clock = {"interop.time": NOON_MS + cut[0] * 86_400_000}
    answer = java.call("append", path, "FAST_DAILY", 3, 40, 1, props=clock)
    assert answer.exit == 0, answer
    assert_verified(java, path, len(before) + 3)
    with Queue.open(path) as queue:
        assert queue.count(index) == 3


def test_java_reads_over_a_file_that_is_ready_and_takes_it(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    [batch] = runs("FAST_DAILY", {0: 7})
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
        queue.appender().append_at(batch)
        next_cycle = Cycle(cycle_of(batch.index_first, 32) + 1)
        ready = precreate(queue.cycles, queue.layout, next_cycle, 1 << 20)
        assert ready is not None
        (path / f"{ready.name}.123").write_bytes(b"never finished")
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        assert_verified(java, path, 7)
        assert dump_of(java, path) == stored([batch])
        assert {file.name: file.read_bytes() for file in path.glob("*.pre*")} == {
            name: data for name, data in before.items() if ".pre" in name
        }
        store, inode = queue.cycles.path_of(next_cycle), ready.stat().st_ino
    answer = java.call(
        "append", path, "FAST_DAILY", 5, "40-40", 1, props={"interop.time": NOON_MS + 86_400_000}
    )
    assert answer.exit == 0, answer
    assert store.stat().st_ino == inode
    assert not ready.exists()
    assert_verified(java, path, 12)
    with Queue.open(path) as queue:
        assert queue.count() == 12


@pytest.mark.parametrize("name", ["FAST_DAILY", "TEST4_SECONDLY", "TEST_DAILY", "HUGE_DAILY"])
def test_our_files_are_byte_for_byte_those_of_java(
    java: JavaQueue, tmp_path: Path, name: str
) -> None:
    """Up to the end of the documents, with index pages, marks and all; and so is the table store,
    but for the number of changes."""
    batches = list(runs(name, {0: 64}, per_batch=7))
    stdin = [f"{index:016x} {bytes(data).hex()}" for b in batches for index, data in b]
    answer = java.call("appendat", tmp_path / "java", name, stdin=stdin)
    assert {line["status"] for line in answer.lines} == {"written"}
    with Queue.open_for_append(tmp_path / "ours", create=QueueLayout.of(by_name(name))) as queue:
        appender = queue.appender()
        for batch in batches:
            appender.append_at(batch)
    [theirs] = (tmp_path / "java").glob("*.cq4")
    ours = (tmp_path / "ours" / theirs.name).read_bytes().rstrip(b"\0")
    assert theirs.read_bytes().rstrip(b"\0") == ours
    keys = [
        {line["key"]: line["value"] for line in java.call("meta", path).lines}
        for path in (tmp_path / "java", tmp_path / "ours")
    ]
    for key in set(keys[0]) - {"listing.modCount"}:
        assert keys[0][key] == keys[1][key], key


@pytest.mark.parametrize("name", WRITABLE)
def test_java_verifies_a_golden_queue_that_we_appended_to(
    java: JavaQueue, tmp_path: Path, name: str
) -> None:
    """Also those in which Java's own reader stops for want of an end-of-file mark."""
    golden, path = manifest(name), unpack(name, tmp_path)
    create = None if golden.has_metadata else QueueLayout.of(by_name("FAST_HOURLY"))
    with Queue.open_for_append(path, create=create) as queue:
        appender = queue.appender()
        appender.append([b"one", b"", b"two"], NOON_MS)  # the clock may be behind the queue
        roll_cycle = queue.layout.roll_cycle
        later = cycle_of(Index(appender.next_index), roll_cycle.shift) + 3
        later_ms = later * roll_cycle.length_ms + queue.layout.epoch
        appender.append([payload(1, i, 30) for i in range(40)], later_ms)
    wide = {"interop.blockSize": max(golden.block_size, 65536)}
    answer = java.call("dump", path, "--sha", props=wide)
    assert answer.lines[-1]["count"] == len(golden.excerpts) + 43
    if name == "epoch_2020":
        return  # Java cannot count over three cycles when the epoch has a time of day
    answer = java.call("verify", path, props=wide)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == len(golden.excerpts) + 43


def test_java_reads_excerpts_of_a_mebibyte(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    large = [payload(1, i, size) for i, size in enumerate([1 << 20, 0, 3, 1 << 20, 300_000, 1])]
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    batch = ExcerptBatch.of(index_of(Cycle(19787), SEQUENCE_FIRST, 32), large)
    with Queue.open_for_append(path, create=layout) as queue:
        queue.appender().append_at(batch)
    wide = {"interop.blockSize": 4 << 20}
    assert java.call("verify", path, props=wide).exit == 0
    [*lines, _] = java.call("dump", path, props=wide).lines
    assert [bytes.fromhex(line["payload"]) for line in lines] == [p for _, p in stored([batch])]


@pytest.mark.parametrize("roll_cycle", ["FAST_DAILY", "TEST4_SECONDLY"])
def test_java_and_we_take_turns_on_one_queue(
    java: JavaQueue, tmp_path: Path, roll_cycle: str
) -> None:
    path = tmp_path / "queue"
    wanted: list[bytes] = []
    with Queue.open_for_append(path, create=QueueLayout.of(by_name(roll_cycle))) as queue:
        appender = queue.appender()
        for turn in range(12):
            now = NOON_MS + turn // 3 * 1000
            mine = [payload(turn, i, 20) for i in range(turn * 17)]
            if mine:
                appender.append(mine, now)
            theirs = list(payloads(100 + turn, 30 + turn, 0, 50))
            answer = java.call(
                "append", path, roll_cycle, len(theirs), "0-50", 100 + turn,
                props={"interop.time": now},
            )  # fmt: skip
            assert answer.exit == 0, answer
            wanted += mine + [data or b"\x8f" for data in theirs]
            assert [data for _, data in excerpts_of(queue.tailer())] == wanted
        assert appender.next_index <= (queue.last_index() or 0)
    assert_verified(java, path, len(wanted))
    assert [data for _, data in dump_of(java, path)] == wanted


def test_two_processes_write_at_once(
    java: JavaQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java appends 6000 while we append as fast as the write lock allows; nothing is lost."""
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 60.0)  # each has its turn
    path = tmp_path / "queue"
    name = "TEST4_SECONDLY"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name(name))) as queue:
        appender = queue.appender()
        props = {"interop.time": NOON_MS + 1000}  # one cycle holds 4096, so Java fills two
        first = java.start("append", path, name, 1800, "0-90", 5, props={"interop.time": NOON_MS})
        for i in range(1200):
            appender.append([payload(9, i, 25)], NOON_MS)
        assert first.result(300).exit == 0
        second = java.start("append", path, name, 1500, "0-90", 6, props=props)
        for i in range(1200, 2200):
            appender.append([payload(9, i, 25)], NOON_MS + 1000)
        assert second.result(300).exit == 0
        found = [data for _, data in excerpts_of(queue.tailer())]
    ours = [payload(9, i, 25) for i in range(2200)]
    theirs = [
        data or b"\x8f"
        for data in itertools.chain(payloads(5, 1800, 0, 90), payloads(6, 1500, 0, 90))
    ]
    ours_set = set(ours)
    assert [data for data in found if data in ours_set] == ours
    assert [data for data in found if data not in ours_set] == theirs
    assert_verified(java, path, 5500)


def test_plain_java_append_is_refused_while_we_hold_the_append_lock(
    java: JavaQueue, tmp_path: Path
) -> None:
    path = tmp_path / "queue"
    soon = {"interop.timeoutMs": 200, "interop.time": NOON_MS}
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    with Queue.open_for_append(path, create=layout) as queue:
        queue.append_lock.acquire()
        appender = queue.appender()
        appender.append([b"ours"], NOON_MS)
        [refused] = java.call("tryappend", path, "0102", props=soon).lines
        assert refused["status"] == "refused"
        appender.append([b"more"], NOON_MS)
    [written] = java.call("tryappend", path, "0102", props=soon).lines
    assert written["status"] == "written"
    assert [data for _, data in dump_of(java, path)] == [b"ours", b"more", b"\1\2"]


def test_java_is_kept_out_for_the_length_of_a_back_copy(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    soon = {"interop.timeoutMs": 200, "interop.time": NOON_MS}
    assert java.call("append", path, "FAST_DAILY", 10, 8, 1, props=soon).exit == 0
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        with appender.exclusive(1.0):
            index = appender.next_index
            [refused] = java.call("tryappend", path, "0102", props=soon).lines
            assert refused["status"] == "refused"
            appender.append_at(ExcerptBatch.of(index, [b"back"]))
        [written] = java.call("tryappend", path, "0102", props=soon).lines
        assert written["index"] == f"{index + 1:016x}"
    assert_verified(java, path, 12)


def test_an_append_lock_of_java_refuses_us(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
        appender = queue.appender()
        assert java.call("holdlock", path, "append").exit == 0
        with pytest.raises(QueueLocked) as refused:
            appender.append([b"ours"], NOON_MS)
        assert refused.value.holder == java.pid
        with pytest.raises(QueueLocked):
            queue.append_lock.acquire()
        assert java.call("releaselock", path, "append").exit == 0
        appender.append([b"ours"], NOON_MS)
    assert_verified(java, path, 1)


def test_a_java_tailer_reads_while_we_append(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    name, count = "TEST4_SECONDLY", 9000
    with Queue.open_for_append(path, create=QueueLayout.of(by_name(name))) as queue:
        out = tmp_path / "tail"
        tail = java.start("tail", path, count, 120, out=out)
        appender = queue.appender()
        batches = list(runs(name, {0: 4000, 1: 1000, 2: 4000}, per_batch=3))
        for batch in batches:
            appender.append_at(batch)
        assert tail.result(300).exit == 0
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    read = [(int(x["index"], 16), bytes.fromhex(x["payload"])) for x in lines if "index" in x]
    assert read == stored(batches)


def test_our_tailer_follows_a_java_appender(java: JavaQueue, tmp_path: Path) -> None:
    """Real cycles of a second, rolling while we read: no excerpt missed, none twice."""
    path = tmp_path / "queue"
    Queue.open_for_append(path, create=QueueLayout.of(by_name("TEST4_SECONDLY"))).close()
    count = 6000
    appending = java.start("append", path, "TEST4_SECONDLY", count, "0-60", 3, 3500)
    found: list[tuple[int, bytes]] = []
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        while len(found) < count:
            done = appending.done()
            new = excerpts_of(tailer)
            assert new or not done, "Java has appended all, and we wait"
            found += new
    assert appending.result(300).exit == 0
    assert [data or b"\x8f" for _, data in found] == [
        data or b"\x8f" for data in payloads(3, count, 0, 60)
    ]
    assert len({index >> 32 for index, _ in found}) > 1
    assert found == dump_of(java, path)
