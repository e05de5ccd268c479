"""Every roll cycle of Java, with several epochs: each side reads what its peer wrote, and goes on.

The moments and the epochs are those that Java computed cycles and file names for, in
`tests/vectors/queues/rollcycles.json`; from there on the clock goes a cycle further twice.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import NotAQueue, Queue, QueueLayout, index_of
from cqrepl.queue.format.index import Cycle, Sequence
from cqrepl.queue.format.rollcycle import RollCycle, by_name
from tests.support.goldens import GOLDEN
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payloads
from tests.support.samples import Excerpts, read

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "rollcycles.json").read_text())
NAMES = [entry["name"] for entry in VECTORS]
MOMENT_MS = 1_709_633_472_345
DAY_MS = 86_400_000
EPOCHS = (0, 63_000_000, 1_577_934_245_000)
AHEAD = (0, 1, 3)  # a cycle without a file is among them
COUNT, SIZES = 21, (0, 90)  # in each cycle: with TEST_DAILY three index pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A roll cycle, an epoch, and where Java says that the moment falls."""

    roll_cycle: RollCycle
    epoch: int
    cycle: int
    file_name: str

    @property
    def layout(self) -> QueueLayout:
        return QueueLayout.of(self.roll_cycle, self.epoch)

    def clock_ms(self, ahead: int) -> int:
        return MOMENT_MS + ahead * self.roll_cycle.length_ms

    def excerpts(self, ahead: int, *, start: int = 0) -> Excerpts:
        """The excerpts that either side appends to one cycle, from the excerpt `start` on."""
        first = index_of(Cycle(self.cycle + ahead), Sequence(start), self.roll_cycle.shift)
        data = payloads(seed_of(ahead, start), COUNT, *SIZES)
        return [(first + nth, payload or b"\x8f") for nth, payload in enumerate(data)]


def seed_of(ahead: int, start: int) -> int:
    return 1 + ahead * 1000 + start


def cases() -> Iterator[Case]:
    for entry in VECTORS:
        if entry["name"] == "WEEKLY":
            continue
        for sample in entry["samples"]:
            if sample["ms"] == MOMENT_MS and sample["epoch"] in EPOCHS:
                yield Case(
                    roll_cycle=by_name(entry["name"]),
                    epoch=sample["epoch"],
                    cycle=sample["cycle"],
                    file_name=sample["file"],
                )


CASES = list(cases())
each_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.roll_cycle.name}-{case.epoch}"
)


def test_all_roll_cycles_with_all_epochs_are_here() -> None:
    there = {(case.roll_cycle.name, case.epoch) for case in CASES}
    assert there == {(name, epoch) for name in NAMES if name != "WEEKLY" for epoch in EPOCHS}


def write(case: Case, path: Path, *, start: int = 0, aheads: tuple[int, ...] = AHEAD) -> Excerpts:
    """Appends to each of the cycles; what must be read back of that."""
    written: Excerpts = []
    with Queue.open_for_append(path, create=case.layout) as queue:
        appender = queue.appender()
        for ahead in aheads:
            data = list(payloads(seed_of(ahead, start), COUNT, *SIZES))
            last = appender.append(data, case.clock_ms(ahead))
            written += case.excerpts(ahead, start=start)
            assert last == written[-1][0]
    return written


def java_writes(
    java: JavaQueue, case: Case, path: Path, *, start: int = 0, aheads: tuple[int, ...] = AHEAD
) -> Excerpts:
    written: Excerpts = []
    name, sizes = case.roll_cycle.name, f"{SIZES[0]}-{SIZES[1]}"
    for ahead in aheads:
        props = {"interop.epoch": case.epoch, "interop.time": case.clock_ms(ahead)}
        answer = java.call("append", path, name, COUNT, sizes, seed_of(ahead, start), props=props)
        assert answer.exit == 0, answer
        written += case.excerpts(ahead, start=start)
        assert int(answer.lines[-1]["lastIndex"], 16) == written[-1][0]
    return written


def assert_both_read(java: JavaQueue, case: Case, path: Path, excerpts: Excerpts) -> None:
    assert read(path) == excerpts
    with Queue.open(path) as queue:
        assert queue.layout == case.layout
    verified = java.call("verify", path)
    if case.epoch < DAY_MS:
        assert verified.exit == 0, verified
        assert verified.lines[0]["count"] == len(excerpts), verified
    else:
        # over several cycles Java's countExcerpts finds no file then, in its own queues neither
        assert "Cycle not found" in str(verified.error), verified
    *found, summary = java.call("dump", path).lines
    assert [(int(line["index"], 16), bytes.fromhex(line["payload"])) for line in found] == excerpts
    assert (summary["rollCycle"], summary["epoch"]) == (case.roll_cycle.name, case.epoch)


@each_case
def test_java_reads_what_we_write_and_goes_on(java: JavaQueue, tmp_path: Path, case: Case) -> None:
    path = tmp_path / "queue"
    written = write(case, path)
    assert (path / case.file_name).exists()
    assert_both_read(java, case, path, written)
    written += java_writes(java, case, path, start=COUNT, aheads=AHEAD[-1:])
    assert_both_read(java, case, path, written)


@each_case
def test_we_read_what_java_writes_and_go_on(java: JavaQueue, tmp_path: Path, case: Case) -> None:
    path = tmp_path / "queue"
    written = java_writes(java, case, path)
    assert (path / case.file_name).exists()
    assert_both_read(java, case, path, written)
    written += write(case, path, start=COUNT, aheads=AHEAD[-1:])
    assert_both_read(java, case, path, written)


def test_a_weekly_queue_is_refused_in_one_clear_line(java: JavaQueue, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    answer = java.call("append", path, "WEEKLY", 3, 20, 1, props={"interop.time": MOMENT_MS})
    assert answer.exit == 0, answer
    for opened in (Queue.open, Queue.open_for_append):
        with pytest.raises(NotAQueue, match="WEEKLY is not supported") as refused:
            opened(path)
        assert "\n" not in str(refused.value)
    (path / "metadata.cq4t").unlink()  # by the names of its store files, too
    with pytest.raises(NotAQueue, match="WEEKLY is not supported"):
        Queue.open(path)
    with pytest.raises(ValueError, match="WEEKLY is not supported"):
        by_name("WEEKLY")
