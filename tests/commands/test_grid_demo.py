"""`cqrepl demo --grid`: three processes that load two maps, two kills, and nothing lost."""

import json
import os
from dataclasses import replace

from cqrepl.griddemo import BLOCK, GridResult
from tests.support.invoke import Invoke
from tests.support.processes import children_of

RIGHT = GridResult(
    rows=2000,
    read=2000,
    leads=6,
    transfers=9,
    after_kill=2,
    before=100_000,
    after=100_000,
    database=100_000,
    killed=[1, 2],
)


def test_maps_outlive_two_killed_primaries(invoke: Invoke) -> None:
    before = children_of(os.getpid())
    result = invoke("demo", "--grid", "--rows", "4000", "--seconds", "8", "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert (found["missing"], found["differs"], found["stale"]) == (0, 0, 0)
    assert found["before"] == found["after"] == found["database"] == 200_000
    assert found["read_after_kill"] <= 0.2 * 4000 + found["leads"] * BLOCK
    assert len(set(found["killed"])) == 2
    assert children_of(os.getpid()) == before


def test_what_is_lost_is_told_by_the_exit_code() -> None:
    assert RIGHT.is_right
    assert not replace(RIGHT, missing=1).is_right
    assert not replace(RIGHT, read=4000).is_right
    assert not replace(RIGHT, after=99_999).is_right
    assert not replace(RIGHT, database=99_999).is_right
    assert not replace(RIGHT, differs=1).is_right
    assert not replace(RIGHT, stale=1).is_right
    assert not replace(RIGHT, killed=[1]).is_right
    assert not replace(RIGHT, after_kill=0).is_right


def test_two_demonstrations_at_a_time_are_refused(invoke: Invoke) -> None:
    result = invoke("demo", "--grid", "--cluster")
    assert result.exit_code == 2
    kinds = "--cluster, --persist, --grid, --pipeline and --typed"
    assert f"expected one of {kinds}, got several" in result.stderr
