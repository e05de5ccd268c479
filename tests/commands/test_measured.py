"""The messages about processes that are measured."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from cqrepl.bench.processes import Running, running, wait_all
from cqrepl.queue import QueueError

ENDS = ("timeit", "-n", "1", "pass")
RUNS_ON = ("timeit", "-n", "1", "import time; time.sleep(600)")
FAILS = ("json.tool", "no such file")


def started(stack: ExitStack, folder: Path, *commands: tuple[str, ...]) -> list[Running]:
    return [stack.enter_context(running(folder, *command)) for command in commands]


def test_all_are_waited_for(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = started(stack, tmp_path, ENDS, ENDS)
        wait_all(processes)
        assert all(each.has_ended() for each in processes)


@pytest.mark.parametrize("other", [ENDS, RUNS_ON])
def test_the_one_that_failed_is_told_whatever_the_other_does(
    tmp_path: Path, other: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        processes = started(stack, tmp_path, other, FAILS)
        with pytest.raises(QueueError, match=r"tool no such file ended with exit code [12]"):
            wait_all(processes)


def test_one_that_does_not_end_is_told(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = started(stack, tmp_path, RUNS_ON)
        with pytest.raises(QueueError, match="not all processes ended within 0 s"):
            wait_all(processes, 0.0)
