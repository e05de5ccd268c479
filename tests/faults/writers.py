"""A writer that is killed, and what must then be true of its queue.

    plan.append_from(..)    the work of the writer: it tells each append that has come back
    Left.by(..)             what it left behind
    java_survives(..)       Java appends to a copy of that, and reads what was acknowledged
    survives(..)            we read what was acknowledged, append, and read everything

The clock is made up: it goes on with the number of excerpts, so that a queue rolls often however
fast the machine is. Excerpt `number` of a queue always has the same payload.
"""

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue import Durability, Queue, QueueLayout
from cqrepl.queue.files.chroniclemarks import SYNCED_KEY
from cqrepl.queue.files.locks import UNLOCKED, WRITE_LOCK_KEY
from cqrepl.queue.files.storefile import START, StoreFile
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.rollcycle import by_name
from tests.support.java import JavaQueue
from tests.support.javapayloads import payload
from tests.support.samples import NOON_MS, read
from tests.support.tables import keys_of
from wire.header import is_ready

WAIT_MAX_S: Final = 10.0  # usual are some hundredths; Java would wait 15 s for the dead
JAVA_SEED: Final = 5
JAVA_SIZE: Final = 24
QUICK: Final[dict[str, object]] = {"interop.timeoutMs": 500}  # does not wait long for the dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The excerpts to append: their roll cycle, and how many come before the clock goes on to the
    next one."""

    roll_cycle: str
    per_cycle: int
    batches: tuple[int, ...] = (1, 1, 3, 1, 7)
    durability: Durability = Durability.NONE

    @property
    def layout(self) -> QueueLayout:
        return QueueLayout.of(by_name(self.roll_cycle))

    def clock_ms(self, number: int) -> int:
        """The time at which excerpt `number` is appended."""
        return NOON_MS + number // self.per_cycle * self.layout.roll_cycle.length_ms

    def batch(self, number: int) -> list[bytes]:
        """The payloads of the append that begins with excerpt `number`; all in one cycle."""
        left = self.per_cycle - number % self.per_cycle
        size = min(self.batches[number % len(self.batches)], left)
        return [payload_of(number + nth) for nth in range(size)]

    def append_from(self, path: Path, number: int, acknowledge: int, count: int = 1 << 40) -> None:
        """Appends, and writes the number of excerpts that are acknowledged to a descriptor."""
        end = number + count
        with Queue.open(path, create=self.layout, durability=self.durability) as queue:
            appender = queue.appender()
            while number < end:
                data = self.batch(number)
                appender.append(data, self.clock_ms(number))
                number += len(data)
                os.write(acknowledge, number.to_bytes(8, "little"))


def payload_of(number: int) -> bytes:
    return b"%08d" % number + hashlib.sha512(b"%d" % number).digest()[: 1 + number * 7 % 41]


def read_numbers(path: Path) -> int:
    excerpts = read(path)
    for number, (_, data) in enumerate(excerpts):
        assert data == payload_of(number), f"excerpt {number} is {data!r}"
    return len(excerpts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The state that a killed writer left behind, before a repair."""

    is_locked: bool  # it died with the write lock
    has_table: bool  # with all the keys that a writer adds
    is_rolling: bool  # the newest store file has no header yet, or no excerpt
    is_unrecorded: bool  # its last excerpts were published, and its write position not yet raised
    is_unrecorded_first: bool  # the same, and they are the first of their file

    @classmethod
    def by(cls, pid: int, path: Path) -> "Left":
        table = path / FILE_NAME
        keys = keys_of(path) if table.exists() and header_word(table) else {}
        holder = keys.get(WRITE_LOCK_KEY.lower(), UNLOCKED) & 0xFFFFFFFF
        recorded, last = last_positions(max(path.glob("*.cq4"), default=None))
        return cls(
            is_locked=holder == pid,
            has_table=SYNCED_KEY.lower() in keys,
            is_rolling=last == 0,
            is_unrecorded=recorded != last,
            is_unrecorded_first=recorded == 0 != last,
        )


def header_word(path: Path) -> int:
    """The first word of a file; 0 while its document is not whole."""
    with path.open("rb") as file:
        word = int.from_bytes(file.read(4), "little")
    return word if is_ready(word) else 0


def last_positions(store: Path | None) -> tuple[int, int]:
    """Of the last excerpt of a store file: as recorded, and as a walk finds it; 0 for none."""
    opened = None if store is None else StoreFile.open(store, 0, writable=False)
    if opened is None:
        return 0, 0
    try:
        return opened.write_position(), opened.walk(START).position_last
    finally:
        opened.close()


def survives(plan: Plan, path: Path, acknowledged: int) -> tuple[int, float]:
    """All that was acknowledged is there, and we can append; how many there are then, and how long
    the first append took, with opening."""
    there = read_numbers(path) if any(path.glob("*.cq4")) else 0
    assert acknowledged <= there <= acknowledged + max(plan.batches)
    before = time.perf_counter()
    with Queue.open_for_append(path, create=plan.layout) as queue:
        queue.appender().append([payload_of(there)], plan.clock_ms(there))
    waited = time.perf_counter() - before
    assert read_numbers(path) == there + 1
    return there + 1, waited


def java_survives(java: JavaQueue, plan: Plan, path: Path, acknowledged: int, left: Left) -> None:
    """Java finds all that was acknowledged in a copy of the queue, and appends to it.

    Java's own appender goes wrong where an excerpt was published and the write position was not
    raised, no matter which writer was killed: it takes the next sequence from the write position;
    and if it was the first excerpt of a file, Java does not find the end either. In that state one
    of our appenders is opened first, which makes up for it. Where the only file has no header yet
    there is nothing to read, and looking for the end is a failed assertion in Java.
    """
    copy = path.with_name(path.name + "-java")
    if path.exists():  # else it was killed before it had made the directory
        shutil.copytree(path, copy)
        if acknowledged or not (left.is_unrecorded_first or left.is_rolling):
            assert java_reads(java, copy) >= acknowledged
    if left.is_unrecorded:
        with Queue.open_for_append(copy) as queue:
            queue.appender()
    clock = {"interop.time": plan.clock_ms(acknowledged + max(plan.batches))}
    appended = java.call(
        "append", copy, plan.roll_cycle, 1, JAVA_SIZE, JAVA_SEED, props=QUICK | clock
    )
    assert appended.exit == 0, appended
    verified = java.call("verify", copy, 200, props=QUICK)
    assert verified.exit == 0, verified
    assert java_reads(java, copy) >= acknowledged
    shutil.rmtree(copy)


def java_reads(java: JavaQueue, path: Path) -> int:
    """The number of our excerpts that Java finds, each of which is the one that must be there."""
    answer = java.call("dump", path, props=QUICK)
    assert answer.exit == 0, answer
    found = [bytes.fromhex(line["payload"]) for line in answer.lines[:-1]]
    if found and found[-1] == payload(JAVA_SEED, 0, JAVA_SIZE):
        found.pop()
    assert found == [payload_of(number) for number in range(len(found))]
    return len(found)
