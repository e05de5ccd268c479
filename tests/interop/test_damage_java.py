"""Java as a second opinion on damaged queues, and as the judge of repaired ones."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import QueueDamaged
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from tests.support.damage import AREAS, KINDS, Mutation, samples
from tests.support.damagechecks import Case, Given, Result, lay, read
from tests.support.goldens import READABLE, manifest, unpack
from tests.support.java import JavaEndedError, JavaQueue, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import wipe_hints

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

DAMAGED_FILES = int(os.environ.get("CQREPL_DAMAGED_FILES_JAVA", "80"))
ANSWER_TIMEOUT_S = 8  # Java waits long for locks and headers; what it says later is no opinion
PROPS = {"interop.timeoutMs": 100}
# there is no lock without a table store
REPAIRED = [name for name in READABLE if name != "no_metadata"]


@pytest.mark.parametrize("name", REPAIRED)
def test_java_verifies_and_appends_to_what_was_repaired(
    java: JavaQueue, tmp_path: Path, name: str
) -> None:
    """All hints are zeroed before: Java relies on them more than we do."""
    path, golden = unpack(name, tmp_path), manifest(name)
    wipe_hints(path)
    assert apply(plan_repair(path))
    assert inspect_queue(path, deep=True).findings == ()
    layout = inspect_queue(path).layout
    cycle = inspect_queue(path).files[-1].cycle + 2  # Java tries every cycle up to the clock's
    later = {"interop.time": cycle * layout.roll_cycle.length_ms + layout.epoch}
    props = {"interop.blockSize": max(golden.block_size, 65536)}
    *found, _ = java.call("dump", path, "--sha", props=props).lines
    assert found == golden.dumped()
    answer = java.call("append", path, golden.roll_cycle_name, 40, "0-50", 5, props=props | later)
    assert answer.exit == 0, answer
    *found, summary = java.call("dump", path, "--sha", props=props).lines
    assert summary["count"] == len(golden.excerpts) + 40
    assert found[: len(golden.excerpts)] == golden.dumped()
    assert inspect_queue(path, deep=True).is_damaged is False
    if name != "epoch_2020":  # Java cannot count over three cycles when the epoch has a time of day
        answer = java.call("verify", path, props=props)
        assert answer.exit == 0, answer


class SecondOpinion:
    """Java's reading of a damaged queue; a new process after one that the damage ended."""

    def __init__(self) -> None:
        self._java = JavaQueue()

    def read(self, path: Path) -> list[tuple[int, bytes]] | None:
        """Its excerpts; None when it fails, ends, or gives no answer in time."""
        try:
            answer = self._java.call("dump", path, props=PROPS, timeout=ANSWER_TIMEOUT_S)
        except (JavaEndedError, TimeoutError):
            self._java.kill()
            self._java = JavaQueue()
            return None
        if answer.exit != 0:
            return None
        lines = [line for line in answer.lines if "payload" in line]
        return [(int(line["index"], 16), bytes.fromhex(line["payload"])) for line in lines]

    def close(self) -> None:
        self._java.close()


@pytest.fixture
def opinion() -> Iterator[SecondOpinion]:
    require_java()
    second = SecondOpinion()
    yield second
    second.close()


def compared(ours: Result, theirs: list[tuple[int, bytes]] | None, before: list[Given]) -> str:
    """The agreement between the two, in words."""
    mine = [(each.index, each.data) for each in ours.given]
    if theirs is None:
        return "Java fails, we read" if ours.error is None else "both fail"
    if ours.error is None:
        if mine == theirs:
            return "both read the same"
        return "Java reads less" if mine[: len(theirs)] == theirs else "DIFFERENT"
    whole = [(each.index, each.data) for each in before]
    if theirs == whole:
        return "Java reads all, we refuse"
    if theirs[: len(mine)] == mine:
        return "Java reads on, we refuse"
    return "Java stops earlier, we refuse"


def test_java_and_we_agree_on_damaged_files(
    opinion: SecondOpinion, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If we read without an error, Java reads the same, or less, or fails. If Java reads everything
    and we refuse, it is damage to what readers need not look at: marks and slots."""
    chance = random.Random(5)
    undamaged = samples(tmp_path / "samples")
    befores = {}
    for sample in undamaged:
        lay(tmp_path / "damaged", sample.files)
        befores[sample.name] = read(tmp_path / "damaged").given
    tally: Counter[str] = Counter()
    for _ in range(DAMAGED_FILES):
        sample = chance.choice(undamaged)
        area = chance.choice(AREAS)
        mutation = Mutation(area, chance.choice(KINDS[area]), chance.randrange(1 << 32))
        case = Case(tmp_path, sample, mutation)
        ours = read(case.path)
        lay(case.copy, case.files)  # Java changes what it opens
        theirs = opinion.read(case.copy)
        verdict = compared(ours, theirs, befores[sample.name])
        tally[verdict] += 1
        assert verdict != "DIFFERENT", (sample.name, mutation)
        if verdict == "Java reads all, we refuse":
            assert isinstance(ours.error, QueueDamaged), (sample.name, mutation, ours.error)
            assert area != "payload"
    shutil.rmtree(tmp_path / "samples")
    with capsys.disabled():
        print(f"\n{DAMAGED_FILES} damaged files: {dict(tally.most_common())}")
