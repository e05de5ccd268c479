"""Rows without indexes come into a queue once, in their order, whatever ends a commit."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cqrepl.queue import Appender, AppendsToCopy, ExcerptBatch, Queue, QueueError
from cqrepl.queue.files.epochfile import store_epochs
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.epochs import Epochs
from cqrepl.spark import derived
from cqrepl.spark.derived import BatchName, DerivedPart, commit_rows, is_begun, stage_rows
from cqrepl.spark.staging import Target, begin, discard, store_batch, target_layout
from tests.spark.queues import excerpts

Rows = list[list[bytes]]


class Killed(Exception):
    """The end of a driver."""


@pytest.fixture
def target(tmp_path: Path) -> Target:
    path = tmp_path / "out"
    return Target(path=path, layout=target_layout(path, "FAST_DAILY", None), is_synced=False)


@pytest.fixture
def name(tmp_path: Path) -> BatchName:
    return BatchName(query="q", number=0, folder=tmp_path / "checkpoint" / "chronicle" / "t")


def staged(folder: Path, rows: Rows, size: int = 3) -> list[DerivedPart]:
    """Staged by a task for each list, in record batches of this size."""
    begin(folder)

    def batches(payloads: list[bytes]) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(payloads), size):
            column = pa.array(payloads[first : first + size], pa.binary())
            yield pa.RecordBatch.from_arrays([column], ["payload"])

    return [stage_rows(folder, task, batches(each)) for task, each in enumerate(rows)]


def held(target: Target) -> list[bytes]:
    return [payload for _, payload in excerpts(target.path)]


def rows_of(batch: int, tasks: int = 3, count: int = 7) -> Rows:
    return [[b"%d/%d/%d" % (batch, t, n) for n in range(count)] for t in range(tasks)]


def flat(rows: Rows) -> list[bytes]:
    return [each for task in rows for each in task]


def killed_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The next commit ends when so many record batches are in the queue."""
    done = 0

    def store(appender: Appender, batch: ExcerptBatch) -> int:
        nonlocal done
        if done == count:
            raise Killed
        done += 1
        return store_batch(appender, batch)

    monkeypatch.setattr(derived, "store_batch", store)


def test_rows_come_in_the_order_of_tasks_and_rows(
    tmp_path: Path, target: Target, name: BatchName
) -> None:
    for number in range(3):
        parts = staged(tmp_path / "job", rows_of(number))
        random.Random(number).shuffle(parts)
        assert commit_rows(target, replace(name, number=number), parts) == 21
    assert held(target) == [row for number in range(3) for row in flat(rows_of(number))]


def test_a_batch_that_is_done_is_not_appended_again(
    tmp_path: Path, target: Target, name: BatchName
) -> None:
    assert commit_rows(target, name, staged(tmp_path / "job", rows_of(0))) == 21
    assert commit_rows(target, name, staged(tmp_path / "job", rows_of(0))) == 0
    assert commit_rows(target, name, staged(tmp_path / "job", [[b"other"]])) == 0
    assert held(target) == flat(rows_of(0))


@pytest.mark.parametrize("reached", range(10))
def test_a_commit_that_was_killed_anywhere_goes_on(
    tmp_path: Path,
    target: Target,
    name: BatchName,
    monkeypatch: pytest.MonkeyPatch,
    reached: int,
) -> None:
    commit_rows(target, name, staged(tmp_path / "first", rows_of(0)))
    second = replace(name, number=1)
    with monkeypatch.context() as patch:
        killed_after(patch, reached)
        try:
            commit_rows(target, second, staged(tmp_path / "job", rows_of(1)))
        except Killed:
            assert is_begun(name.folder)
    again = [list(reversed(each)) for each in reversed(rows_of(1))]  # a shuffle came otherwise
    commit_rows(target, second, staged(tmp_path / "job", again))
    assert held(target) == flat(rows_of(0)) + flat(rows_of(1))
    assert not is_begun(name.folder)


def killed(
    tmp_path: Path, target: Target, name: BatchName, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = staged(tmp_path / "job", rows_of(0))
    with monkeypatch.context() as patch:
        killed_after(patch, 4)
        with pytest.raises(Killed):
            commit_rows(target, name, parts)


def test_the_same_rows_do_where_the_staged_files_are_gone(
    tmp_path: Path, target: Target, name: BatchName, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path, target, name, monkeypatch)
    discard(tmp_path / "job")
    other = staged(tmp_path / "job", [list(reversed(each)) for each in rows_of(0)])
    before = held(target)
    with pytest.raises(QueueError, match="expected the same rows again, found others"):
        commit_rows(target, name, other)
    assert held(target) == before
    commit_rows(target, name, staged(tmp_path / "more", rows_of(0), size=2))
    assert held(target) == flat(rows_of(0))


def test_another_writer_in_between_stops_the_batch(
    tmp_path: Path, target: Target, name: BatchName, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path, target, name, monkeypatch)
    with Queue.open(target.path) as queue:
        queue.append(b"of another")
    before = held(target)
    with pytest.raises(QueueError, match=r"batch 0 of query q, 0x[0-9a-f]+ to 0x") as raised:
        commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))
    assert "other excerpts stand there" in str(raised.value)
    assert held(target) == before


def test_a_promotion_in_between_stops_the_batch(
    tmp_path: Path, target: Target, name: BatchName, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path, target, name, monkeypatch)
    store_epochs(target.path, Epochs(promised=3, promised_to=2))
    before = held(target)
    with pytest.raises(QueueError, match="began in epoch 0, and the queue is in epoch 3"):
        commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))
    assert held(target) == before


def test_a_queue_made_anew_stops_the_batch(
    tmp_path: Path, target: Target, name: BatchName, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path, target, name, monkeypatch)
    with Queue.open(target.path) as queue:
        assert queue.identity.replace(new_identity())
    with pytest.raises(QueueError, match=r"the queue was [0-9a-f-]+, and is"):
        commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))


def test_a_copy_is_not_appended_to(tmp_path: Path, target: Target, name: BatchName) -> None:
    commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))
    with Queue.open(target.path) as queue:
        queue.note_follower(is_follower=True)
    with pytest.raises(AppendsToCopy, match="found a copy"):
        commit_rows(target, replace(name, number=1), staged(tmp_path / "job", rows_of(1)))
    assert held(target) == flat(rows_of(0))


def test_two_queries_on_one_checkpoint_are_told(
    tmp_path: Path, target: Target, name: BatchName
) -> None:
    commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))
    with pytest.raises(QueueError, match="two queries have one checkpoint"):
        commit_rows(target, replace(name, query="p"), staged(tmp_path / "job", rows_of(0)))


def test_an_intent_that_cannot_be_read_is_told(
    tmp_path: Path, target: Target, name: BatchName
) -> None:
    commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))
    (name.folder / "0.intent").write_text(json.dumps({"query": "q"}))
    with pytest.raises(QueueError, match=r"0\.intent: expected an intent of this version"):
        commit_rows(target, name, staged(tmp_path / "job", rows_of(0)))


def test_a_batch_without_rows_leaves_the_queue_alone(
    tmp_path: Path, target: Target, name: BatchName
) -> None:
    assert commit_rows(target, name, staged(tmp_path / "job", [[], []])) == 0
    assert not target.path.exists()


def test_old_intents_go(tmp_path: Path, target: Target, name: BatchName) -> None:
    for number in range(derived._KEPT + 10):
        commit_rows(target, replace(name, number=number), staged(tmp_path / "job", [[b"x"]]))
    assert len(list(name.folder.iterdir())) == derived._KEPT + 1


def test_nothing_is_lost_by_a_null(tmp_path: Path) -> None:
    begin(tmp_path / "job")
    batch: Sequence[Any] = [pa.RecordBatch.from_arrays([pa.array([b"x", None])], ["payload"])]
    with pytest.raises(QueueError, match="expected a value in each payload"):
        stage_rows(tmp_path / "job", 0, batch)
