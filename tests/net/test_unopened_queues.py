"""A queue that cannot be opened when its host starts stops alone, is told, and can be resumed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqrepl import Host, HostSettings, Queue
from cqrepl.protocol import StopReason
from cqrepl.queue import NotAQueue, QueueDamaged, QueueError
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from tests.support.copies import assert_same
from tests.support.goldens import unpack
from tests.support.replicas import BEATS, LOOPBACK, at, copied, eventually, more_excerpts
from tests.support.samples import fill, noon_path
from tests.support.threehosts import three_hosts
from tests.support.unreadable import made_unreadable


def cut_table_store(path: Path) -> None:
    os.truncate(path / FILE_NAME, 70)


def garbage_in_table_store(path: Path) -> None:
    (path / FILE_NAME).write_bytes(bytes(range(1, 251)) * 500)


def garbage_in_store_file(path: Path) -> None:
    noon_path(path).write_bytes(bytes(range(1, 251)) * 500)


def cut_store_file(path: Path) -> None:
    os.truncate(noon_path(path), 150)


def foreign_file_name(path: Path) -> None:
    (path / "nonsense.cq4").write_bytes(noon_path(path).read_bytes())


def version_4(path: Path) -> None:
    (path / FILE_NAME).rename(path / "directory-listing.cq4t")


def weekly(path: Path) -> None:
    shutil.rmtree(path)
    unpack("weekly", path.parent / "unpacked").rename(path)


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("not a directory")


def missing(path: Path) -> None:
    shutil.rmtree(path)


def empty(path: Path) -> None:
    missing(path)
    path.mkdir()


def damaged_epochs(path: Path) -> None:
    (path / EPOCH_FILE_NAME).write_bytes(b"x" * 128)


BROKEN = [
    (cut_table_store, StopReason.DAMAGED),
    (garbage_in_table_store, StopReason.DAMAGED),
    (garbage_in_store_file, StopReason.DAMAGED),
    (cut_store_file, StopReason.DAMAGED),
    (damaged_epochs, StopReason.DAMAGED),
    (foreign_file_name, StopReason.REFUSED),
    (version_4, StopReason.REFUSED),
    (weekly, StopReason.REFUSED),
    (a_file, StopReason.REFUSED),
]


class Two:
    """Two hosts with the queues "bad" and "good"; of "bad" one side is broken before they start."""

    def __init__(self, folder: Path) -> None:
        self.source, self.copy = folder / "source", folder / "copy"
        for name in ("bad", "good"):
            fill(self.source / name, "FAST_DAILY", {0: 3})

    def streams(self) -> HostSettings:
        queues = {name: self.source / name for name in ("bad", "good")}
        return HostSettings.of(listen=LOOPBACK, sources=queues, **BEATS)

    def takes(self, port: int | None) -> HostSettings:
        queues = {name: self.copy / name for name in ("bad", "good")}
        return HostSettings.of(connect=at(port), sinks=queues, **BEATS)

    async def copied(self) -> None:
        await copied(self.source / "good", self.copy / "good")


def state_of(host: Host, name: str) -> str:
    queues: Any = snapshot_of(host)["queues"]
    (found,) = [each["state"] for each in queues if each["name"] == name]
    return str(found)


def stop_of(host: Host, name: str) -> Stop:
    (found,) = [stop for stop in host.stops if stop.name == name]
    return found


@pytest.mark.parametrize(
    ("damage", "reason"),
    [*BROKEN, (missing, StopReason.REFUSED), (empty, StopReason.REFUSED)],
)
async def test_one_that_is_streamed(
    damage: Callable[[Path], None], reason: StopReason, tmp_path: Path
) -> None:
    """Its sink hears why, the other queue flows, and `resume` takes what is there by then."""
    two = Two(tmp_path)
    path = two.source / "bad"
    shutil.copytree(path, tmp_path / "backup")
    damage(path)
    async with Host(two.streams()) as one:
        assert stop_of(one, "bad").reason is reason
        assert str(path) in state_of(one, "bad")
        assert state_of(one, "bad").startswith("stopped: ")
        with pytest.raises(QueueError):
            await one.resume("bad")
        assert stop_of(one, "bad").reason is reason
        async with Host(two.takes(one.port)) as other:
            await two.copied()
            await eventually(lambda: bool(other.stops))
            assert stop_of(other, "bad").reason is reason
            assert stop_of(one, "bad").message in stop_of(other, "bad").message
            with pytest.raises(QueueError):
                await one.resume("bad")
            missing(path) if path.is_dir() else path.unlink(missing_ok=True)
            shutil.copytree(tmp_path / "backup", path)
            await one.resume("bad")
            await copied(path, two.copy / "bad")
            await eventually(lambda: not one.stops + other.stops)
            more_excerpts(path, 3, 2)
            await copied(path, two.copy / "bad")
    assert_same(path, two.copy / "bad")


@pytest.mark.parametrize(("damage", "reason"), BROKEN)
async def test_one_that_is_taken_in(
    damage: Callable[[Path], None], reason: StopReason, tmp_path: Path
) -> None:
    two = Two(tmp_path)
    path = two.copy / "bad"
    fill(path, "FAST_DAILY", {0: 3})
    damage(path)
    async with Host(two.streams()) as one:
        async with Host(two.takes(one.port)) as other:
            await two.copied()
            assert stop_of(other, "bad").reason is reason
            assert state_of(other, "bad").startswith("stopped: ")
            await eventually(lambda: bool(one.stops))
            assert stop_of(other, "bad").message in stop_of(one, "bad").message
            with pytest.raises(QueueError):
                await other.resume("bad")
            assert stop_of(other, "bad").reason is reason
            missing(path) if path.is_dir() else path.unlink()
            await other.resume("bad")
            await copied(two.source / "bad", path)
            await eventually(lambda: not one.stops + other.stops)
    assert_same(two.source / "bad", path)


async def test_a_copy_that_another_process_has_locked(tmp_path: Path) -> None:
    two = Two(tmp_path)
    fill(two.copy / "bad", "FAST_DAILY", {0: 3})
    async with Host(two.streams()) as one:
        with Queue.open_for_append(two.copy / "bad") as holder:
            holder.append_lock.acquire()
            async with Host(two.takes(one.port)) as other:
                await two.copied()
                assert stop_of(other, "bad").reason is StopReason.REFUSED
                with pytest.raises(QueueError, match="holds it"):
                    await other.resume("bad")
                holder.append_lock.release()
                await other.resume("bad")
                await copied(two.source / "bad", two.copy / "bad")


@pytest.mark.parametrize("role", ["source", "sink"])
async def test_what_the_machine_keeps_from_being_opened_goes_on_by_itself(
    role: str, tmp_path: Path
) -> None:
    """Also where the host has no other queue in that direction."""
    fill(tmp_path / "bad", "FAST_DAILY", {0: 3})
    fill(tmp_path / "good", "FAST_DAILY", {0: 3})
    bring_back = made_unreadable(noon_path(tmp_path / "bad"))
    bad, good = {"bad": tmp_path / "bad"}, {"good": tmp_path / "good"}
    sources, sinks = (bad, good) if role == "source" else (good, bad)
    settings = HostSettings.of(listen=LOOPBACK, sources=sources, sinks=sinks, **BEATS)
    async with Host(settings) as host:
        assert state_of(host, "bad").startswith("paused: ")
        bring_back()
        if role == "source":
            await eventually(lambda: "bad" in host.source.queues)
        assert not host.stops


async def test_where_none_is_left_the_gravest_error_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "damaged", "FAST_DAILY", {0: 3})
    cut_table_store(tmp_path / "damaged")
    (tmp_path / "file").write_text("not a directory")
    paths = {name: tmp_path / name for name in ("file", "damaged")}
    for settings in (
        HostSettings.of(listen=LOOPBACK, sources=paths),
        HostSettings.of(listen=LOOPBACK, sinks=paths),
        HostSettings.of(
            listen=LOOPBACK,
            sources={"file": paths["file"]},
            sinks={"damaged": paths["damaged"]},
        ),
    ):
        with pytest.raises(QueueDamaged):
            async with Host(settings):
                raise AssertionError
    with pytest.raises(NotAQueue):
        async with serve_source([tmp_path / "file"], listen=LOOPBACK):
            raise AssertionError
    with pytest.raises(QueueDamaged):
        async with serve_sink([tmp_path / "damaged", tmp_path / "file"], listen=LOOPBACK):
            raise AssertionError
    assert "queue 'file' stopped (refused)" in caplog.text


@pytest.mark.parametrize("host_id", [1, 2])
async def test_damaged_epochs_stop_one_queue_of_a_cluster(host_id: int, tmp_path: Path) -> None:
    """Once they are there again, `resume` finds out who leads."""
    async with three_hosts(tmp_path, others=("r",)) as cluster:
        await cluster.hosts[2].leaders.promote("q")
        await cluster.follow(2)
        await cluster.stop(host_id)
        epochs = cluster.at(host_id) / EPOCH_FILE_NAME
        kept = epochs.read_bytes()
        damaged_epochs(cluster.at(host_id))
        await cluster.start(host_id)
        host = cluster.hosts[host_id]
        assert stop_of(host, "q").reason is StopReason.DAMAGED
        await cluster.meet()
        with Queue.open(cluster.at(1).with_name("r")) as other:
            other.append(b"buy 100")
        await copied(cluster.at(1).with_name("r"), cluster.at(2).with_name("r"))
        epochs.write_bytes(kept)
        await host.resume("q")
        await eventually(lambda: "q" in cluster.hosts[2].source.queues)
        await cluster.meet()
        more_excerpts(cluster.at(2), 10, 3)
        await cluster.follow(2)
        assert not any(one.stops for one in cluster.hosts.values())
