"""`cqrepl demo --persist`: three processes with sequences, a kill, and no number lost."""

import json
import os
from pathlib import Path

import pytest

from cqrepl.persistdemo import PersistResult
from tests.support.invoke import Invoke
from tests.support.processes import children_of


def test_sequences_outlive_a_killed_leader(invoke: Invoke, tmp_path: Path) -> None:
    before = children_of(os.getpid())
    keep = tmp_path / "kept"
    result = invoke("demo", "--persist", "--seconds", "6", "--json", "--keep", keep)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["acknowledged"] + found["warnings"] == found["appended"] > 100
    assert (found["lost"], found["twice"]) == (0, 0)
    assert found["after_kill"] > 0
    assert "the leader, is killed" in result.stderr
    assert children_of(os.getpid()) == before


def test_the_demonstrations_are_asked_for_one_at_a_time(invoke: Invoke) -> None:
    result = invoke("demo", "--persist", "--cluster")
    assert result.exit_code == 2
    kinds = "--cluster, --persist, --grid, --pipeline and --typed"
    assert f"expected one of {kinds}, got several" in result.stderr


@pytest.mark.parametrize(
    ("lost", "twice", "after_kill", "is_right"),
    [(0, 0, 5, True), (1, 0, 5, False), (0, 1, 5, False), (0, 0, 0, False)],
)
def test_the_exit_code_tells_of_losses(
    lost: int, twice: int, after_kill: int, is_right: bool
) -> None:
    found = PersistResult(acknowledged=9, lost=lost, twice=twice, after_kill=after_kill)
    assert found.is_right is is_right
