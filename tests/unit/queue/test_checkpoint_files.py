"""Checkpoints are read back as they were written, or not at all."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from cqrepl.queue import Index, QueueDamaged
from cqrepl.queue.files.checkpointfile import (
    checkpoints_in,
    give_name,
    open_checkpoint,
    passed_by_checkpoints,
    put_aside,
    remove_parts,
    write_part,
)
from cqrepl.queue.format.logpos import LogPos

AT = LogPos(3, Index(0x4CDB00000007))


def saved(folder: Path, pos: LogPos = AT, state: bytes = b"state", group: str = "g0") -> Path:
    def write(out: BinaryIO) -> None:
        for at in range(0, len(state), 1000):
            out.write(state[at : at + 1000])

    return give_name(write_part(folder, group, pos, write)).path


@pytest.mark.parametrize("size", [0, 5, 65_536, 300_001])
def test_a_state_is_read_back(tmp_path: Path, size: int) -> None:
    state = os.urandom(size)
    path = saved(tmp_path / "snapshots", state=state)
    assert path.name == "3_4cdb00000007.cqsnap"
    pos, source = open_checkpoint(path, "g0")
    with source:
        assert (pos, source.read()) == (AT, state)


def test_one_without_a_name_counts_as_none(tmp_path: Path) -> None:
    part = write_part(tmp_path, "g0", AT, lambda out: None)
    assert checkpoints_in(tmp_path) == []
    remove_parts(tmp_path)
    assert not part.exists()
    assert checkpoints_in(tmp_path / "none") == []


def test_the_newest_is_the_one_of_the_latest_epoch(tmp_path: Path) -> None:
    for pos in (LogPos(1, Index(100)), LogPos(2, Index(60)), LogPos(1, Index(30))):
        saved(tmp_path, pos)
    assert [each.pos.index for each in checkpoints_in(tmp_path)] == [60, 100, 30]


def test_each_byte_that_is_another_one_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(QueueDamaged, match="expected a checkpoint"):
            open_checkpoint(path, "g0")
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(QueueDamaged, match="expected a checkpoint as it was written"):
            open_checkpoint(path, "g0")


def test_one_of_another_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueueDamaged, match="expected a checkpoint of group 'g1', got 'g0'"):
        open_checkpoint(saved(tmp_path), "g1")


def test_one_that_is_put_aside_counts_no_more(tmp_path: Path) -> None:
    saved(tmp_path)
    (checkpoint,) = checkpoints_in(tmp_path)
    bad = put_aside(checkpoint)
    assert bad.name == "3_4cdb00000007.cqsnap.bad"
    assert checkpoints_in(tmp_path) == []


def test_store_files_go_behind_the_older_one_that_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    assert passed_by_checkpoints(tmp_path) is None
    folder.mkdir()
    assert passed_by_checkpoints(tmp_path) == 0
    paths = [saved(folder, LogPos(1, Index(index))) for index in (10, 20, 30)]
    assert passed_by_checkpoints(tmp_path) == 20
    paths[1].write_bytes(b"damaged")
    assert passed_by_checkpoints(tmp_path) == 10
    paths[2].write_bytes(b"damaged")
    assert passed_by_checkpoints(tmp_path) == 0
