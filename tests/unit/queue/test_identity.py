"""A queue's identity: how it is written, and how it is kept in the table store."""

import os
import threading
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.keptidentity import HIGH_KEY, LOW_KEY, KeptIdentity, new_identity
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.tablestore import FILE_NAME, PAGE_BYTES
from cqrepl.queue.format.identity import Identity, identity_of, longs_of, parse_identity
from cqrepl.surroundings import Surroundings, within
from tests.support.disks import FailingDisk, SlowDisk
from tests.support.samples import layout
from tests.support.tables import fill_keys, keys_of, set_word

ONE = parse_identity("00112233445566778899aabbccddeeff")
OTHER = parse_identity("ffffffffffffffff0000000000000001")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Queue.open_for_append(tmp_path, create=layout()).close()
    return tmp_path


def kept(path: Path) -> KeptIdentity:
    return KeptIdentity(path / FILE_NAME)


def fail() -> Identity:
    raise AssertionError("it has one")


@pytest.mark.parametrize("identity", [ONE, OTHER])
def test_two_longs_and_back(identity: Identity) -> None:
    high, low = longs_of(identity)
    assert -(1 << 63) <= high < 1 << 63
    assert identity_of(high, low) == identity


def test_the_spelling_is_one() -> None:
    assert parse_identity(ONE.upper()) == ONE


@pytest.mark.parametrize(
    "text", ["", "00", ONE[:-1], ONE + "0", "g" * 32, "0" * 32, "0" * 16 + "1" * 16, " " * 32]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="an identity"):
        parse_identity(text)


def test_a_half_that_is_zero_is_no_identity() -> None:
    assert identity_of(0, 5) is identity_of(5, 0) is None


def test_a_half_of_zero_is_not_drawn() -> None:
    class Machine(Surroundings):
        drawn = 0

        def random_bytes(self, count: int) -> bytes:
            self.drawn += 1
            return bytes(count) if self.drawn < 3 else bytes.fromhex(ONE)

    with within(Machine()):
        assert new_identity() == ONE


def test_a_reader_makes_none(path: Path) -> None:
    before = (path / FILE_NAME).read_bytes()
    assert kept(path).load() is None
    assert (path / FILE_NAME).read_bytes() == before


def test_nothing_there(tmp_path: Path) -> None:
    assert kept(tmp_path).load() is None
    assert kept(tmp_path).keep(fail) is None
    assert not kept(tmp_path).replace(ONE)
    assert not list(tmp_path.iterdir())


def test_the_first_one_stays(path: Path) -> None:
    assert kept(path).keep(lambda: ONE) == ONE
    assert kept(path).keep(fail) == ONE
    assert kept(path).load() == ONE
    with Queue.open(path) as queue:
        assert queue.identity.load() == ONE
    assert (keys_of(path)[HIGH_KEY], keys_of(path)[LOW_KEY]) == longs_of(ONE)


def test_another_one(path: Path) -> None:
    assert kept(path).replace(ONE)
    assert kept(path).replace(OTHER)
    assert kept(path).load() == OTHER


def test_half_of_one_is_none(path: Path) -> None:
    set_word(path, LOW_KEY, 5)
    assert kept(path).load() is None
    set_word(path, HIGH_KEY, 0)
    assert kept(path).load() is None
    assert kept(path).keep(lambda: ONE) == ONE


def test_no_room(path: Path) -> None:
    fill_keys(path, KEY_END_MAX)
    assert kept(path).keep(fail) is None
    assert not kept(path).replace(ONE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_may_be_written(path: Path) -> None:
    (path / FILE_NAME).chmod(0o444)
    assert kept(path).keep(fail) is None


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("had", [None, OTHER])
def test_what_a_power_cut_can_leave(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_apart: bool, had: Identity | None
) -> None:
    """At each sync each page is there as it was at the last one, or as it is now."""
    set_word(path, HIGH_KEY, 0)
    if is_apart:
        fill_keys(path, PAGE_BYTES + 64)
    set_word(path, LOW_KEY, 0)
    if had is not None:
        kept(path).replace(had)
    file = path / FILE_NAME
    durable = file.read_bytes()
    seen: set[Identity | None] = set()
    sync = Mapping.sync

    def noted(mapping: Mapping, start: int, end: int) -> None:
        nonlocal durable
        now = file.read_bytes()
        pages = [slice(at, at + PAGE_BYTES) for at in range(0, len(now), PAGE_BYTES)]
        changed = [page for page in pages if now[page] != durable[page]]
        for mask in range(1 << len(changed)):
            left = bytearray(durable)
            for nth, page in enumerate(changed):
                if mask >> nth & 1:
                    left[page] = now[page]
            copy = path / "left"
            copy.write_bytes(left)
            seen.add(KeptIdentity(copy).load())
        durable = now
        sync(mapping, start, end)

    monkeypatch.setattr(Mapping, "sync", noted)
    assert kept(path).replace(ONE)
    assert seen == {None, had, ONE}
    assert durable == file.read_bytes()


@pytest.mark.parametrize("fails", [False, True])
def test_a_slow_disk_holds_up_no_other_file(path: Path, fails: bool) -> None:
    """Meanwhile there is no file. A second thread that is to give the queue an identity waits, and
    finds that of the first. Where the first one's does not get to the disk, the second thread does
    what the first could not."""
    disk, found = SlowDisk(fails=fails), list[Identity | None]()

    def first() -> None:
        with within(disk):
            if fails:
                with pytest.raises(OSError, match="Input/output"):
                    kept(path).keep(lambda: ONE)
            else:
                found.append(kept(path).keep(lambda: ONE))

    threads = [
        threading.Thread(target=first),
        threading.Thread(target=lambda: found.append(kept(path).keep(lambda: OTHER))),
    ]
    threads[0].start()
    disk.begun.wait()
    threads[1].start()
    assert kept(path).load() is None
    with Queue.open(path) as queue:  # files are opened, mapped and closed
        assert queue.identity.load() is None
    disk.goes_on.set()
    for thread in threads:
        thread.join()
    assert found == ([OTHER] if fails else [ONE, ONE])
    assert kept(path).load() == found[0]


def test_one_that_was_there_stays_though_a_sync_fails(path: Path) -> None:
    kept(path).replace(ONE)
    with within(FailingDisk()), pytest.raises(OSError, match="Input/output"):
        kept(path).keep(fail)
    assert kept(path).load() == ONE
