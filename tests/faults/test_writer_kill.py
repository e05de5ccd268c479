"""`kill -9` of a writer at random moments: all that was acknowledged stays, and others go on.

The writer is forked, so that a moment may lie anywhere: in opening the queue, in making its files,
in laying and publishing an excerpt, in adding an index page, in rolling. Stores into mapped memory
are no system calls; this is how points between them are met. The seed of the moments is printed,
and CQREPL_KILL_SEED repeats it, as far as a moment can be repeated.
"""

import os
import random
import shutil
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.faults.writers import WAIT_MAX_S, Left, Plan, java_survives, survives
from tests.support import forks
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import check_marks

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

POINTS = int(os.environ.get("CQREPL_KILL_POINTS", "80"))
POINTS_MAX = 20 * POINTS  # where so many are needed to meet a writer everywhere
EVERYWHERE = ("with the write lock", "in a new store file", "before the table store was whole")
JAVA_EVERY = int(os.environ.get("CQREPL_KILL_JAVA_EVERY", "10"))
POINTS_PER_QUEUE = 12  # each queue's first points are in making its table store
LIFE_MAX_S = 0.025
# index pages are 8, 32 and 128 excerpts apart
PLANS = (
    Plan(roll_cycle="TEST_DAILY", per_cycle=40),
    Plan(roll_cycle="TEST2_DAILY", per_cycle=90),
    Plan(roll_cycle="TEST4_SECONDLY", per_cycle=300),
)


def write(plan: Plan, path: Path, number: int, told: int) -> None:
    os.write(told, number.to_bytes(8, "little"))
    plan.append_from(path, number, told)


def kill_at(plan: Plan, path: Path, number: int, life_s: float) -> tuple[int, Left]:
    """A writer that goes on from excerpt `number`, and is killed: how many it has acknowledged."""
    told = os.pipe()
    pid = forks.start(partial(write, plan, path, number, told[1]))
    os.close(told[1])
    os.read(told[0], 8)  # it lives: a fork of a large process takes longer than most of these lives
    time.sleep(life_s)
    forks.kill(pid)
    with os.fdopen(told[0], "rb") as answers:
        data = answers.read()
    acknowledged = int.from_bytes(data[-8:], "little") if data else number
    return acknowledged, Left.by(pid, path)


def test_a_writer_killed_at_random_points(
    java: JavaQueue, tmp_path: Path, rng: random.Random
) -> None:
    seen: Counter[str] = Counter()
    longest_s = 0.0
    number = 0
    for point in range(POINTS_MAX):
        if point >= POINTS and all(seen[where] for where in EVERYWHERE):
            break
        nth, within = divmod(point, POINTS_PER_QUEUE)
        plan, path = PLANS[nth % len(PLANS)], tmp_path / str(nth)
        if within == 0:
            number = 0
        # the first lives of a queue are short: they end while it is made
        life_s = rng.uniform(0, LIFE_MAX_S if within > 2 else LIFE_MAX_S / 6)
        acknowledged, left = kill_at(plan, path, number, life_s)
        seen["before the table store was whole"] += not left.has_table
        seen["with the write lock"] += left.is_locked
        seen["in a new store file"] += left.is_rolling
        seen["before recording what it published"] += left.is_unrecorded
        seen["before its first append"] += acknowledged == number
        seen["appended"] += acknowledged - number
        if point % JAVA_EVERY == 0:
            java_survives(java, plan, path, acknowledged, left)
            seen["Java"] += 1
        number, waited_s = survives(plan, path, acknowledged)
        longest_s = max(longest_s, waited_s)
        if within == POINTS_PER_QUEUE - 1:
            check_marks(path)
            shutil.rmtree(path)
    print(f"{point} killed: {dict(seen)}; longest to open and append {longest_s:.3f} s")
    assert longest_s < WAIT_MAX_S
    for where in EVERYWHERE:
        assert seen[where] > 0, where


def test_java_finishes_a_table_store_whose_maker_was_killed(
    java: JavaQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its header was laid and synced, only its first word was not stored."""
    plan, path = PLANS[0], tmp_path / "queue"
    sync = Mapping.sync

    def sync_and_die(*args: Any) -> None:
        sync(*args)
        os._exit(forks.CRASH_CODE)

    monkeypatch.setattr(Mapping, "sync", sync_and_die)
    told = os.open(os.devnull, os.O_WRONLY)
    assert forks.run(partial(plan.append_from, path, 0, told)) == forks.CRASH_CODE
    os.close(told)
    monkeypatch.undo()
    assert any((path / FILE_NAME).read_bytes())
    java_survives(java, plan, path, 0, Left.by(0, path))
    survives(plan, path, 0)
