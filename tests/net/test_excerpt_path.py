"""The tool that counts what Python does for one excerpt, on a real source and sink."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.excerpt_path import (
    OUTSIDE,
    Call,
    Function,
    Numbers,
    Walk,
    excess,
    measure,
    middle_of,
    on_each,
    report,
)

ROOT = Path(__file__).resolve().parent.parent.parent
# With the plain kernel 371 calls, 223 changes of file and 97 of package are on each walk. That in
# the middle has some 30, 15 and 8 more, by what has its turn in between. These numbers become
# smaller, never greater. Where each excerpt takes a quarter of a second, as on a machine that is
# much too busy, what is done so often is on each walk too: then another run tells.
ON_EACH_MAX: Final = Numbers(calls=388, file_changes=231, package_changes=104)
WALKS: Final = "15"
RUNS: Final = 3
RUN_SECONDS: Final = 60
FIRST = Function("cqrepl/net/a.py", "first")
SECOND = Function("cqrepl/net/a.py", "second")
NEXT_FILE = Function("cqrepl/net/b.py", "third")
NEXT_PACKAGE = Function("wire/c.py", "fourth")
CALLS = [
    Call(OUTSIDE, FIRST),
    Call(FIRST, SECOND),
    Call(SECOND, NEXT_FILE),
    Call(SECOND, NEXT_FILE),
    Call(NEXT_FILE, NEXT_PACKAGE),
]


def test_changes_are_those_between_caller_and_callee() -> None:
    assert Numbers.of(CALLS) == Numbers(calls=5, file_changes=4, package_changes=2)


def test_a_walk_has_each_call_once_with_the_append_and_without() -> None:
    walk = Walk(CALLS, append_count=2)
    assert walk.whole == [*CALLS[:3], CALLS[4]]
    assert walk.replication == [CALLS[2], CALLS[4]]


def test_the_report_shows_the_middle_the_least_and_the_greatest() -> None:
    walks = [Walk(CALLS[:count], append_count=0) for count in (5, 1, 2)]
    assert middle_of(walks) is walks[2]
    line = report(walks).splitlines()[1].split()
    assert line[-6:] == ["2", "(1-4)", "1", "(1-3)", "1", "(1-2)"]


async def test_walks_lead_from_the_append_to_the_acknowledgement(tmp_path: Path) -> None:
    for walk in await measure(tmp_path, excerpts=2):
        assert walk.calls[0] == Call(OUTSIDE, walk.calls[0].callee)
        assert walk.calls[0].callee.name == "Queue.append"
        assert 0 < walk.append_count < len(walk.calls)
        assert all((ROOT / callee.file).is_file() for _, callee in walk.calls)
        assert {"cqrepl/net", "cqrepl/protocol"} <= {each.package for _, each in walk.replication}
        assert not any(callee.name == "Queue.append" for _, callee in walk.replication)
        assert any("acknowledged" in callee.name for _, callee in walk.replication)


def test_a_walk_that_is_longer_than_it_may_be() -> None:
    """Some calls are on a walk by chance: those count that are on each."""
    walks = [Walk(CALLS[:count], append_count=0) for count in (5, 3, 4)]
    assert on_each(walks) == Numbers(calls=3, file_changes=2, package_changes=1)
    assert excess(walks, Numbers(3, 2, 1)) == ""
    for most in (Numbers(2, 2, 1), Numbers(3, 1, 1), Numbers(3, 2, 0)):
        assert "walk has 3 calls, 2 changes of file and 1 of package" in excess(walks, most)


def test_the_way_of_an_excerpt_gets_no_longer() -> None:
    most = [f"{number}" for number in ON_EACH_MAX]
    words = ["--kernel", "python", "--excerpts", WALKS, "--most", *most]
    command = [sys.executable, "-m", "tools.excerpt_path", *words]
    for _ in range(RUNS):
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
        )
        if run.returncode == 0:
            return
    pytest.fail(run.stdout + run.stderr)
