"""The store of QuickFIX/J sessions and that of Python have the same records in the same bytes: each
reads the numbers and messages that the other one has kept."""

import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.persist.fix import FixSessionStore, Sent
from cqrepl.persist.localfactory import LocalPersistenceFactory
from cqrepl.persist.storage.records import (
    Op,
    StorageKind,
    StorageRecord,
    correlation_id,
    decode_record,
)
from cqrepl.queue import Queue
from tests.support.java import JAVA_FLAGS, JVM_OPTIONS
from tests.support.javabuild import BUILD_TIMEOUT_S, fix_jar
from tests.support.samples import read

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

SESSION: Final = "FIX.4.4:A->B"
INT64: Final = (1 << 63) - 1
HOUR_NS: Final = 3_600_000_000_000


class StoreTool:
    """A Java process with one store, and what it says to a line; its log stands in `errors`."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self._process = process
        self.errors = errors

    def open(self, path: Path, timeout_ms: int = 0) -> str:
        """Opens the store of a session in this queue, which waits so long for a backup."""
        return self("open", path, timeout_ms)

    def __call__(self, *words: object) -> str:
        self.say(*words)
        return self.answer()

    def say(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(str(each) for each in words) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def has_answered(self, seconds: float) -> bool:
        """True if there is an answer within so long."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreTool]:
    jar = fix_jar()
    path = f"{jar}:{jar.parent / 'lib'}/*"
    command = ["java", *JVM_OPTIONS, f"@{JAVA_FLAGS}", "-cp", path, "cqrepl.fix.pair.StoreTool"]
    errors = tmp_path_factory.mktemp("java") / "errors"
    with (
        errors.open("w") as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        yield StoreTool(process, errors)
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def here(path: Path) -> Iterator[FixSessionStore]:
    """Python's store in a directory."""
    with LocalPersistenceFactory(path) as factory:
        yield FixSessionStore(factory, SESSION)


# ------------------------------------------------------------ records

names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
positive = st.integers(0, INT64)


@given(names.filter(lambda name: len(name) <= 128))
def test_java_creates_the_storage_that_python_creates(tool: StoreTool, name: str) -> None:
    record = StorageRecord(
        op=Op.CREATE, id=correlation_id(name), kind=StorageKind.SEQUENCE, name=name
    )
    assert tool("CREATE", name.encode().hex()) == f".{record.encoded().hex()}"


@given(positive, positive, positive, st.binary(max_size=400))
def test_java_appends_and_reads_the_items_of_python(
    tool: StoreTool, id_: int, index: int, gen: int, item: bytes
) -> None:
    record = StorageRecord(op=Op.APPEND, id=id_, index=index, gen=gen, item=item)
    data = record.encoded()
    assert tool("SEQUENCE_APPEND", id_, index, gen, 0, item.hex()) == f".{data.hex()}"
    assert tool("READ", data.hex()) == f"SEQUENCE_APPEND {id_} {index} {gen} 0 .{item.hex()}"


@given(positive, positive, positive, positive)
def test_java_resets_as_python_does(
    tool: StoreTool, id_: int, index: int, gen: int, at: int
) -> None:
    data = StorageRecord(op=Op.RESET, id=id_, index=index, gen=gen, at=at).encoded()
    assert tool("SEQUENCE_RESET", id_, index, gen, at, "-") == f".{data.hex()}"
    assert tool("READ", data.hex()) == f"SEQUENCE_RESET {id_} {index} {gen} {at} -"


# ------------------------------------------------------------ stores


def test_each_goes_on_where_the_other_one_has_stopped(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with here(path) as store:
        store.set_message(1, b"one")
        store.set_message(2, b"two")
        store.received(1, b"logon")
        store.set_next_target(5)
        created = store.created_at
    assert tool.open(path) == f"3 5 {created}"
    assert tool("get", 1, 0) == "one,two"
    tool("set", 3, "three")
    assert tool("incrsender") == f"4 5 {created}"
    tool("sender", 9)
    tool("set", 9, "nine")
    assert tool("target", 6) == f"9 6 {created}"
    assert tool("close") == "closed"
    with here(path) as store:
        assert (store.next_sender, store.next_target, store.created_at) == (10, 6, created)
        assert store.messages(3) == [Sent(3, b"three"), Sent(9, b"nine")]
        store.reset()
        created = store.created_at
        store.set_message(1, b"new")
    assert tool.open(path) == f"2 1 {created}"
    assert tool("get", 1, 9) == "new"
    assert tool("reset").startswith("1 1 ")
    tool("target", 3)
    tool("close")
    with here(path) as store:
        assert (store.next_sender, store.next_target, store.messages(1)) == (1, 3, [])


def test_a_message_and_its_number_are_one_record(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    Queue.open_for_append(path, create="FAST_DAILY").close()
    tool.open(path)
    begun = len(records(path))
    tool("set", 1, "one")
    tool("incrsender")
    assert [each.item for each in records(path)[begun:]] == [b"\1\0\0\0one"]
    tool("incrsender")  # a message that is not to be kept
    assert [each.item for each in records(path)[begun + 1 :]] == [b"\2\0\0\0"]
    tool("set", 1, "one-again")  # of another number than is next
    tool("close")
    assert tool.open(path).startswith("3 1 ")
    assert tool("get", 1, 2) == "one-again"
    tool("close")


def test_a_lock_that_is_held_closes_the_store_for_good(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    Queue.open_for_append(path, create="FAST_DAILY").close()
    tool.open(path)
    tool("set", 1, "one")
    with Queue.open_for_append(path) as queue:
        queue.append_lock.acquire()
        begun = records(path)
        for _ in range(2):
            assert "the append lock is held: another host leads" in tool("set", 2, "two")
    assert "another host leads" in tool("set", 2, "two")
    assert "another host leads" in tool("get", 1, 1)
    assert records(path) == begun
    tool("close")
    assert tool.open(path).startswith("2 1 ")
    tool("close")


def test_a_wait_that_no_backup_ends_warns_once_and_the_message_stays(
    tool: StoreTool, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    Queue.open_for_append(path, create="FAST_DAILY").close()
    tool.open(path, 20)
    before = len(tool.errors.read_text())
    assert tool("set", 1, "one").startswith("1 1 ")
    told = tool.errors.read_text()[before:]
    wanted = "storage FIX.4.4:A->B.out, item 1: no backup has said that it has it within 20 ms"
    assert told.count(wanted) == told.count("no backup") == 1, told
    assert tool("get", 1, 1) == "one"
    tool("close")


def test_a_wait_ends_as_soon_as_the_host_calls_the_message_safe(
    tool: StoreTool, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        tool.open(path)
        tool("set", 1, "one")
        tool("close")
        tool.open(path, 60_000)
        (*_, last) = indexes(path)
        queue.raise_acknowledged(last + 1)  # of the next one, before it is there
        assert tool("set", 2, "two").startswith("2 1 ")
        tool("close")


def test_a_host_whose_lease_is_over_lets_nothing_be_sent(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        queue.note_leads(time.monotonic_ns() + HOUR_NS)
        tool.open(path, 20)
        assert tool("set", 1, "one").startswith("1 1 ")  # it leads, and says that it does not know
        queue.note_leads(time.monotonic_ns() - 1)
        assert "the lease of the host is over" in tool("set", 2, "two")
        begun = indexes(path)
        assert "the lease of the host is over" in tool("set", 3, "three")
        assert indexes(path) == begun
        tool("close")


def test_a_lock_that_a_leader_holds_for_a_moment_is_waited_for(
    tool: StoreTool, tmp_path: Path
) -> None:
    """As while it takes back what another host has kept for it."""
    path = tmp_path / "q"
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        queue.note_leads(time.monotonic_ns() + HOUR_NS)
        tool.open(path)
        queue.append_lock.acquire()
        begun = indexes(path)
        tool.say("set", 1, "one")
        assert not tool.has_answered(0.3)
        assert indexes(path) == begun
        queue.append_lock.release()
        assert tool.answer().startswith("1 1 ")
        tool("close")


def test_a_session_whose_records_have_a_gap_is_refused(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    id_ = correlation_id(f"{SESSION}.out")
    made = [
        StorageRecord(op=Op.CREATE, id=id_, name=f"{SESSION}.out"),
        StorageRecord(op=Op.RESET, id=id_, index=1, gen=1, at=5),
        StorageRecord(op=Op.APPEND, id=id_, index=2, gen=1, item=b"\1\0\0\0one"),
    ]
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        for record in made:
            queue.append(record.encoded())
    assert "expected item 1 of generation 1" in tool.open(path)


def test_two_sessions_with_the_same_storages_are_refused(tool: StoreTool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    Queue.open_for_append(path, create="FAST_DAILY").close()
    assert "expected one session with the storages s, got two" in tool("two", path, 0)
    tool("close")


def test_a_factory_makes_a_store_again_once_the_host_leads_again(
    tool: StoreTool, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        tool.open(path)
        tool("set", 1, "one")
        queue.append_lock.acquire()
        assert "another host leads" in tool("incrsender") or "another host leads" in tool(
            "sender", 7
        )
        tool("close")
        queue.append_lock.release()
        assert tool("again").startswith("2 1 ")
        tool("close")


def test_a_directory_without_a_queue_is_refused(tool: StoreTool, tmp_path: Path) -> None:
    assert "expected a queue" in tool.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def indexes(path: Path) -> list[int]:
    return [index for index, _ in read(path)]


def records(path: Path) -> list[StorageRecord]:
    return [decode_record(payload) for _, payload in read(path)]
