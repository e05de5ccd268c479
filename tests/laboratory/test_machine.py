"""The disk of a machine: what a kill and a power cut leave of it."""

import os
import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue
from cqrepl.queue.quarantine import quarantine
from cqrepl.surroundings import sync_path, within
from cqrepl.testing.labmachine import NAMES_AFTER_SECONDS, Machine
from cqrepl.testing.pages import PAGE
from cqrepl.testing.story import Story
from tests.support.samples import fill, read


def machine(tmp_path: Path, seed: int = 0) -> Machine:
    return Machine(1, tmp_path / "disk", random.Random(seed), Story())


async def test_a_kill_leaves_all_that_was_stored(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process = host.start("a writer")
    with within(process):
        process.give_time()
        queue = Queue.open_for_append(host.path / "q", create="FAST_DAILY")
        queue.append(b"before")
    old = host.path
    host.killed(process)
    with within(process):
        queue.append(b"by the dead")
        queue.close()
    assert host.path != old
    with within(host.start("a reader")), Queue.open(host.path / "q") as left:
        batch = left.tailer().next_batch()
    assert batch is not None
    assert [bytes(data) for _, data in batch] == [b"before"]
    assert host.disk.resolve() == host.path


async def test_a_dead_process_has_no_locks(tmp_path: Path) -> None:
    host = machine(tmp_path)
    holder, other = host.start("holder"), host.start("other")
    with within(holder):
        queue = Queue.open_for_append(host.path / "q", create="FAST_DAILY")
        queue.append_lock.acquire()
    with within(other), Queue.open_for_append(host.path / "q") as refused:
        assert not refused.append_lock.try_acquire()
    host.killed(holder)
    with within(other), Queue.open_for_append(host.path / "q") as taken:
        assert taken.append_lock.try_acquire()
        taken.append_lock.release()
    queue.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_power_cut_takes_pages_that_were_not_synced_and_no_others(
    tmp_path: Path, seed: int, autojump_clock: MockClock
) -> None:
    host = machine(tmp_path, seed)
    process = host.start("a writer")
    file = host.path / "file"
    synced, later = b"a" * (8 * PAGE), b"b" * PAGE
    file.write_bytes(synced)
    with file.open("r+b") as there:
        process.sync(there.fileno())
        host.write_back()
        await trio.sleep(NAMES_AFTER_SECONDS + 1)
        os.pwrite(there.fileno(), later, 2 * PAGE)
        os.pwrite(there.fileno(), later, 5 * PAGE)
    host.power_cut()
    left = (host.path / "file").read_bytes()
    pages = [left[at : at + PAGE] for at in range(0, len(left), PAGE)]
    assert len(pages) == 8
    for nth, page in enumerate(pages):
        assert page == b"a" * PAGE or (nth in (2, 5) and page == later)


@pytest.mark.parametrize("seed", range(4))
async def test_a_power_cut_leaves_what_has_gone_to_quarantine(
    tmp_path: Path, seed: int, autojump_clock: MockClock
) -> None:
    """The quarantine may hold the only copy of its excerpts; and it is a queue that can be read."""
    host = machine(tmp_path, seed)
    with within(host.start("a writer")):
        written = fill(host.path / "q", "TEST_SECONDLY", {0: 20, 1: 5})
        before, index = host.path, written[10][0]
        folder = quarantine(host.path / "q", index).folder.relative_to(before)
    host.power_cut()
    with within(host.start("a reader")):
        assert read(host.path / folder, index) == written[10:]
        assert read(host.path / "q") == written[:10]


async def test_some_cuts_take_and_some_leave(tmp_path: Path, autojump_clock: MockClock) -> None:
    left = set()
    for seed in range(40):
        host = machine(tmp_path / str(seed), seed)
        (host.path / "file").write_bytes(b"x" * PAGE)
        host.write_back()
        await trio.sleep(NAMES_AFTER_SECONDS + 1)
        (host.path / "file").write_bytes(b"y" * PAGE)
        host.power_cut()
        left.add((host.path / "file").read_bytes()[:1])
    assert left == {b"x", b"y"} or left == {b"x", b"y", b"\0"}


async def test_a_new_boot_after_a_power_cut(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process = host.start("a process")
    before = process.boot_id()
    host.power_cut()
    assert host.start("another").boot_id() != before
    assert process.is_alive(process.pid) is False


async def test_a_process_holds_nothing_of_one_that_had_its_id(tmp_path: Path) -> None:
    """As one of the run before, which was killed; files get the numbers of others, too."""
    left = []
    for number in range(2):
        host = machine(tmp_path / str(number))
        with within(host.start("a writer")):
            left.append(Queue.open_for_append(tmp_path / "q", create="FAST_DAILY"))
            left[-1].append_lock.acquire()
            assert left[-1].append_lock.is_held


async def test_a_full_disk(tmp_path: Path) -> None:
    host = machine(tmp_path)
    host.is_full = True
    with within(host.start("a writer")), pytest.raises(OSError, match="No space left"):
        Queue.open_for_append(host.path / "q", create="FAST_DAILY").append(b"x")


async def test_the_nth_call_to_the_disk_fails(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process = host.start("a writer")
    with (host.path / "file").open("wb") as file:
        host.fail_in(3)
        process.write(file.fileno(), b"1", 0)
        process.sync(file.fileno())
        with pytest.raises(OSError, match="Input/output error"):
            process.write(file.fileno(), b"2", 1)
        process.write(file.fileno(), b"3", 1)
    assert (host.path / "file").read_bytes() == b"13"


async def test_a_process_dies_in_the_middle_of_what_it_does(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process, old = host.start("a writer"), host.path
    (host.path / "file").write_bytes(b"")
    with (host.path / "file").open("r+b") as file:
        process.die_in(2, lambda: host.killed(process))
        process.write(file.fileno(), bytes([1]), 0)
        process.write(file.fileno(), bytes(range(2, 100)), 1)
    assert process.is_alive(process.pid) is False
    left = (host.path / "file").read_bytes()
    assert bytes(range(1, 100)).startswith(left)
    assert 1 < len(left) < 99, "of the write in which it died a part is there"
    assert (old / "file").read_bytes() == bytes(range(1, 100)), "and what the dead did goes nowhere"


async def test_a_write_that_fails_has_written_a_part(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process = host.start("a writer")
    host.is_full = True
    with (host.path / "file").open("w+b") as file:
        with pytest.raises(OSError, match="No space"):
            process.write(file.fileno(), bytes(range(1, 100)), 0)
        left = os.pread(file.fileno(), 200, 0)
    assert bytes(range(1, 100)).startswith(left)
    assert 0 < len(left) < 99


async def test_a_sync_of_names_fails_as_any_call_to_the_disk(tmp_path: Path) -> None:
    host = machine(tmp_path)
    process = host.start("a writer")
    (host.path / "file").write_bytes(b"x")
    host.fail_in(1)
    with within(process):
        with pytest.raises(OSError, match="Input/output"):
            sync_path(host.path)
        sync_path(host.path)


@pytest.mark.parametrize("seed", range(10))
async def test_no_later_sync_brings_back_the_pages_of_a_sync_that_failed(
    tmp_path: Path, seed: int
) -> None:
    host = machine(tmp_path, seed)
    process = host.start("a writer")
    old, new = b"o" * PAGE, b"n" * PAGE
    with (host.path / "file").open("w+b") as file:
        process.write(file.fileno(), old * 4, 0)
        process.sync(file.fileno())
        process.write(file.fileno(), new, PAGE)
        process.write(file.fileno(), new, 3 * PAGE)
        host.fail_in(1)
        with pytest.raises(OSError, match="Input/output"):
            process.sync(file.fileno())
        process.write(file.fileno(), new[:-1] + b"!", 3 * PAGE)
        process.sync(file.fileno())
        host.write_back()
        assert os.pread(file.fileno(), PAGE, PAGE) == new, "the system still shows it"
    host.power_cut()
    assert (host.path / "file").read_bytes() == old * 3 + new[:-1] + b"!"


async def test_a_power_cut_takes_changes_of_names_back_the_last_ones_first(tmp_path: Path) -> None:
    found = set()
    for seed in range(60):
        host = machine(tmp_path / str(seed), seed)
        process, path = host.start("a writer"), host.path
        for name in ("kept", "goes"):
            (path / name).write_bytes(name.encode())
            with (path / name).open("r+b") as file:
                process.sync(file.fileno())
        (path / "new").write_bytes(b"new")
        with (path / "new").open("r+b") as file:
            process.sync(file.fileno())
        descriptor = os.open(path, os.O_RDONLY)
        process.sync_names(descriptor)
        os.close(descriptor)
        process.rename(path / "new", path / "kept")
        process.unlink(path / "goes")
        process.link(path / "kept", path / "second")
        host.power_cut()
        found.add(tuple(sorted((each.name, each.read_bytes()) for each in host.path.iterdir())))
    before = ("goes", b"goes"), ("kept", b"kept"), ("new", b"new")
    renamed = ("goes", b"goes"), ("kept", b"new")
    removed = (("kept", b"new"),)
    linked = ("kept", b"new"), ("second", b"new")
    assert found == {before, renamed, removed, linked}


async def test_a_sync_of_the_directory_keeps_changes_of_names(tmp_path: Path) -> None:
    for seed in range(20):
        host = machine(tmp_path / str(seed), seed)
        process, path = host.start("a writer"), host.path
        (path / "old").write_bytes(b"old")
        with (path / "old").open("r+b") as file:
            process.sync(file.fileno())
        process.rename(path / "old", path / "new")
        descriptor = os.open(path, os.O_RDONLY)
        process.sync_names(descriptor)
        os.close(descriptor)
        host.power_cut()
        assert [each.name for each in host.path.iterdir()] == ["new"]


async def test_work_of_a_thread_takes_time_on_a_slow_disk(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    host = machine(tmp_path)
    host.slow_s = 0.7
    with within(host.start("a writer")):
        await in_thread(lambda: None)
    assert trio.current_time() == pytest.approx(0.7)


async def test_a_directory_that_is_a_link_stays_one(tmp_path: Path) -> None:
    host = machine(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_bytes(b"theirs")
    (host.path / "q").symlink_to(other)
    host.killed(host.start("a process"))
    assert (host.path / "q").is_symlink()
    assert (host.path / "q" / "file").read_bytes() == b"theirs"
