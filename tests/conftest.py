"""For all tests: `tools` can be imported, which is never installed, and no process is left over."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# behind everything installed, so that only what is nowhere else comes from the tree
sys.path.append(str(Path(__file__).parents[1]))

PATIENCE_SECONDS = 5.0


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """What the tests of a module start, they also end and wait for."""
    before = child_processes()
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := child_processes() - before:
        assert time.monotonic() < deadline, f"processes {sorted(left)} were left behind"
        time.sleep(0.01)


def child_processes() -> set[int]:
    """Ids of the children of this process; none where the system does not tell."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for each in lists for number in each.read_text().split()}
