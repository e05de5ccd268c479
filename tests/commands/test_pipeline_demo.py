"""`cqrepl demo --pipeline`: two replicated queues, a pipeline that is killed, and nothing lost."""

import json
import os
from dataclasses import replace

import pytest

from cqrepl.pipelinedemo import PipelineResult
from tests.support.invoke import Invoke
from tests.support.processes import children_of

RIGHT = PipelineResult(
    rows=1200, typed=1200, twice=0, lost=0, archived=10, kills=1, place="/tmp/demo"
)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_pipeline_outlives_its_kill(invoke: Invoke) -> None:
    before = children_of(os.getpid())
    result = invoke("demo", "--pipeline", "--rows", "1200", "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert (found["rows"], found["typed"], found["twice"], found["lost"]) == (1200, 1200, 0, 0)
    assert found["archived"] == 2 * 5  # the last cycle of each queue is open
    assert children_of(os.getpid()) == before


def test_what_is_lost_or_twice_is_told_by_the_exit_code() -> None:
    assert RIGHT.is_right
    wrong = [replace(RIGHT, typed=1199), replace(RIGHT, twice=1), replace(RIGHT, lost=1)]
    assert not any(each.is_right for each in [*wrong, replace(RIGHT, archived=0)])
