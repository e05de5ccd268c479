"""The locks that a source killed during a back copy leaves behind, and what gives them back."""

import os
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueLocked
from cqrepl.replicator.outgoing.backcopy import back_copy_lock, release_dead_back_copy
from tests.support import forks
from tests.support.samples import layout


def make(path: Path) -> Path:
    with Queue.open_for_append(path, create=layout()):
        return path


def die_in_back_copy(path: Path) -> None:
    queue = Queue.open_for_append(path)
    appender = queue.appender()
    with back_copy_lock(queue).held(0.0), appender.fenced(0.0):
        os._exit(0)


def die_as_sink(path: Path) -> None:
    Queue.open_for_append(path).append_lock.acquire()
    os._exit(0)


def append(path: Path) -> None:
    with Queue.open_for_append(path) as queue:
        queue.appender().append([b"local"], 1_700_000_000_000)


def test_a_dead_back_copy_is_given_back(tmp_path: Path) -> None:
    path = make(tmp_path / "q")
    forks.finish(forks.start(lambda: die_in_back_copy(path)))
    with pytest.raises(QueueLocked):
        append(path)
    assert release_dead_back_copy(path)
    append(path)
    assert not release_dead_back_copy(path)


def test_a_dead_sinks_lock_stays(tmp_path: Path) -> None:
    path = make(tmp_path / "q")
    forks.finish(forks.start(lambda: die_as_sink(path)))
    assert not release_dead_back_copy(path)
    with pytest.raises(QueueLocked):
        append(path)


def test_a_living_back_copy_is_left_alone(tmp_path: Path) -> None:
    path = make(tmp_path / "q")
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        with back_copy_lock(queue).held(0.0), appender.fenced(0.0):
            child = forks.start(lambda: os._exit(release_dead_back_copy(path)))
            forks.finish(child)
            assert queue.append_lock.holder() == os.getpid()


def test_without_a_table_store_there_is_nothing_to_give_back(tmp_path: Path) -> None:
    assert not release_dead_back_copy(tmp_path)
