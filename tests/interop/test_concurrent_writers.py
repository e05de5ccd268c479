"""Java and Python processes that append to one queue at once, also while Python writers are killed.

Each payload is one of `payloads.payload(writer, number)`, so it names its writer and its number.
The queue rolls every second by the writers' own clocks. Writers are forked before Java starts, and
wait for a word. The longest that a writer waited is measured in the writer, around one append.
"""

import json
import os
import random
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.files.locks import WRITE_LOCK_KEY
from cqrepl.queue.format.rollcycle import by_name
from tests.support import forks
from tests.support.inmemory import folder_in_memory
from tests.support.java import Answer, JavaQueue, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payload
from tests.support.lockwatch import LockWatch
from tests.support.samples import check_marks
from tests.support.tables import keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

CHECKED = ("-ea", "-Dqueue.check.index=true", "-XX:TieredStopAtLevel=4")
WRITER_PROPS: dict[str, object] = {"interop.blockSize": 1 << 20}
ROLL_CYCLE = "TEST_SECONDLY"
SIZE = 24
COUNT = int(os.environ.get("CQREPL_CONCURRENT_COUNT", "20000"))
KILL_S = float(os.environ.get("CQREPL_CONCURRENT_KILL_S", "6"))
KILL_WITHIN_S = 0.2
HOLD_WITHIN_S = 60.0  # longest wait for the lock while others take it in turn
WAIT_MAX_S = 10.0  # usual is a tenth; Java would wait 15 s for the dead
KILL_RATE = 2000
JAVA_TIMEOUT_MS = 100_000  # Java waits half as long again
FIRST_APPENDS_S = 60.0
JAVA_RATE = 4000  # so that Java is not done before Python has begun
_ANSWER = struct.Struct("<qd")


@pytest.fixture(scope="module")
def verifier() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(java_options=CHECKED) as queue:
        yield queue


@dataclass(slots=True)
class Writer:
    """A forked process that works once it is told to, and then answers two numbers."""

    work: Callable[[int, int], None]
    go: tuple[int, int] = field(default_factory=os.pipe)
    answers: tuple[int, int] = field(default_factory=os.pipe)
    pid: int = 0

    def fork(self) -> "Writer":
        self.pid = forks.start(partial(self.work, self.go[0], self.answers[1]))
        return self

    def start(self) -> None:
        os.write(self.go[1], b"!")

    def finish(self) -> tuple[int, float]:
        """The number of excerpts that it appended, and the longest of its appends in seconds."""
        code = forks.finish(self.pid)
        assert code == 0, f"writer ended with {code}"
        count, longest_s = _ANSWER.unpack(os.read(self.answers[0], _ANSWER.size))
        for descriptor in (*self.go, *self.answers):
            os.close(descriptor)
        return count, longest_s


class Clocked:
    """An appender by the machine's clock that knows its longest append."""

    def __init__(self, queue: Queue) -> None:
        self._appender = queue.appender()
        self.longest_s = 0.0

    def append(self, data: Sequence[bytes]) -> None:
        before = time.perf_counter()
        self._appender.append(data, time.time_ns() // 1_000_000)
        self.longest_s = max(self.longest_s, time.perf_counter() - before)


def append_count(
    path: Path, seed: int, batches: Sequence[int], count: int, go: int, answers: int
) -> None:
    data = [payload(seed, i, SIZE) for i in range(count)]
    os.read(go, 1)
    with Queue.open_for_append(path) as queue:
        clocked = Clocked(queue)
        at, nth = 0, 0
        while at < count:
            size = batches[nth % len(batches)]
            clocked.append(data[at : at + size])
            at, nth = at + size, nth + 1
        os.write(answers, _ANSWER.pack(count, clocked.longest_s))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A queue in memory.

    On a busy disk a Java that makes or grows a file may have to wait for that, with the lock, for
    longer than our writers wait for one that is alive.
    """
    with folder_in_memory(tmp_path) as folder:
        yield folder / "queue"


def append_until(path: Path, seed: int, pause_s: float, go: int, answers: int) -> None:
    """Appends one by one until it is told to end."""
    os.read(go, 1)
    with Queue.open_for_append(path) as queue:
        clocked, count = Clocked(queue), 0
        while not select.select([go], [], [], pause_s)[0]:
            clocked.append([payload(seed, count, SIZE)])
            count += 1
        os.write(answers, _ANSWER.pack(count, clocked.longest_s))


def append_and_tell(path: Path, seed: int, told: int) -> None:
    """Appends one by one until it is killed, and tells each append that has come back."""
    with Queue.open_for_append(path) as queue:
        clocked = Clocked(queue)
        for number in range(1 << 30):
            clocked.append([payload(seed, number, SIZE)])
            os.write(told, b"!")


def kill_writers(
    path: Path, seed: int, rng: random.Random, report: Path, go: int, answers: int
) -> None:
    """Forks one writer after the next and kills each within 200 ms of its first append.

    The first one is killed while it holds the lock for certain. What each has appended by its own
    word goes into `report`, how many died with the lock into the answer: at least, for another
    writer may have taken it over before we look.
    """
    os.read(go, 1)
    acknowledged: dict[int, int] = {}
    kill_holder(path)
    holders = 1
    while not select.select([go], [], [], 0)[0]:
        told = os.pipe()
        pid = forks.start(partial(append_and_tell, path, seed, told[1]))
        os.close(told[1])
        count = len(os.read(told[0], 1))
        assert count, "ended before its first append"
        time.sleep(rng.uniform(0, KILL_WITHIN_S))
        forks.kill(pid)
        holders += keys_of(path)[WRITE_LOCK_KEY.lower()] & 0xFFFFFFFF == pid
        while data := os.read(told[0], 1 << 16):
            count += len(data)
        os.close(told[0])
        acknowledged[seed] = count
        seed += 1
    report.write_text(json.dumps(acknowledged))
    os.write(answers, _ANSWER.pack(holders, 0.0))


def kill_holder(path: Path) -> None:
    """Forks a writer that takes the write lock, and kills it there."""

    def hold(told: int) -> None:
        with (
            Queue.open_for_append(path) as queue,
            queue.word_lock(WRITE_LOCK_KEY).held(HOLD_WITHIN_S),
        ):
            os.write(told, b"h")
            time.sleep(3600)

    told = os.pipe()
    pid = forks.start(partial(hold, told[1]))
    os.close(told[1])
    assert os.read(told[0], 1), "ended before it had the lock"
    os.close(told[0])
    forks.kill(pid)


def numbers_by_writer(path: Path, counts: dict[int, int]) -> dict[int, list[int]]:
    """The numbers of each writer in the order of the queue; nothing else is in the queue.

    Args:
        counts: the greatest number of excerpts that each writer may have written.
    """
    writers = {
        payload(seed, i, SIZE): (seed, i) for seed, count in counts.items() for i in range(count)
    }
    found: dict[int, list[int]] = {seed: [] for seed in counts}
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        while (batch := tailer.next_batch()) is not None:
            for _, data in batch:
                seed, number = writers[bytes(data)]
                found[seed].append(number)
    return found


def await_first_appends(path: Path, running: Mapping[int, Future[Answer]]) -> None:
    """Waits until each of these writers has appended; one that has ended before is told.

    A Java that appends for the first time loads what it needs for that while it has the lock: on a
    busy disk for longer than ours wait for one that is alive.
    """
    missing = {payload(seed, 0, SIZE) for seed in running}
    deadline = time.monotonic() + FIRST_APPENDS_S
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} writers have not appended"
            batch = tailer.next_batch()
            if batch is None:
                assert not [each.result() for each in running.values() if each.done()]
                time.sleep(0.01)
            else:
                missing -= {bytes(data) for _, data in batch}


def longest_of(running: Mapping[int, Future[Answer]]) -> dict[int, float]:
    """The longest append of each Java in seconds, once all have ended.

    One that fails with the lock makes the others fail later: the errors of all are told.
    """
    answers = {nth: future.result(300) for nth, future in running.items()}
    errors = {nth: each.error for nth, each in answers.items() if each.exit != 0}
    assert not errors, "\n".join(f"Java {nth}: {error}" for nth, error in errors.items())
    return {nth: each.lines[-1]["longestNs"] / 1e9 for nth, each in answers.items()}


def assert_verified(java: JavaQueue, path: Path, count: int) -> int:
    """Java verifies the queue and finds so many excerpts; in how many cycles."""
    answer = java.call("verify", path, 2000, timeout=200)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == count, answer
    return len(answer.lines[0]["cycles"])


def test_two_java_and_two_python_processes_append_to_one_queue(
    verifier: JavaQueue, path: Path
) -> None:
    """One Python writer appends one by one, a second one also in batches."""
    Queue.open_for_append(path, create=QueueLayout.of(by_name(ROLL_CYCLE))).close()
    batches = {3: [1], 4: [1, 1, 20, 1, 7]}
    ours = [
        Writer(partial(append_count, path, seed, sizes, COUNT)).fork()
        for seed, sizes in batches.items()
    ]
    with ExitStack() as stack:
        javas = [stack.enter_context(JavaQueue(props=WRITER_PROPS)) for _ in range(2)]
        running = {
            seed: java.start("append", path, ROLL_CYCLE, COUNT, SIZE, seed, JAVA_RATE)
            for seed, java in zip((1, 2), javas, strict=True)
        }
        await_first_appends(path, running)
        for writer in ours:
            writer.start()
        longest = [writer.finish()[1] for writer in ours]
        longest += longest_of(running).values()
    print(f"longest append in s, Python twice, then Java: {longest}")
    cycles = assert_verified(verifier, path, 4 * COUNT)
    print(f"{cycles} cycles")
    found = numbers_by_writer(path, dict.fromkeys((1, 2, 3, 4), COUNT))
    for seed, numbers in found.items():
        assert numbers == list(range(COUNT)), f"writer {seed}"
    assert cycles > 3
    check_marks(path)


# until a hundred runs beside other tests have shown that no load decides it
@pytest.mark.long
def test_nobody_waits_long_for_a_writer_that_is_killed(
    verifier: JavaQueue, path: Path, tmp_path: Path
) -> None:
    """Two Java and two Python writers go on, while further ones come and are killed.

    Java itself waits 15 s before it looks whether a lock's holder lives; it waits less here because
    the Python writers take the lock over at once. It has more time than that, as it looks only once
    when its time is over: on a machine that has stood still for so long it would give up a lock
    that is given back the moment after.
    """
    Queue.open_for_append(path, create=QueueLayout.of(by_name(ROLL_CYCLE))).close()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    survivors = {nth: Writer(partial(append_until, path, nth, 0.001)).fork() for nth in (3, 4)}
    reports = {nth * 100_000: tmp_path / f"report-{nth}" for nth in (1, 2)}
    killers = [
        Writer(partial(kill_writers, path, first, random.Random(seed + first), report)).fork()
        for first, report in reports.items()
    ]
    counts = dict.fromkeys((1, 2), int(KILL_S * KILL_RATE))
    longest: dict[int, float] = {}
    with ExitStack() as stack:
        props = {**WRITER_PROPS, "interop.timeoutMs": JAVA_TIMEOUT_MS}
        javas = {nth: stack.enter_context(JavaQueue(props=props)) for nth in counts}
        running = {
            nth: java.start("append", path, ROLL_CYCLE, counts[nth], SIZE, nth, KILL_RATE)
            for nth, java in javas.items()
        }
        await_first_appends(path, running)
        names = {java.pid: f"Java {nth}" for nth, java in javas.items()}
        names |= {writer.pid: f"Python {nth}" for nth, writer in survivors.items()}
        watch = stack.enter_context(LockWatch(path, names))
        for writer in (*survivors.values(), *killers):
            writer.start()
        longest |= longest_of(running)
    for writer in (*killers, *survivors.values()):
        writer.start()  # now as the word to end
    held = sum(killer.finish()[0] for killer in killers)
    for nth, writer in survivors.items():
        counts[nth], longest[nth] = writer.finish()
    acknowledged = {
        int(victim): count
        for report in reports.values()
        for victim, count in json.loads(report.read_text()).items()
    }
    print(f"{len(acknowledged)} killed, {held} with the lock, {sum(acknowledged.values())} appends")
    print(f"longest append in s, Java 1 and 2, Python 3 and 4: {longest}")
    print(f"the lock had {watch}")
    # a killed writer may have appended one more than it came to tell
    possible = {victim: count + 1 for victim, count in acknowledged.items()}
    found = numbers_by_writer(path, counts | possible)
    for nth, count in counts.items():
        assert found[nth] == list(range(count)), f"writer {nth}"
    for victim, count in acknowledged.items():
        assert found[victim] in (list(range(count)), list(range(count + 1))), f"writer {victim}"
    assert_verified(verifier, path, sum(map(len, found.values())))
    check_marks(path)
    assert watch.dead_s <= WAIT_MAX_S, watch
    assert watch.living_s <= WAIT_MAX_S, watch
    assert max(longest.values()) <= WAIT_MAX_S + watch.lost_s, watch
    assert len(acknowledged) > KILL_S
    assert held >= len(killers)
