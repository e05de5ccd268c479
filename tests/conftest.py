"""For all tests: `tools` can be imported, which is never installed, no process is left over; the
kernel in use is told, and how to repeat what failed. `each_kernel` is for tests that are to run
with every one.
"""

import json
import os
import random
import re
import shlex
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cqrepl.kernel import choose
from tests.support.kernels import NAMES, kernel_named

# behind everything installed, so that only what is nowhere else comes from the tree
sys.path.append(str(Path(__file__).parents[1]))

# a shell starts what runs in the background deaf to it, and that is inherited
signal.signal(signal.SIGINT, signal.default_int_handler)

PATIENCE_SECONDS = 60.0
SLOWEST = 8  # files that are named
CAUSES = "causes"  # the section of a report that holds them
CAUSE_LENGTH = 400  # characters of each that are told
TALLY = os.environ.pop("CQREPL_TALLY", "")  # where `suite` looks for what this run has counted

# how fast a machine is decides about no test
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed of Hypothesis where none is given, so that it can be told."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = random.SystemRandom().randrange(1 << 32)


def pytest_report_header() -> str:
    """The report's line with the kernel that tests run on unless they choose one."""
    return f"kernel: {choose.NAME}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the causes of a failure into its report: those that a group of errors holds, each."""
    report = yield
    if call.excinfo is not None and report.failed:
        report.sections.append((CAUSES, "\n".join(causes_of(call.excinfo.value))))
    return report


def causes_of(error: BaseException) -> list[str]:
    """One line for each error that is no group: its type, and the first line of its text."""
    if isinstance(error, BaseExceptionGroup):
        return [line for each in error.exceptions for line in causes_of(each)]
    text = str(error).partition("\n")[0]
    return [f"{type(error).__name__}: {text[:CAUSE_LENGTH]}"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """The same at the end, as there is no header with `-q`; and how to repeat what failed."""
    yield
    if terminalreporter.config.option.verbose < 0:
        terminalreporter.write_line(f"kernel: {choose.NAME}")
    stats = terminalreporter.stats
    failed = [each for kind in ("failed", "error") for each in stats.get(kind, ())]
    again = command_for(failed, terminalreporter.config) if failed else ""
    if again:
        terminalreporter.write_line(f"to repeat what failed: {again}")
    if TALLY:
        passed = len(stats.get("passed", ())) + len(stats.get("xfailed", ()))
        reports: list[object] = [each for kind in stats.values() for each in kind]
        tally = {
            "passed": passed,
            "failed": len(failed),
            "again": again,
            "causes": [line for report in failed for line in cause_lines(report)],
            "slowest": slowest_files(reports),
        }
        Path(TALLY).write_text(json.dumps(tally))


def cause_lines(report: pytest.TestReport) -> list[str]:
    """A line that names the test and when it failed, and its causes."""
    causes = [text for name, text in report.sections if name == CAUSES]
    lines = [line for text in causes for line in text.splitlines()]
    return [f"{report.nodeid} ({report.when})", *(f"    {line}" for line in lines)]


def slowest_files(reports: Iterable[object]) -> list[tuple[str, float]]:
    """The files whose tests took longest in all, in seconds, with what they share."""
    took: dict[str, float] = defaultdict(float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            took[report.nodeid.partition("::")[0]] += report.duration
    return sorted(took.items(), key=lambda each: -each[1])[:SLOWEST]


def command_for(failed: Sequence[pytest.TestReport], config: pytest.Config) -> str:
    """The command line that runs these tests again, with the same settings and examples.

    A test that draws a seed of its own prints it as the setting that repeats it.
    """
    given = {name: value for name, value in os.environ.items() if name.startswith("CQREPL_")}
    for report in failed:
        printed = getattr(report, "capstdout", "")
        given |= dict(re.findall(r"^(CQREPL_\w+)=(\S+)$", printed, re.MULTILINE))
    program = os.path.relpath(Path(sys.executable).with_name("pytest"))
    seed = f"--hypothesis-seed={config.option.hypothesis_seed}"
    names = dict.fromkeys(report.nodeid for report in failed)
    words = [f"{name}={shlex.quote(value)}" for name, value in sorted(given.items())]
    return " ".join([*words, program, seed, *map(shlex.quote, names)])


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
    """Fails unless the tests of a module have ended, and waited for, each process they started."""
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
    found = set()
    for each in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # that thread has ended meanwhile
            found |= {int(number) for number in each.read_text().split()}
    return found
