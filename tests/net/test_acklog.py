"""The logs of acknowledgements and of appends: queues of 40-byte entries."""

import time
from pathlib import Path

import pytest

from cqrepl.host import serve_host
from cqrepl.net.errors import Refused
from cqrepl.queue import LayoutMismatch, Queue
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.settings import SinkSettings, SourceSettings, host_settings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.replicas import BEATS, LOOPBACK, acked, at, live_sink, live_source, more_excerpts
from tests.support.samples import fill, read


async def test_entries_add_up(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3000, 1: 20}, per_batch=1000)
    started = time.monotonic_ns()
    async with live_source(tmp_path / "q", ack_log=tmp_path / "log") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
    ended = time.monotonic_ns()
    raw = [data for _, data in read(tmp_path / "log")]
    assert {len(entry) for entry in raw} == {40}
    entries = [ENTRY.unpack(entry) for entry in raw]
    assert sum(entry[3] for entry in entries) == len(written)
    assert sum(entry[4] for entry in entries) == source.queues["q"].sent_bytes
    indexes = [entry[0] for entry in entries]
    assert indexes == sorted(set(indexes))
    assert indexes[-1] == written[-1][0]
    assert set(indexes) <= {index for index, _ in written}
    for _, sent, noted, excerpts, payload_bytes in entries:
        assert started < sent <= noted < ended
        assert excerpts > 0
        assert payload_bytes >= 0


async def test_one_log_for_each_of_several_queues(tmp_path: Path) -> None:
    names = ("a", "b")
    written = {name: fill(tmp_path / name, "FAST_DAILY", {0: 3}) for name in names}
    queues = [tmp_path / name for name in names]
    async with serve_source(queues, listen=LOOPBACK, ack_log=tmp_path / "log", **BEATS) as source:
        copies = {name: tmp_path / "copies" / name for name in names}
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name in names:
                await acked(source, written[name][-1][0], name)
    for name in names:
        entries = [ENTRY.unpack(data) for _, data in read(tmp_path / "log" / name)]
        assert entries[-1][0] == written[name][-1][0]
        assert sum(entry[3] for entry in entries) == 3


async def test_a_sink_logs_what_it_appends(tmp_path: Path) -> None:
    """While catching up, and excerpt by excerpt."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3000}, per_batch=1000)
    started, log = time.monotonic_ns(), tmp_path / "log"
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port, append_log=log):
            await acked(source, written[-1][0])
            for _ in range(3):
                written += more_excerpts(tmp_path / "q", len(written), 1)
                await acked(source, written[-1][0])
    entries = [ENTRY.unpack(data) for _, data in read(log)]
    assert [entry[0] for entry in entries[-3:]] == [index for index, _ in written[-3:]]
    assert sum(entry[3] for entry in entries) == len(written)
    assert sum(entry[4] for entry in entries) == sum(len(data) for _, data in written)
    times = [(sent, noted) for _, sent, noted, _, _ in entries]
    assert times == sorted(times)
    assert all(started < sent <= noted < time.monotonic_ns() for sent, noted in times)


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


@pytest.mark.parametrize("through", ["its path", "a link"])
async def test_a_queue_that_is_replicated_is_no_log(tmp_path: Path, through: str) -> None:
    """Acknowledgements would be replicated, acknowledged and logged without end."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    log = tmp_path / "q"
    if through == "a link":
        log = tmp_path / "log"
        log.symlink_to(tmp_path / "q")
    before = contents(tmp_path / "q")
    with pytest.raises(Refused, match=r"acknowledgements of queue 'q' .*queue 'q' is streamed"):
        async with live_source(tmp_path / "q", ack_log=log):
            raise AssertionError
    with pytest.raises(Refused, match=r"appended excerpts of queue 'q' .*queue 'q' is taken into"):
        async with live_sink(tmp_path / "q", 1, append_log=log):
            raise AssertionError
    assert contents(tmp_path / "q") == before
    assert read(tmp_path / "q") == written


async def test_a_host_keeps_each_directory_for_one_thing(tmp_path: Path) -> None:
    fill(tmp_path / "out", "FAST_DAILY", {0: 3})
    out, into = {"out": tmp_path / "out"}, {"in": tmp_path / "in"}
    settings = host_settings(
        1,
        2,
        source=SourceSettings(ack_log=tmp_path / "log"),
        sink=SinkSettings(append_log=tmp_path / "log"),
        listen=LOOPBACK,
    )
    with pytest.raises(Refused, match="log: the log of acknowledgements of queue 'out' is written"):
        async with serve_host(settings, sources=out, sinks=into):
            raise AssertionError
    plain = host_settings(1, 2, listen=LOOPBACK)
    with pytest.raises(Refused, match=r"queue 'in' cannot be kept in .*: queue 'out' is streamed"):
        async with serve_host(plain, sources=out, sinks={"in": tmp_path / "out"}):
            raise AssertionError
    assert not (tmp_path / "log").exists()


async def test_another_queue_is_no_log(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    others = {"daily": ("FAST_DAILY", {0: 3}), "hourly": ("FAST_HOURLY", {0: 3})}
    for name, (cycle, excerpts) in others.items():
        fill(tmp_path / name, cycle, excerpts)
        before = contents(tmp_path / name)
        with pytest.raises(LayoutMismatch, match="a log of acknowledgements expected for queue"):
            async with live_source(tmp_path / "q", ack_log=tmp_path / name):
                raise AssertionError
        assert contents(tmp_path / name) == before
    async with live_source(tmp_path / "q", ack_log=tmp_path / "log"):
        pass
    with pytest.raises(LayoutMismatch, match="a log of appended excerpts expected for queue"):
        async with live_sink(tmp_path / "copy", 1, append_log=tmp_path / "log"):
            raise AssertionError


async def test_replication_does_not_end_over_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process took the log's append lock: said once, and excerpts go on."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q", ack_log=tmp_path / "log") as source:
        table = TableStore(tmp_path / "log" / FILE_NAME, writable=True)
        lock = table.find(APPEND_LOCK_KEY)
        assert lock is not None
        assert lock.exchange(UNLOCKED, 1)  # process 1 is always alive
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
            written += more_excerpts(tmp_path / "q", 3, 1)
            await acked(source, written[-1][0])
        table.close()
    complaints = [m for m in caplog.messages if "logged no more" in m]
    assert len(complaints) == 1
    assert "process 1" in complaints[0]
    assert read(tmp_path / "copy") == written
    with Queue.open(tmp_path / "log") as log:
        assert log.last_index() is None
