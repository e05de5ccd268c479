"""For all tests: `tools` can be imported, which is never installed, and no process is left over."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# behind everything installed, so that only what is nowhere else comes from the tree
sys.path.append(str(Path(__file__).parents[1]))


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """What the tests of a module start, they also end; Java may take a moment to be gone."""
    this = psutil.Process()
    before = set(this.children(recursive=True))
    yield
    _, left = psutil.wait_procs(set(this.children(recursive=True)) - before, timeout=5)
    assert not left, f"still running: {[each.cmdline() for each in left]}"
