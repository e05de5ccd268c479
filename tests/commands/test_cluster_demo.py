"""`cqrepl demo --cluster`: three processes that elect, a kill, a freeze, and nothing lost."""

import json
import os
from pathlib import Path

from cqrepl.clusterdemo import ClusterResult
from tests.support.invoke import Invoke
from tests.support.processes import children_of


def test_tasks_outlive_a_killed_leader_and_a_frozen_one(invoke: Invoke, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    before = children_of(os.getpid())
    result = invoke("demo", "--cluster", "--seconds", "10", "--json", "--keep", keep)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["submitted"] == found["finished"] > 100
    assert (found["lost"], found["twice"]) == (0, 0)
    assert found["epochs"][0]["number"] == 1
    assert 1 <= len(found["gaps"]) <= 2  # a busy host may have lost the lead before it is frozen
    for word in ("is killed", "comes back", "is frozen", "goes on"):
        assert word in result.stderr
    assert children_of(os.getpid()) == before


def test_a_directory_with_something_in_it_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("demo", "--cluster", "--keep", tmp_path)
    assert result.exit_code == 2
    assert "an empty directory, or none, expected" in result.stderr


def test_what_is_lost_or_done_twice_is_told_by_the_exit_code() -> None:
    epochs = {1: 1, 2: 2, 3: 1}
    assert ClusterResult(submitted=3, finished=3, epochs=epochs).is_right
    assert not ClusterResult(submitted=3, finished=2, lost=1, epochs=epochs).is_right
    assert not ClusterResult(submitted=3, finished=3, twice=1, epochs=epochs).is_right
    assert not ClusterResult(submitted=3, finished=3, epochs={1: 1}).is_right
