"""A Java writer that is stopped between two steps of its append, beside a host of ours.

Java looks at the append lock, waits for the write lock, and does not look again. Stopped between
the two, it appends one excerpt to a queue that a sink has locked in the meantime. Stopped within
its append it holds the write lock, and what it has begun is waited for, or mended once it is dead.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY
from cqrepl.queue.format.index import format_index
from tests.support.commands import commands
from tests.support.java import Answer, JavaQueue, Line, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.processes import send
from tests.support.replicas import copied, more_excerpts
from tests.support.samples import NOON_MS, fill, noon_index, read
from tests.support.tables import lock_words

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]

LOOPBACK = "127.0.0.1:0"
DAY_MS = 86_400_000
FOREIGN = b"foreign"
LOCK_SECONDS = 60.0


@pytest.fixture
def java() -> Iterator[JavaQueue]:
    """A process of its own for each test: it is stopped, and may be killed."""
    require_java()
    with JavaQueue(props={"interop.blockSize": 1 << 20}) as queue:
        yield queue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A queue of a source."""
    fill(tmp_path / "queue", "FAST_DAILY", {0: 10})
    return tmp_path / "queue"


@pytest.fixture
def copy(path: Path, tmp_path: Path) -> Path:
    """A copy of the queue that a sink has taken in before."""
    shutil.copytree(path, tmp_path / "copy")
    with Queue.open_for_append(tmp_path / "copy") as queue:
        queue.note_follower(is_follower=True)
    return tmp_path / "copy"


@contextmanager
def stopped(java: JavaQueue) -> Iterator[None]:
    """For the length of a block Java does nothing, and is alive."""
    assert send(java.pid, signal.SIGSTOP)
    while Path(f"/proc/{java.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        os.sched_yield()
    try:
        yield
    finally:
        send(java.pid, signal.SIGCONT)


@contextmanager
def between_its_two_steps(java: JavaQueue, copy: Path) -> Iterator["Future[Answer]"]:
    """For the length of a block an append of Java's is stopped behind its look at the append lock,
    and before it has the write lock; its answer, which comes later."""
    with Queue.open_for_append(copy) as queue, ExitStack() as stack:
        with queue.word_lock(WRITE_LOCK_KEY).held(LOCK_SECONDS):
            append = java.start("useappender", copy, FOREIGN.hex())
            assert java.call("awaitwritelock", copy).exit == 0
            stack.enter_context(stopped(java))
        yield append


def line_of(answer: Answer) -> Line:
    assert answer.exit == 0, answer
    (line,) = answer.lines
    return line


async def repair(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "cqrepl", "repair", *map(str, words)]
    return await trio.to_thread.run_sync(
        partial(subprocess.run, command, capture_output=True, text=True)
    )


@pytest.mark.parametrize(
    ("days", "ahead"),
    [(0, 0), (0, 1), (1, 0), (1, 2)],
    ids=["same-cycle", "before-a-roll", "later-cycle", "later-cycle-before-a-roll"],
)
async def test_java_that_looked_before_the_sink_locked_appends_one_excerpt(
    java: JavaQueue, path: Path, copy: Path, days: int, ahead: int
) -> None:
    """In the cycle that Java's clock says, which need not be that of what the source sends next:
    that may follow either. The sink stops and changes nothing; what is foreign goes
    to quarantine once Java has closed the queue, and then nothing is missing."""
    at = {"interop.time": NOON_MS + days * DAY_MS}
    assert java.call("openappender", copy, props=at).exit == 0
    async with commands() as start:
        source = await start("source", f"q={path}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await source.port()}"
        with between_its_two_steps(java, copy) as append:
            sink = await start("sink", f"q={copy}", "--connect", address)
            more_excerpts(path, 10, 5)
            await copied(path, copy)
            assert lock_words(copy)[APPEND_LOCK_KEY] == sink.pid
        written = line_of(await trio.to_thread.run_sync(append.result, LOCK_SECONDS))
        foreign = noon_index(ahead=days, sequence=0 if days else 15)
        assert written == {"status": "written", "index": f"{foreign:016x}"}
        held = read(copy)
        assert held == [*read(path), (foreign, FOREIGN)]
        refused = line_of(java.call("useappender", copy, FOREIGN.hex()))
        assert (refused["status"], str(sink.pid) in refused["error"]) == ("refused", True)
        rolled = ExcerptBatch.of(noon_index(ahead=ahead, sequence=0 if ahead else 15), [b"more"])
        with Queue.open_for_append(path) as queue:
            queue.appender().append_at(rolled)
        assert await sink.exit_code() == 1
        await source.end()
        left = format_index(noon_index(sequence=15))
        assert f"expected the end at {left}, where it was left" in sink.said, sink.said
        assert "stopped (diverged): the peer says" in source.said, source.said
        assert read(copy) == held
        aside = ("--quarantine", left, "--apply")
        done = await repair(copy, *aside)
        assert (done.returncode, str(java.pid) in done.stderr) == (5, True), done
        assert read(copy) == held
        assert java.call("closeappender", copy).exit == 0
        done = await repair(copy, *aside)
        assert done.returncode == 0, done
        (folder,) = (copy / "quarantine").iterdir()
        assert read(folder)[-1] == (foreign, FOREIGN)
        source = await start("source", f"q={path}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await source.port()}"
        await start("sink", f"q={copy}", "--connect", address)
        await copied(path, copy)
        assert read(copy) == read(path)


async def test_a_sink_waits_for_java_within_its_append_and_refuses_while_it_lives(
    java: JavaQueue, path: Path, copy: Path
) -> None:
    """Java has the write lock and has begun an excerpt. The sink names it, and begins once it has
    ended that: what was begun is whole, and differs."""
    assert java.call("openappender", copy, props={"interop.time": NOON_MS}).exit == 0
    assert java.call("begindocument", copy, FOREIGN.hex()).exit == 0
    held = read(copy)
    async with commands() as start:
        with stopped(java):
            sink = await start("sink", f"q={copy}", "--listen", LOOPBACK)
            assert await sink.exit_code() == 5
            assert str(java.pid) in sink.said
            assert read(copy) == held
            words = lock_words(copy)
            assert words[WRITE_LOCK_KEY] & 0xFFFFFFFF == java.pid
            assert words[APPEND_LOCK_KEY] != sink.pid
        assert line_of(java.call("enddocument", copy))["status"] == "written"
    assert read(copy) == [*held, (noon_index(sequence=10), FOREIGN)]


async def test_what_a_dead_java_had_begun_is_mended_and_nothing_is_lost(
    java: JavaQueue, path: Path, copy: Path
) -> None:
    assert java.call("openappender", copy, props={"interop.time": NOON_MS}).exit == 0
    assert java.call("begindocument", copy, FOREIGN.hex()).exit == 0
    java.kill()
    async with commands() as start:
        source = await start("source", f"q={path}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await source.port()}"
        await start("sink", f"q={copy}", "--connect", address)
        more_excerpts(path, 10, 5)
        await copied(path, copy)
    assert read(copy) == read(path)
