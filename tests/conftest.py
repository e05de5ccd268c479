"""For all tests: `tools` can be imported, which is never installed, no process is left over; the
kernel in use is told. `each_kernel` is for tests that are to run with every one.
"""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.kernel import choose
from tests.support.kernels import NAMES, kernel_named

# behind everything installed, so that only what is nowhere else comes from the tree
sys.path.append(str(Path(__file__).parents[1]))

# a shell starts what runs in the background deaf to it, and that is inherited
signal.signal(signal.SIGINT, signal.default_int_handler)

PATIENCE_SECONDS = 5.0


def pytest_report_header() -> str:
    """Which kernel the tests run on that do not say."""
    return f"kernel: {choose.NAME}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The same at the end, as there is no header with `-q`."""
    if terminalreporter.config.option.verbose < 0:
        terminalreporter.write_line(f"kernel: {choose.NAME}")


@pytest.fixture(scope="module", params=NAMES)
def each_kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every kernel in turn, behind `cqrepl.kernel.batch`."""
    chosen = kernel_named(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "KERNEL", chosen)
        patch.setattr(choose, "NAME", chosen.NAME)
        yield request.param


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """What the tests of a module start, they also end and wait for."""
    before = child_processes()
    yield
    wait_for_children(before)


def wait_for_children(staying: set[int]) -> None:
    """Until no other children of this process are left than these."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := child_processes() - staying:
        assert time.monotonic() < deadline, f"processes {sorted(left)} were left behind"
        time.sleep(0.01)


def child_processes() -> set[int]:
    """Ids of the children of this process; none where the system does not tell."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for each in lists for number in each.read_text().split()}
