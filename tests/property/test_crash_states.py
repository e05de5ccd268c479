"""After a power cut every `synced` append is there, for any loss of pages (`crash_model`).

A writer runs once for each scenario; then random states that a power cut could have left are made
real and opened, by a reader and by an appender, as after a start of the machine. Always

    every excerpt whose synced append had returned, and every one before it, has index and bytes
    as soon as an appender was opened, which repairs the end, and can then append
    a reader that comes before finds them too, or ends early with a `QueueDamaged`

Where all appends were synced, such a reader finds all of them, and nothing that is not whole. Where
some were not, there may be excerpts behind the last synced one that are not whole: a header whose
page came to the disk before a payload whose page did not reads as zeros. The format has no
checksums, so no reader can tell; the promise is for `synced`.

The same check is held against two writers with a fault, and must find it.
"""

import operator
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cqrepl.kernel.batch import lay_excerpts
from cqrepl.queue import (
    Appender,
    Durability,
    NotAQueue,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLayout,
)
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.write import storewriter
from cqrepl.queue.write.storewriter import StoreWriter
from cqrepl.surroundings import Surroundings
from tests.property.crash_model import Recorder, recording
from tests.support.inmemory import folder_in_memory
from tests.support.samples import NOON_MS, Excerpts, read

STATES = int(os.environ.get("CQREPL_CRASH_STATES", "400"))
SEED = int(os.environ.get("CQREPL_CRASH_SEED", "5"))
LAYOUT = QueueLayout.of(by_name("TEST2_DAILY"))  # an index page for 32 excerpts
APPENDS = 60
PER_CYCLE = 25  # appends; of one to four excerpts
SIZES = (0, 9, 40, 700, 1500, 3000, 9000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A way to write a queue.

    Args:
        every: one append in so many is synced, by another writer than the rest.
        states: how many of the states are tried with it.
    """

    name: str
    every: int
    states: int


SCENARIOS = tuple(
    Scenario(name=name, every=every, states=STATES * percent // 100)
    for name, every, percent in (
        ("all synced", 1, 40),
        ("every second synced", 2, 15),
        ("every fifth synced", 5, 20),
        ("every eleventh synced", 11, 15),
        ("none synced", APPENDS + 1, 10),
    )
)


@dataclass(slots=True)
class Written:
    """The excerpts of a recorded run, and from when on how many of them were promised to stay."""

    recorder: Recorder
    excerpts: Excerpts = field(default_factory=list)
    promises: list[tuple[int, int]] = field(default_factory=list)  # time, number of excerpts

    def promised(self, time: int) -> int:
        return max((count for at, count in self.promises if at <= time), default=0)


class BrokenPromiseError(AssertionError):
    """A state after which the queue is not what it should be."""


def clock_ms(nth: int) -> int:
    return NOON_MS + nth // PER_CYCLE * LAYOUT.roll_cycle.length_ms


def payload_of(number: int) -> bytes:
    """A payload of one of many sizes, up to some pages; no two are alike."""
    size = SIZES[number * 5 % len(SIZES)]
    return (b"%06d." % number * (size // 7 + 1))[:size] if size else b"%d" % number


def write(folder: Path, every: int) -> Written:
    """Runs a writer to its end, and all is recorded."""
    with recording(folder) as recorder:
        written = Written(recorder)
        with (
            Queue.open(folder, create=LAYOUT, durability=Durability.SYNCED) as synced,
            Queue.open_for_append(folder) as plain,
        ):
            appenders = [synced.appender(), plain.appender()]
            for nth in range(APPENDS):
                is_synced = nth % every == every - 1
                append(written, appenders[not is_synced], nth)
                if is_synced:
                    written.promises.append((recorder.time, len(written.excerpts)))
    return written


def append(written: Written, appender: Appender, nth: int) -> None:
    first = len(written.excerpts)
    data = [payload_of(first + i) for i in range(1 + nth % 4)]
    last = appender.append(data, clock_ms(nth))
    written.excerpts += zip(range(last + 1 - len(data), last + 1), data, strict=True)


@dataclass(slots=True)
class Checker:
    """Opens a directory that a power cut has left."""

    written: Written
    is_whole: bool  # nothing may be found that was not appended so
    seen: Counter[str] = field(default_factory=Counter)

    def check(self, path: Path, promised: int) -> None:
        """
        Raises:
            BrokenPromiseError: what must be there is not, or something is that must not be.
        """
        self._check_reader(path, promised)
        try:
            self._check_appender(path, promised)
        except QueueError as error:
            raise BrokenPromiseError(f"an appender could not go on: {error}") from error

    def _check_appender(self, path: Path, promised: int) -> None:
        """Checks the queue once an appender, of either kind in turn, was opened and has gone on."""
        durability = (Durability.NONE, Durability.SYNCED)[self.seen["states"] % 2]
        with Queue.open(path, create=LAYOUT, durability=durability) as queue:
            appender = queue.appender()
            end = appender.next_index
            after = [appender.append([b"after %d" % nth], clock_ms(APPENDS)) for nth in range(3)]
        found = read(path)
        if [index for index, _ in found[-3:]] != after:
            raise BrokenPromiseError(f"appended at {after}, which cannot be read")
        if found[-4:-3] and found[-4][0] >= end:
            raise BrokenPromiseError(f"found {found[-4][0]:#x}, the end was {end:#x}")
        self._check_found(found[:-3], promised)

    def _check_reader(self, path: Path, promised: int) -> None:
        """Checks what a reader finds before any repair; it stops early rather than guess."""
        found: Excerpts = []
        try:
            with Queue.open(path) as queue:
                tailer = queue.tailer()
                while (batch := tailer.next_batch()) is not None:
                    found += [(index, bytes(data)) for index, data in batch]
        except NotAQueue:
            self.seen["no queue"] += 1
        except QueueDamaged as damage:
            self.seen["reader met damage"] += 1
            if self.is_whole and promised:
                raise BrokenPromiseError("all was synced, and a reader met damage") from damage
            promised = min(promised, len(found))
        self._check_found(found, promised)

    def _check_found(self, found: Excerpts, promised: int) -> None:
        wanted = self.written.excerpts
        if found[:promised] != wanted[:promised]:
            have = sum(map(operator.eq, found[:promised], wanted))
            raise BrokenPromiseError(f"{promised} excerpts were promised, {have} are there")
        torn = sum(one not in wanted for one in found[promised:])
        self.seen["excerpts beyond the promised"] += len(found) - promised
        self.seen["excerpts that are not whole"] += torn
        if self.is_whole and found != wanted[: len(found)]:
            raise BrokenPromiseError(f"{torn} excerpts are not whole, {len(found)} were found")


class Boots:
    """Makes this process believe in one start of the machine after the next."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._count = patch, 0

    def next(self) -> None:
        self._count += 1
        this = b"%d" % self._count
        self._patch.setattr(Surroundings, "boot_id", lambda _: this)


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> Boots:
    made = Boots(monkeypatch)
    made.next()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder for states: in memory if possible, since each state is opened with real syncs."""
    with folder_in_memory(tmp_path) as made:
        yield made


def try_states(checker: Checker, count: int, folder: Path) -> None:
    """Checks so many states; the same ones each time.

    Raises:
        BrokenPromiseError: one of them is not what it should be.
    """
    written, rng = checker.written, random.Random(SEED)
    for nth in range(count):
        time = rng.randint(0, written.recorder.time)
        state = written.recorder.state(rng, time)
        path = folder / f"{nth}"
        state.lay(path)
        promised = written.promised(time)
        checker.seen["states"] += 1
        checker.seen["states with a promise"] += promised > 0
        try:
            checker.check(path, promised)
        except BrokenPromiseError as error:
            error.add_note(f"state {nth} of seed {SEED}, at {time}, {promised} excerpts promised")
            raise
        if path.exists():
            shutil.rmtree(path)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_what_was_synced_survives_a_power_cut(
    folder: Path, boots: Boots, scenario: Scenario
) -> None:
    written = write(folder / "queue", scenario.every)
    boots.next()
    checker = Checker(written, is_whole=scenario.every == 1)
    try_states(checker, scenario.states, folder)
    recorder = written.recorder
    print(f"{recorder.time} looks, {recorder.syncs} syncs, {len(written.excerpts)} excerpts")
    print(dict(checker.seen))
    assert checker.seen["states with a promise"] > scenario.states // 2 or scenario.every > APPENDS
    assert checker.seen["excerpts beyond the promised"] > 0


def say_synced_too_early(patch: pytest.MonkeyPatch) -> None:
    """The header word is synced, the payload never."""
    leave_out_payload(patch)


def publish_too_early(patch: pytest.MonkeyPatch) -> None:
    """The header word is published and synced, then the payload; only then the append returns."""
    sync_word = StoreWriter._sync_published
    sync = leave_out_payload(patch)

    def sync_both(writer: StoreWriter, position: int, end: int) -> None:
        sync_word(writer, position, end)
        sync(writer, end)

    patch.setattr(StoreWriter, "_sync_published", sync_both)


def leave_out_payload(patch: pytest.MonkeyPatch) -> Callable[[StoreWriter, int], None]:
    """Leaves out the sync that follows the laying of a run; what would have done it."""
    sync = StoreWriter._sync
    is_laid = False

    def lay_run(*args: Any) -> Any:
        nonlocal is_laid
        is_laid = True
        return lay_excerpts(*args)

    def sync_rest(writer: StoreWriter, position: int) -> None:
        nonlocal is_laid
        if not is_laid:
            sync(writer, position)
        is_laid = False

    patch.setattr(storewriter, "lay_excerpts", lay_run)
    patch.setattr(StoreWriter, "_sync", sync_rest)
    return sync


@pytest.mark.parametrize("fault", [say_synced_too_early, publish_too_early])
def test_a_writer_with_a_fault_is_found(
    folder: Path, boots: Boots, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        written = write(folder / "queue", every=1)
    boots.next()
    checker = Checker(written, is_whole=True)
    with pytest.raises(BrokenPromiseError) as found:
        try_states(checker, SCENARIOS[0].states, folder)
    print(f"found in state {checker.seen['states']}: {found.value}")
