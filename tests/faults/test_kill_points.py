"""A writer that is killed at every 10th system call that writes, creates or syncs something.

The calls of a whole run are listed first; then the same run is made again for each point and ends
there (`strace --inject`). All that was acknowledged must be found each time, by us and at some
points by Java, and both can append.
"""

import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Durability
from cqrepl.queue.files.filebytes import FileBytes
from tests.faults.tracing import die_before, require_strace, write_calls
from tests.faults.writers import WAIT_MAX_S, Left, Plan, java_survives, survives
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import check_marks
from wire.header import is_ready

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

EVERY = int(os.environ.get("CQREPL_KILL_CALL_EVERY", "10"))
JAVA_EVERY = int(os.environ.get("CQREPL_KILL_JAVA_EVERY", "10"))
PLANS = (  # each with the number of excerpts
    (Plan(roll_cycle="TEST_DAILY", per_cycle=11), 400),
    (Plan(roll_cycle="TEST2_DAILY", per_cycle=90), 400),
    (Plan(roll_cycle="TEST_DAILY", per_cycle=20, durability=Durability.SYNCED), 110),
)


def unfinished(path: Path) -> list[str]:
    """The store files whose header is not ready."""
    names = []
    for store in path.glob("*.cq4"):
        with FileBytes(store) as file:
            if not is_ready(file.word(0)):
                names.append(store.name)
    return names


@pytest.mark.parametrize(("plan", "count"), PLANS, ids=["rolling", "appending", "synced"])
def test_a_writer_killed_at_system_calls(
    java: JavaQueue, tmp_path: Path, plan: Plan, count: int
) -> None:
    require_strace(tmp_path)
    log = tmp_path / "log"

    def work(path: Path, told: int) -> None:
        plan.append_from(path, 0, told, count)

    calls = write_calls(partial(work, tmp_path / "whole", os.open(os.devnull, os.O_WRONLY)), log)
    points = calls[EVERY - 1 :: EVERY]
    seen: Counter[str] = Counter()
    for nth, call in enumerate(points):
        path = tmp_path / str(nth)
        told = os.pipe()
        pid, code = die_before(partial(work, path, told[1]), call, log)
        assert code == -9, f"ended with {code}, expected to die in {call}"
        os.close(told[1])
        with os.fdopen(told[0], "rb") as answers:
            acknowledged = int.from_bytes(answers.read()[-8:], "little")
        assert not unfinished(path), f"Java would wait for who died in {call}"
        left = Left.by(pid, path)
        if nth % JAVA_EVERY == 0:
            java_survives(java, plan, path, acknowledged, left)
            seen["Java"] += 1
        _, waited_s = survives(plan, path, acknowledged)
        check_marks(path)
        assert waited_s < WAIT_MAX_S
        seen[call.name] += 1
        seen["with the write lock"] += left.is_locked
    print(f"{len(calls)} calls, {len(points)} points: {dict(seen)}")
    assert len(points) >= count // 2 // EVERY
