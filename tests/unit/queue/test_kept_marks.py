"""The marks of each host: keys of the table store, and slots of the side file beyond."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.kernel import choose, plain
from cqrepl.queue import Queue
from cqrepl.queue.files import atomics
from cqrepl.queue.files.keptmarks import KEY_END_MAX, KEYS_END_WARNED, KeptMarks
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.markslots import HOSTS, SLOT_BYTES, SLOTS_FILE_NAME, MarkLevel
from cqrepl.queue.files.tablestore import FILE_BYTES, FILE_NAME
from cqrepl.surroundings import Surroundings
from tests.support.goldens import unpack
from tests.support.samples import fill
from tests.support.tables import fill_keys, grown_by_another, keys_of, set_word

SENT, ACKNOWLEDGED = MarkLevel.SENT, MarkLevel.ACKNOWLEDGED
KEY_BYTES = 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with Queue.open(path) as queue:
        yield queue


def kept(path: Path) -> dict[int, tuple[int, int]]:
    """The marks sent and acknowledged of each host, as another process finds them."""
    with Queue.open(path) as queue:
        found = queue.host_marks.load()
    return {
        host: (marks.get(SENT, -1), marks.get(ACKNOWLEDGED, -1)) for host, marks in found.items()
    }


def raise_both(marks: KeptMarks, host: int, sent: int, acknowledged: int) -> None:
    assert marks.raise_to(host, SENT, sent)
    assert marks.raise_to(host, ACKNOWLEDGED, acknowledged)


def test_marks_of_hosts_are_keys_of_the_table_store_and_only_rise(queue: Queue, path: Path) -> None:
    marks = queue.host_marks
    assert kept(path) == {}
    raise_both(marks, 2, 10, 5)
    assert marks.raise_to(127, SENT, 7)
    assert marks.raise_to(2, SENT, 3)
    assert kept(path) == {2: (10, 5), 127: (7, -1)}
    keys = keys_of(path)
    assert (keys["cqrepl.2.snt"], keys["cqrepl.2.idx"], keys["cqrepl.127.snt"]) == (10, 5, 7)
    assert not (path / SLOTS_FILE_NAME).exists()


@pytest.mark.parametrize("host", [-1, 0, 128, 1 << 40])
def test_what_is_no_host_has_no_marks(queue: Queue, path: Path, host: int) -> None:
    before = keys_of(path)
    assert not queue.host_marks.raise_to(host, SENT, 5)
    assert keys_of(path) == before
    assert not queue.host_marks._values, "remembered of each id that a peer may have"


def test_keys_that_only_look_like_marks_are_left_alone(path: Path) -> None:
    for key in ("cqrepl.0.snt", "cqrepl.128.idx", "cqrepl.02.snt", "cqrepl.2.rcv", "cqrepl.x.idx"):
        set_word(path, key, 5)
    assert kept(path) == {}


# ---------------------------------------------------------------- the side file


@pytest.mark.parametrize("room", [0, 1, 2, 3, 100])
def test_no_key_ends_behind_the_limit_and_the_rest_is_in_the_side_file(
    queue: Queue, path: Path, room: int
) -> None:
    """Of a host's two marks the first may be the last key, and the second in its slot."""
    fill_keys(path, KEY_END_MAX - (room + 1) * KEY_BYTES + 1)
    wanted = {}
    for host in HOSTS:
        raise_both(queue.host_marks, host, 1000 + host, 500 + host)
        wanted[host] = 1000 + host, 500 + host
    assert kept(path) == wanted
    ours = [key for key in keys_of(path) if key.endswith((".snt", ".idx"))]
    assert len(ours) == room
    assert KEY_END_MAX - KEY_BYTES < queue.host_marks.keys_end() <= KEY_END_MAX
    queue.close()
    with Queue.open(path) as again:  # finds each mark where it is
        for host in HOSTS:
            raise_both(again.host_marks, host, 2000 + host, 0)
    assert kept(path) == {host: (2000 + host, 500 + host) for host in HOSTS}
    assert len(keys_of(path)) == len(set(keys_of(path)))
    assert sum(key.endswith((".snt", ".idx")) for key in keys_of(path)) == room


def test_the_side_file_is_laid_out_as_it_is_described(queue: Queue, path: Path) -> None:
    fill_keys(path, KEY_END_MAX)
    raise_both(queue.host_marks, 3, 0x1234, 0x1233)
    data = (path / SLOTS_FILE_NAME).read_bytes()
    assert len(data) == 128 * 64
    slot = data[3 * 64 : 4 * 64]
    assert slot[:16] == (0x1234).to_bytes(8, "little") + (0x1233).to_bytes(8, "little")
    assert slot[16:] == b"\xff" * 40 + b"cqmark\x01\x03"
    assert not any(data[: 3 * 64])
    assert not any(data[4 * 64 :])


@pytest.mark.parametrize(
    "left",
    [
        bytes(64),
        b"\xff" * 20 + bytes(44),  # a process was killed before the seal
        bytes(16) + b"\xff" * 40 + b"cqma" + bytes(4),
        bytes(16) + b"\xff" * 40 + b"cqmark\x01\x04",  # of another host
        b"\xa5" * 64,
    ],
    ids=["nothing", "begun", "torn", "of another", "other bytes"],
)
def test_a_slot_that_is_not_whole_counts_for_nothing_and_is_made_anew(
    queue: Queue, path: Path, left: bytes
) -> None:
    fill_keys(path, KEY_END_MAX)
    raise_both(queue.host_marks, 3, 30, 29)
    raise_both(queue.host_marks, 5, 50, 49)
    queue.close()
    with (path / SLOTS_FILE_NAME).open("r+b") as file:
        file.seek(3 * SLOT_BYTES)
        file.write(left)
    assert kept(path) == {5: (50, 49)}
    with Queue.open(path) as again:
        assert again.host_marks.raise_to(3, SENT, 7)
    assert kept(path) == {3: (7, -1), 5: (50, 49)}


@pytest.mark.parametrize("length", [0, 5, 3 * SLOT_BYTES + 8, 5 * SLOT_BYTES])
def test_a_side_file_that_was_cut_is_made_whole(queue: Queue, path: Path, length: int) -> None:
    fill_keys(path, KEY_END_MAX)
    raise_both(queue.host_marks, 3, 30, 29)
    raise_both(queue.host_marks, 5, 50, 49)
    queue.close()
    with (path / SLOTS_FILE_NAME).open("r+b") as file:
        file.truncate(length)
    found = {3: (30, 29)} if length >= 4 * SLOT_BYTES else {}
    assert kept(path) == found
    with Queue.open(path) as again:
        raise_both(again.host_marks, 5, 51, 50)
    assert kept(path) == found | {5: (51, 50)}


def test_two_processes_raise_the_marks_of_one_slot(path: Path) -> None:
    fill_keys(path, KEY_END_MAX)
    with Queue.open(path) as one, Queue.open(path) as other:
        raise_both(one.host_marks, 9, 5, 1)
        raise_both(other.host_marks, 9, 3, 2)
        assert one.host_marks.raise_to(9, SENT, 4)
    assert kept(path) == {9: (5, 2)}


# ---------------------------------------------------------------- forgotten


@pytest.mark.parametrize("is_full", [False, True])
def test_a_host_whose_marks_are_minus_one_is_forgotten(
    queue: Queue, path: Path, is_full: bool
) -> None:
    if is_full:
        fill_keys(path, KEY_END_MAX)
    raise_both(queue.host_marks, 2, 20, 19)
    raise_both(queue.host_marks, 4, 40, 39)
    if is_full:
        with (path / SLOTS_FILE_NAME).open("r+b") as file:
            file.seek(2 * SLOT_BYTES)
            file.write(b"\xff" * 16)
    else:
        set_word(path, "cqrepl.2.snt", -1)
        set_word(path, "cqrepl.2.idx", -1)
    assert kept(path) == {4: (40, 39)}
    assert queue.host_marks.raise_to(2, SENT, 3)
    assert kept(path) == {2: (3, -1), 4: (40, 39)}


# ---------------------------------------------------------------- Java makes the file longer


def test_marks_stay_in_place_when_the_table_store_is_made_longer(queue: Queue, path: Path) -> None:
    raise_both(queue.host_marks, 2, 20, 19)
    grown_by_another(path / FILE_NAME)
    assert (path / FILE_NAME).stat().st_size > FILE_BYTES
    raise_both(queue.host_marks, 2, 21, 20)
    raise_both(queue.host_marks, 3, 31, 30)  # beyond the limit
    assert queue.host_marks.raise_to(2, SENT, 22)
    assert queue.raise_sent(22)
    assert kept(path) == {2: (22, 20), 3: (31, 30)}
    assert keys_of(path)["cqrepl.2.snt"] == 22
    assert "cqrepl.3.snt" not in keys_of(path)
    assert queue.host_marks.keys_end() > FILE_BYTES > KEYS_END_WARNED


# ---------------------------------------------------------------- where nothing can be kept


def test_without_a_table_store_nothing_is_kept(tmp_path: Path) -> None:
    path = unpack("no_metadata", tmp_path)
    with Queue.open(path) as queue:
        assert not queue.host_marks.raise_to(2, SENT, 5)
        assert queue.host_marks.load() == {}
        assert queue.host_marks.keys_end() == 0
    assert not (path / SLOTS_FILE_NAME).exists()


def test_without_atomics_nothing_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "KERNEL", plain)
    monkeypatch.setattr(atomics, "_library", lambda: None)
    with Queue.open(path) as queue:
        assert not queue.host_marks.raise_to(2, SENT, 5)


def test_with_something_else_for_a_side_file_only_keys_are_kept(queue: Queue, path: Path) -> None:
    raise_both(queue.host_marks, 2, 20, 19)
    fill_keys(path, KEY_END_MAX)
    (path / SLOTS_FILE_NAME).mkdir()
    assert not queue.host_marks.raise_to(3, SENT, 5)
    raise_both(queue.host_marks, 2, 21, 20)
    assert queue.raise_sent(21)
    assert keys_of(path)["cqrepl.2.snt"] == 21


def test_a_disk_without_room_for_the_side_file(
    queue: Queue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    fill_keys(path, KEY_END_MAX)
    monkeypatch.setattr(Mapping, "reserve", full)
    assert not queue.host_marks.raise_to(3, SENT, 5)


def test_closing_unmaps_the_side_file(queue: Queue, path: Path) -> None:
    fill_keys(path, KEY_END_MAX)
    raise_both(queue.host_marks, 2, 20, 19)
    queue.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_in_the_way_of_the_side_file_is_looked_at_again(
    queue: Queue, path: Path, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks look again once a second at most, as there may be a mark for each
    acknowledgement."""
    fill_keys(path, KEY_END_MAX)
    os.mkfifo(path / SLOTS_FILE_NAME)
    now = time.monotonic()
    monkeypatch.setattr(Surroundings, "monotonic", lambda around: now)
    assert not queue.host_marks.raise_to(2, SENT, 5)
    if not is_first:
        now += 1.5
        assert not queue.host_marks.raise_to(2, SENT, 6)
    (path / SLOTS_FILE_NAME).unlink()
    assert not queue.host_marks.raise_to(2, SENT, 7)
    now += 1.5
    raise_both(queue.host_marks, 2, 8, 7)
    assert kept(path) == {2: (8, 7)}
