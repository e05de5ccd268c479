"""Tasks of jobs: answers in order, progress on a terminal, errors of a task in one line."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cqrepl.queue import Queue
from cqrepl.spark.failures import JobFailed
from cqrepl.spark.jobs.tasks import run_tasks
from tests.support.terminal import Terminal

PATIENCE_S = 300


def test_answers_are_in_the_order_of_the_tasks(spark: SparkSession) -> None:
    def work(number: int) -> Iterator[dict[str, Any]]:
        for nth in range(number % 3):
            yield {"number": number, "nth": nth}

    answers = run_tasks(spark, "counted", work, range(20))
    assert answers == [{"number": n, "nth": nth} for n in range(20) for nth in range(n % 3)]
    assert run_tasks(spark, "counted", work, []) == []


class Loaded:
    """Notes in a file that it has come to a worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return loaded, (self.path,)


def loaded(path: Path) -> Loaded:
    with path.open("a") as out:
        out.write(".")
    return Loaded(path)


def test_a_task_is_carried_to_no_other_one(spark: SparkSession, tmp_path: Path) -> None:
    """No task comes along with another one, or the cost of many tasks would grow with their
    square."""

    def work(task: Loaded) -> Iterator[dict[str, Any]]:
        yield {"path": str(task.path)}

    answers = run_tasks(spark, "loaded", work, [Loaded(tmp_path / str(nth)) for nth in range(5)])
    assert [Path(answer["path"]).name for answer in answers] == list("01234")
    assert [(tmp_path / str(nth)).read_text() for nth in range(5)] == ["."] * 5


def test_progress_on_a_terminal(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks end when it has been shown that they have not."""
    shown = tmp_path / "shown"

    class Watched(Terminal):
        def write(self, text: str) -> int:
            if "waited: 0 of 2 tasks" in text:
                shown.touch()
            return super().write(text)

    def work(number: int) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + PATIENCE_S
        while not shown.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield {"number": number}

    terminal = Watched()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        run_tasks(spark, "waited", work, [1, 2])
    assert shown.exists()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_an_error_of_a_task(spark: SparkSession, tmp_path: Path) -> None:
    def work(path: Path) -> Iterator[dict[str, Any]]:
        Queue.open(path).close()
        yield {}

    said = f"{tmp_path}/none: expected a queue directory, found none"
    with pytest.raises(JobFailed) as raised:
        run_tasks(spark, "opened", work, [tmp_path / "none"])
    assert (str(raised.value), raised.value.code) == (said, 2)
