"""A process that is killed at each system call of writing checkpoints leaves the ones before."""

import os
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.queue import Queue
from cqrepl.queue.files.checkpointfile import PART_SUFFIX, checkpoints_in, passed_by_checkpoints
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.logpos import LogPos
from tests.faults.tracing import die_before, require_strace, write_calls

COUNT = 4
STEP = 10


def state(index: int) -> bytes:
    return b"%d " % index * 20_000  # more than one piece


def work(path: Path, told: int) -> None:
    """Saves states one after the other, and tells of each that has its name."""
    saver = Checkpointer("g0", path, CheckpointSettings(records=1, age_min_ms=None))

    def snapshot(index: int, out: BinaryIO) -> None:
        out.write(state(index))

    for index in range(STEP, STEP * (COUNT + 1), STEP):
        saver.save(LogPos(0, Index(index)), index, index, partial(snapshot, index))
        os.write(told, index.to_bytes(8, "little"))


def test_a_host_that_is_killed_while_it_saves_has_what_it_had_saved(tmp_path: Path) -> None:
    require_strace(tmp_path)
    log = tmp_path / "log"
    whole = tmp_path / "whole"
    Queue.open_for_append(whole, create="FAST_DAILY").close()
    calls = write_calls(partial(work, whole, os.open(os.devnull, os.O_WRONLY)), log)
    seen = set()
    for nth, call in enumerate(calls):
        path = tmp_path / str(nth)
        Queue.open_for_append(path, create="FAST_DAILY").close()
        told = os.pipe()
        _, code = die_before(partial(work, path, told[1]), call, log)
        assert code == -9, f"ended with {code}, expected to die in {call}"
        os.close(told[1])
        with os.fdopen(told[0], "rb") as answers:
            saved = int.from_bytes(answers.read()[-8:], "little")
        left = Checkpointer("g0", path, CheckpointSettings(records=1))
        found = left.newest(None)
        if found is None:
            assert not saved
            continue
        with found.source as source:
            assert saved <= found.pos.index <= saved + STEP
            assert source.read() == state(found.pos.index)
        folder = path / "snapshots"
        assert not any(each.suffix == PART_SUFFIX for each in folder.iterdir())
        assert len(checkpoints_in(folder)) <= 3
        older = passed_by_checkpoints(path)
        assert older is not None
        assert older < found.pos.index
        seen.add(call.name)
    assert {"rename", "fdatasync", "fsync", "pwrite64"} <= seen
