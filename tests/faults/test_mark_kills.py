"""Processes that raise the marks of hosts, killed at any store, or all at once."""

import os
from itertools import count
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.markslots import HOSTS, MarkLevel
from tests.support import forks
from tests.support.samples import fill
from tests.support.tables import fill_keys

STORES = ((Words, "store_4"), (Words, "store_8"), (Words, "exchange_8"), (Mapping, "write"))
PROCESSES = 6


@pytest.fixture(params=[0, KEY_END_MAX], ids=["keys", "side file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    fill_keys(path, request.param)
    return path


def raise_mark(path: Path, host: int, index: int) -> None:
    with Queue.open(path) as queue:
        assert queue.host_marks.raise_to(host, MarkLevel.SENT, index)


def kept(path: Path) -> dict[int, int]:
    with Queue.open(path) as queue:
        found = queue.host_marks.load()
    assert all(marks.get(MarkLevel.ACKNOWLEDGED, -1) == -1 for marks in found.values())
    return {host: marks[MarkLevel.SENT] for host, marks in found.items()}


def die_at(number: int) -> None:
    """From here on this process ends before its store of that number."""
    left = count(1)
    for owner, name in STORES:
        real = getattr(owner, name)

        def dying(*args: object, real: object = real) -> object:
            if next(left) == number:
                os._exit(forks.CRASH_CODE)
            assert callable(real)
            return real(*args)

        setattr(owner, name, dying)


def test_a_mark_is_old_or_new_wherever_a_process_is_killed(path: Path) -> None:
    raise_mark(path, 2, 20)
    for number, host in enumerate(HOSTS[2:], start=1):  # each begins with a host that has no mark

        def work(number: int = number, host: int = host) -> None:
            die_at(number)
            raise_mark(path, host, 5)

        code = forks.run(work)
        found = kept(path)
        assert found.pop(host, 5) == 5
        assert found == {2: 20} | dict.fromkeys(range(3, host), 7)
        if code == 0:
            assert number > 3, "some stores were met"
            return
        assert code == forks.CRASH_CODE
        raise_mark(path, host, 7)
    pytest.fail("a mark takes fewer stores")


def test_processes_that_begin_a_host_s_marks_at_once_lose_none(path: Path) -> None:
    for host in HOSTS[:8]:
        children = []
        for number in range(PROCESSES):

            def work(number: int = number, host: int = host) -> None:
                raise_mark(path, host, 10 + number)

            children.append(forks.start(work))
        assert [forks.finish(child) for child in children] == [0] * PROCESSES
        assert kept(path)[host] == 10 + PROCESSES - 1
