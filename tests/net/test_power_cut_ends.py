"""An end that a power cut has torn behind the mark of what is on the disk comes back by itself.

The power is not cut here: a queue's bytes are changed as a power cut changes them, and its mark is
one of another start of the machine. The laboratory, and tests/faults, do the cutting.
"""

import errno
import logging
import os
import re
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol import StopReason
from cqrepl.protocol.ackpolicy import AckPolicy, OnTimeout
from cqrepl.protocol.capabilities import (
    CORE_CAPABILITIES,
    EPOCHS_CAPABILITY,
    IDENTITY_CAPABILITY,
    LINEAGE_CAPABILITY,
)
from cqrepl.queue import Queue
from cqrepl.queue.acceptance import accept_unproved
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.listing import BOOT_KEY
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.write import heldexcerpts
from cqrepl.replicator.disk import syncedfiles, syncer, unprovedwatch
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.leadership import AckUnknown
from cqrepl.replicator.source import Source, serve_source
from cqrepl.surroundings import Surroundings
from tests.support.copies import assert_same
from tests.support.relay import Relay
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    copied,
    eventually,
    joined,
    live_sink,
    more_excerpts,
    received,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, noon_path, read
from tests.support.tables import is_free
from tests.support.tears import tear

MENDED = "queue 'q': mended: 2 excerpts that a power cut had torn; it is whole again"
COUNT = 300


def patient_source(path: Path) -> AbstractAsyncContextManager[Source]:
    """One that waits for a sink that it knows, as long as a busy machine may take."""
    return serve_source({"q": path}, listen=LOOPBACK, wait_for_seconds=600, **BEATS)


def fill_long(path: Path, count: int) -> Excerpts:
    """Excerpts of several sectors, which a power cut can tear."""
    payloads = [bytes([1 + n % 255]) * (1500 + n) for n in range(count)]
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append(payloads, NOON_MS)
    return read(path)


async def pair(tmp_path: Path) -> Excerpts:
    """A queue and its copy, as both hosts end in order."""
    written = fill_long(tmp_path / "q", COUNT)
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
    return written


def cut_power(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, proved: int | None, torn: Iterable[int]
) -> None:
    """The machine was started again: some excerpts are not whole.

    Args:
        proved: so many excerpts were on the disk; None: there is no mark.
        torn: their places.
    """
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        if proved is None:
            (path / SYNCED_FILE_NAME).unlink()
        else:
            store_synced(path, noon_index(sequence=proved))
    table = TableStore(path / FILE_NAME, writable=True)
    table.value(BOOT_KEY, -1).store(1)
    table.close()
    for kept in path.glob(f"*{CHAIN_SUFFIX}"):
        kept.unlink()  # they never say more than the mark
    for sequence in torn:
        tear(path, noon_index(sequence=sequence), 1, None)


def is_marked(path: Path) -> bool:
    """All of a queue is known to be on the disk, in this start of the machine."""
    mark = load_synced(path)
    with Queue.open(path) as queue:
        end = queue.next_index()
    if mark is None or mark.doubtful:
        return False
    return mark.is_of_this_boot and mark.end == end


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One side, as it is found.

    Args:
        held: so many excerpts, as of a backup; then so many others.
        proved: so many were on the disk as the power was cut; None: no mark tells.
        torn: their places.
    """

    held: int = COUNT
    others: int = 0
    is_cut: bool = True
    proved: int | None = 200
    torn: tuple[int, ...] = ()

    def leave(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if self.held < COUNT:
            fill_long(path.with_name("less"), self.held)
            noon_path(path.with_name("less")).rename(noon_path(path))
        if self.is_cut:
            cut_power(path, monkeypatch, proved=self.proved, torn=self.torn)
        if self.others:
            more_excerpts(path, self.held, self.others)


WHOLE = Left(is_cut=False)


@pytest.mark.usefixtures("unhurried_ends")
@pytest.mark.parametrize(
    ("source_left", "copy_left"),
    [
        (WHOLE, WHOLE),
        (WHOLE, Left(torn=(250, 298))),
        (WHOLE, Left(proved=0, torn=(250, 298))),
        (WHOLE, Left(proved=None, torn=(250, 298))),
        (Left(torn=(250, 298)), WHOLE),
        (Left(proved=250, torn=(298,)), Left(proved=220)),
        (Left(proved=220, torn=(298,)), Left(proved=220)),
        (Left(proved=200, torn=(298,)), Left(proved=220)),
        (Left(held=280, is_cut=False), Left()),
        (Left(held=280, torn=(270,)), WHOLE),
    ],
    ids=str,
)
async def test_what_one_side_has_whole_mends_the_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    source_left: Left,
    copy_left: Left,
) -> None:
    """From its mark on a side gets all once more, and nothing before; then both go on, and are
    known to be on their disks."""
    caplog.set_level(logging.INFO)
    written, path, copy = await pair(tmp_path), tmp_path / "q", tmp_path / "copy"
    source_left.leave(path, monkeypatch)
    copy_left.leave(copy, monkeypatch)
    async with patient_source(path) as source:
        async with live_sink(copy, source.port) as sink:
            await synced(source, written[-1][0])
            await eventually(lambda: source.queues["q"].disk.unproved_from is None)
            await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
            await eventually(lambda: is_free(path))
            more = more_excerpts(path, COUNT, 20)
            await synced(source, more[-1][0])
            assert not source.stops + sink.stops
            if source_left is WHOLE and copy_left is not WHOLE:
                came = sink.queues["q"].received_excerpts
                assert came == COUNT - (copy_left.proved or 0) + 20
    torn_twice = [each for each in (source_left, copy_left) if len(each.torn) == 2]
    assert caplog.messages.count(MENDED) == len(torn_twice)
    for each in (path, copy):
        assert read(each) == written + more
        assert is_marked(each)


@pytest.mark.parametrize(
    ("source_left", "copy_left", "reason", "place"),
    [
        (WHOLE, Left(torn=(100,)), None, 100),
        (Left(held=280, others=5), WHOLE, StopReason.DIVERGED, 280),
        (Left(held=280, is_cut=False), Left(torn=(290,)), StopReason.DAMAGED, 290),
        (Left(torn=(298,)), Left(torn=(250,)), StopReason.DAMAGED, 250),
    ],
    ids=["torn before the mark", "written to since", "none has it whole", "both are torn"],
)
async def test_where_none_has_it_whole_both_stop_and_name_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source_left: Left,
    copy_left: Left,
    reason: StopReason | None,
    place: int,
) -> None:
    """All that comes before goes back, and nothing is overwritten."""
    written, path, copy = await pair(tmp_path), tmp_path / "q", tmp_path / "copy"
    source_left.leave(path, monkeypatch)
    copy_left.leave(copy, monkeypatch)
    before, held = read(path), read(copy)
    async with patient_source(path) as source:
        async with live_sink(copy, source.port) as sink:
            await eventually(lambda: bool(sink.stops and source.stops))
            (own,), (told,) = sink.stops, source.stops
    assert hex(noon_index(sequence=place)) in own.message + told.message
    assert reason in (None, own.reason, told.reason)
    assert ("--accept-unproved" in own.message) == (reason is StopReason.DAMAGED)
    assert read(copy) == held
    assert read(path) == before + (written[280:place] if place == 290 else [])


async def test_a_machine_that_does_not_tell_its_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in some containers: each process takes its start for another one."""
    monkeypatch.setattr(Surroundings, "boot_id", lambda _: b"")
    written, copy = await pair(tmp_path), tmp_path / "copy"
    assert is_marked(copy)
    store_synced(copy, noon_index(sequence=200))
    for kept in copy.glob(f"*{CHAIN_SUFFIX}"):
        kept.unlink()
    tear(copy, noon_index(sequence=250), 1, None)
    caplog.clear()
    monkeypatch.setattr(syncedmark, "_PROCESS", b"the next one")
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS):
        assert sum("does not tell which start" in each for each in caplog.messages) == 1
    async with joined(tmp_path / "q", copy) as (_, sink):
        await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
        assert sink.queues["q"].received_excerpts == COUNT - 200
    assert read(copy) == written
    assert is_marked(copy)


class ForgetfulDisk(Surroundings):
    """A disk that bytes written into a store file by a call do not reach. The first sync of a store
    file after that fails, and no later one tells of it."""

    is_to_fail = False

    def write(self, descriptor: int, data: bytes, position: int) -> None:
        super().write(descriptor, data, position)
        ForgetfulDisk.is_to_fail = True

    def sync(self, descriptor: int) -> None:
        if self.is_to_fail and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".cq4"):
            ForgetfulDisk.is_to_fail = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


async def test_what_was_mended_and_does_not_get_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No mark tells that it is there."""
    written, copy = await pair(tmp_path), tmp_path / "copy"
    cut_power(copy, monkeypatch, proved=200, torn=[250])
    monkeypatch.setattr(ForgetfulDisk, "is_to_fail", False)
    for module in (heldexcerpts, syncedfiles):
        monkeypatch.setattr(module, "surroundings", ForgetfulDisk)
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(copy, source.port) as sink:
            await eventually(lambda: read(copy) == written)
            await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
            await eventually(lambda: "not known to be on the disk" in caplog.text)
    mark = load_synced(copy)
    assert mark is not None
    assert mark.has_failed
    assert mark.doubtful_before(written[-1][0] + 1).start == noon_index(sequence=200)


async def test_a_cut_in_the_middle_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next connection goes on from there."""
    written = await pair(tmp_path)
    cut_power(tmp_path / "copy", monkeypatch, proved=10, torn=[250, 290])
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with Relay(source.port, cut_after=200_000).running() as relay:
            async with live_sink(tmp_path / "copy", relay.port):
                await eventually(lambda: read(tmp_path / "copy") == written)
                assert relay.connections > 1
    assert is_marked(tmp_path / "copy")


async def test_bytes_that_are_no_tear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another byte, behind the mark of a copy: what is there from it on is put aside, nothing of it
    overwritten, and comes again."""
    await pair(tmp_path)
    copy = tmp_path / "copy"
    cut_power(copy, monkeypatch, proved=10, torn=[])
    with Queue.open(copy) as queue:
        batch = queue.tailer(noon_index(sequence=77)).next_batch(count_max=1)
        assert batch is not None
        offset = batch.offsets[0]
    with noon_path(copy).open("r+b") as file:
        file.seek(offset)
        (byte,) = os.pread(file.fileno(), 1, offset)
        file.write(bytes([byte ^ 0x41 or 1]))
    changed = read(copy)
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(copy, source.port) as sink:
            await eventually((copy / "quarantine").exists)
            await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
            await copied(tmp_path / "q", copy)
            assert not sink.stops
    (aside,) = (copy / "quarantine").iterdir()
    assert aside.name == f"{hex(noon_index(sequence=77))}-1"
    assert read(aside)[-(COUNT - 77) :] == changed[77:]


async def test_what_only_the_copy_has_whole_is_not_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both machines lost their power, and the source an excerpt; another sink came first, and took
    it as it stands. A torn one must not take the place of a whole one: both sides stop."""
    written = await pair(tmp_path)
    cut_power(tmp_path / "q", monkeypatch, proved=200, torn=[298])
    cut_power(tmp_path / "copy", monkeypatch, proved=200, torn=[])
    options: dict[str, Any] = {"listen": LOOPBACK, "wait_for": ()} | BEATS
    async with serve_source({"q": tmp_path / "q"}, **options) as source:
        async with live_sink(tmp_path / "new", source.port, host_id=3):
            await acked(source, written[-1][0])
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await eventually(lambda: bool(sink.stops and source.stops))
            (stop,) = sink.stops
            assert stop.reason is StopReason.DIVERGED
            assert hex(noon_index(sequence=298)) in stop.message
    assert read(tmp_path / "copy") == written
    assert not (tmp_path / "copy" / "quarantine").exists()


async def test_the_lost_end_of_a_closed_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file of the next cycle got to the disk, and that of the last one not as a whole. No host
    tells of copies that diverged: the power cut explains it."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 50, 1: 30})
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
    fill(tmp_path / "short", "FAST_DAILY", {0: 45, 1: 1})
    noon_path(tmp_path / "short").replace(noon_path(copy))
    (copy / CLOSED_FILE_NAME).unlink(missing_ok=True)  # it was not noted yet
    cut_power(copy, monkeypatch, proved=40, torn=[])
    async with joined(path, copy) as (source, sink):
        await eventually((copy / "quarantine").exists)
        await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
        await copied(path, copy)
        assert not sink.stops
    (aside,) = (copy / "quarantine").iterdir()
    assert aside.name == f"{hex(noon_index(sequence=45))}-1"
    told = f"what a power cut may have left of it from {hex(noon_index(sequence=45))} on"
    assert sum(told in message for message in caplog.messages) == 1
    assert "diverged" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_source_waits_for_the_sink_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new sink gets nothing of what may be torn before that one has given back what it has."""
    written = await pair(tmp_path)
    cut_power(tmp_path / "q", monkeypatch, proved=200, torn=[298])
    async with patient_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "new", source.port, host_id=3) as new:
            await received(new, 200)
            await trio.sleep(0.3)
            assert new.queues["q"].received_excerpts == 200
            async with live_sink(tmp_path / "copy", source.port):
                await received(new, COUNT)
                await acked(source, written[-1][0])
    assert read(tmp_path / "new") == written


async def test_a_source_waits_for_it_no_longer_than_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no other copy then: what it has goes out as it stands, and that is said."""
    await pair(tmp_path)
    cut_power(tmp_path / "q", monkeypatch, proved=200, torn=[298])
    assert inspect_queue(tmp_path / "q").unproved_from == noon_index(sequence=200)
    options: dict[str, Any] = {"listen": LOOPBACK, "wait_for_seconds": 0.5} | BEATS
    async with serve_source({"q": tmp_path / "q"}, **options) as source:
        async with live_sink(tmp_path / "new", source.port, host_id=3):
            await acked(source, noon_index(sequence=COUNT - 1))
    assert "goes out as it stands" in caplog.text
    assert_same(tmp_path / "q", tmp_path / "new")
    assert inspect_queue(tmp_path / "q").unproved_from is None


async def test_what_may_be_torn_is_returned_once_that_is_declared_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, and the person who was told says so."""
    await pair(tmp_path)
    fill_long(tmp_path / "less", 280)
    noon_path(tmp_path / "less").rename(noon_path(tmp_path / "q"))
    cut_power(tmp_path / "copy", monkeypatch, proved=200, torn=[290])
    assert accept_unproved(tmp_path / "copy").torn == (noon_index(sequence=290),)
    assert is_marked(tmp_path / "copy")
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await copied(tmp_path / "copy", tmp_path / "q")
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_what_is_unproved_stays_so_while_more_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later excerpts get to the disk and are noted; a new process still knows what to ask for."""
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    await pair(tmp_path)
    fill_long(tmp_path / "less", 280)
    noon_path(tmp_path / "less").rename(noon_path(tmp_path / "q"))
    cut_power(tmp_path / "copy", monkeypatch, proved=200, torn=[])
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port):
            with monkeypatch.context() as unproved:
                unproved.setattr(DiskEnd, "prove", lambda *_: None)
                await eventually(lambda: len(read(tmp_path / "q")) == COUNT)
                await eventually(lambda: is_free(tmp_path / "q"))
                more = more_excerpts(tmp_path / "q", COUNT, 20)
                await acked(source, more[-1][0])
        mark = load_synced(tmp_path / "copy")
        assert mark is not None
        assert (mark.end, mark.is_of_this_boot) == (more[-1][0] + 1, True)
        assert mark.doubtful == range(noon_index(sequence=200), noon_index(sequence=COUNT))
        assert inspect_queue(tmp_path / "copy").unproved_from == noon_index(sequence=200)
        tear(tmp_path / "copy", noon_index(sequence=250), 1, None)
        async with live_sink(tmp_path / "copy", source.port) as sink:
            last = more_excerpts(tmp_path / "q", COUNT + 20, 5)
            await acked(source, last[-1][0])
            assert not source.stops + sink.stops
    assert_same(tmp_path / "q", tmp_path / "copy")
    assert is_marked(tmp_path / "copy")


async def test_a_source_that_cannot_compare_is_asked_once_more_behind_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not said what both hold before the return, and there the power cut has torn an
    excerpt of the copy: with another connection that comes again, and is mended."""
    written = await pair(tmp_path)
    fill_long(tmp_path / "less", 280)
    noon_path(tmp_path / "less").rename(noon_path(tmp_path / "q"))
    cut_power(tmp_path / "copy", monkeypatch, proved=200, torn=[210])
    known = CORE_CAPABILITIES - {LINEAGE_CAPABILITY, IDENTITY_CAPABILITY, EPOCHS_CAPABILITY}
    monkeypatch.setattr("cqrepl.protocol.greeting.CORE_CAPABILITIES", known)
    options: dict[str, Any] = {"listen": LOOPBACK, "accept_returns": (2,)} | BEATS
    async with serve_source({"q": tmp_path / "q"}, **options) as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await eventually(lambda: len(read(tmp_path / "q")) == COUNT)
            await eventually(lambda: is_free(tmp_path / "q"))
            more = more_excerpts(tmp_path / "q", COUNT, 1)
            await eventually(lambda: read(tmp_path / "copy") == written + more)
            await eventually(lambda: sink.queues["q"].disk.unproved_from is None)
    assert is_marked(tmp_path / "copy")


async def test_a_stream_without_acknowledgements_is_proved_by_what_its_sink_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair(tmp_path)
    cut_power(tmp_path / "q", monkeypatch, proved=200, torn=[])
    options: dict[str, Any] = {"listen": LOOPBACK, "wait_for": (), "acknowledge": False} | BEATS
    async with serve_source({"q": tmp_path / "q"}, **options) as source:
        async with live_sink(tmp_path / "new", source.port, host_id=3):
            await eventually(lambda: source.queues["q"].disk.unproved_from is None)


async def test_what_stays_unproved_while_the_stream_is_on_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, in the status, and to a wait; and no more once it is proved."""
    written = await pair(tmp_path)
    for path in (tmp_path / "q", tmp_path / "copy"):
        cut_power(path, monkeypatch, proved=200, torn=[])
    monkeypatch.setattr(unprovedwatch, "UNPROVED_SECONDS", 0.5)
    prove = DiskEnd.prove
    monkeypatch.setattr(DiskEnd, "prove", lambda *_: None)
    options: dict[str, Any] = {"listen": LOOPBACK, "wait_for": ()} | BEATS
    policy = AckPolicy(level=AckLevel.SYNCED, timeout_seconds=0, on_timeout=OnTimeout.FAIL)
    async with serve_source({"q": tmp_path / "q"}, **options) as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            here, there = source.queues["q"], sink.queues["q"]
            await eventually(lambda: bool(here.unproved.why and there.unproved.why))
            await trio.sleep(1.5)  # longer than from one look to the next
            await eventually(lambda: bool(here.kept_back()[2]))
            with pytest.raises(AckUnknown) as unknown:
                await here.leading.wait_acked(written[-1][0], policy)
            own, of_sink = unknown.value.hindrances
            assert re.fullmatch("here what is from 0x.* on is unproved .*", own)
            assert re.fullmatch("host 2 keeps synced back: the peer says: .* unproved .*", of_sink)
            for disk in (here.disk, there.disk):
                assert isinstance(disk, DiskEnd)
                prove(disk, written[-1][0] + 1)
            await eventually(lambda: not (here.unproved.why or there.unproved.why))
            await eventually(lambda: not here.kept_back()[2])
    assert caplog.text.count("though the stream is on") == 3, "here, there, and as the peer says"


async def synced(source: Source, index: int) -> None:
    """Waits until the sink has it on its disk, not for ever."""
    with trio.fail_after(SECONDS):
        await source.board().wait_acked(index, level=AckLevel.SYNCED)
