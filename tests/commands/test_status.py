"""The status of a running host, over its socket and with `cqrepl status`."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.commands.statuspage import page
from cqrepl.net import controlsocket, rundirectory
from cqrepl.net.address import Address
from cqrepl.net.controlsocket import NotThere, Silent, ask_status, asked_at
from cqrepl.queue.format.index import Index
from cqrepl.replicator.settings import SinkSettings, SourceSettings
from cqrepl.status.snapshot import snapshot_of
from tests.support.replicas import LOOPBACK, at, eventually
from tests.support.samples import NOON_MS, payloads


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def settings(host_id: int, net: NetSettings, **more: Any) -> HostSettings:
    protocol = ProtocolSettings(host_id=host_id, remote_ids=frozenset({1, 2, 3} - {host_id}))
    return HostSettings(net=net, protocol=protocol, **more)


@asynccontextmanager
async def two_hosts(tmp_path: Path) -> AsyncIterator[tuple[Host, Host]]:
    """Host 1 has "q" with twenty excerpts, host 2 takes it, and host 3 is not there."""
    with Queue.open_for_append(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.appender().append(payloads(20, seed=1), NOON_MS)
    ours = settings(1, NetSettings(listen=Address.parse(LOOPBACK)))
    async with serve_host(ours, sources={"q": tmp_path / "q"}, sinks={}) as one:
        theirs = settings(
            2,
            NetSettings(peers={1: Address.parse(at(one.port))}),
            sink=SinkSettings(masters={"q": 1}),
        )
        async with serve_host(theirs, sources={}, sinks={"q": tmp_path / "copy"}) as two:
            yield one, two


async def asked(run_dir: Path, host_id: int) -> dict[str, Any]:
    return await trio.to_thread.run_sync(ask_status, run_dir, host_id)


async def test_a_host_says_how_far_its_sinks_are(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, two):
        await eventually(lambda: one.source.queues["q"].acknowledged == last(tmp_path / "q"))
        said = json.loads(json.dumps(snapshot_of(one)))
        end = said["queues"][0]["last"]
        assert (said["v"], said["host"], said["process"]) == (1, 1, os.getpid())
        assert said["listens"] == at(one.port)
        assert [each["state"] for each in said["peers"]] == ["connected", "away"]
        assert [each["limit"] for each in said["peers"]] == [None, None]
        (queue,) = said["queues"]
        assert (queue["name"], queue["role"], queue["state"]) == ("q", "source", "live")
        assert (queue["excerpts"], queue["path"]) == (20, str(tmp_path / "q"))
        here, away = queue["sinks"]
        assert (here["state"], here["acknowledged"], here["lag"]) == ("live", end, 0)
        assert (away["state"], away["acknowledged"], away["lag"]) == ("away", None, 20)
        (queue,) = json.loads(json.dumps(snapshot_of(two)))["queues"]
        assert (queue["role"], queue["master"], queue["state"]) == ("sink", 1, "live")
        assert (queue["last"], queue["excerpts"], queue["lag"]) == (end, 20, 0)


def last(path: Path) -> int | None:
    with Queue.open(path) as queue:
        return queue.last_index()


async def test_a_queue_that_stopped_says_why_at_both_hosts(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "copy", create="FAST_DAILY") as queue:
        queue.appender().append(payloads(20, seed=2), NOON_MS)
    async with two_hosts(tmp_path) as (one, two):
        await eventually(lambda: bool(one.stops and two.stops))
        (queue_there,) = json.loads(json.dumps(snapshot_of(two)))["queues"]
        assert queue_there["state"].startswith("stopped: the peer says: diverged at ")
        (queue_here,) = json.loads(json.dumps(snapshot_of(one)))["queues"]
        assert queue_here["sinks"][0]["state"].startswith("stopped: ")


async def test_an_excerpt_counts_once_for_all_sinks_together(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, _):
        theirs = settings(3, NetSettings(peers={1: Address.parse(at(one.port))}))
        async with serve_host(theirs, sources={}, sinks={"q": tmp_path / "second"}) as three:
            end = last(tmp_path / "q")
            marks = one.source.queues["q"].marks_of
            await eventually(lambda: {marks(2).acknowledged, marks(3).acknowledged} == {end})
            (queue,) = json.loads(json.dumps(snapshot_of(one)))["queues"]
            assert queue["excerpts"] == 20
            assert [each["excerpts"] for each in queue["sinks"]] == [20, 20]
            assert {each["bytes"] for each in queue["sinks"]} == {queue["bytes"]}
            (queue,) = json.loads(json.dumps(snapshot_of(three)))["queues"]
            assert (queue["excerpts"], queue["lag"]) == (20, 0)


async def test_a_copy_tells_how_far_it_is_behind_what_its_source_told(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (_, two):
        queue = two.sink.queues["q"]
        await eventually(lambda: queue.known_last == last(tmp_path / "q"))

        def lag() -> object:
            (said,) = json.loads(json.dumps(snapshot_of(two)))["queues"]
            return said["lag"]

        queue.offered_end = Index(queue.offered_end + 5)
        assert lag() == 5
        queue.offered_end = Index(queue.offered_end + (1 << 33))  # a later cycle
        assert lag() is None
        (row,) = [line.split() for line in page(snapshot_of(two)) if line.startswith("q ")]
        assert row[-2:] == ["unknown", "live"]


def test_people_see_the_whole_reason_of_a_stop() -> None:
    """It often ends with the command that helps."""
    reason = f"stopped: diverged at 0x1, {'as two copies hold other excerpts there, ' * 5}"
    reason += "see cqrepl quarantine orders --apply --run-dir /run/cqrepl"
    sink = {"host": 2, "state": reason, "acknowledged": None, "lag": 0}
    rows: list[dict[str, Any]] = [
        {"name": "orders", "role": "sink", "state": reason, "master": 1, "lag": None},
        {"name": "trades", "role": "source", "state": "live", "sinks": [sink]},
    ]
    said = {"host": 1, "process": 1, "listens": None, "peers": [], "queues": rows}
    _, head, *lines = page(said)
    column = head.index("state")
    half = len(lines) // 2
    for part in (lines[:half], lines[half:]):
        assert len(part) > 2
        assert " ".join(line[column:] for line in part) == reason
        assert all(not line[:column].strip() for line in part[1:])


async def test_without_acknowledgements_the_lag_is_of_what_was_sent(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.appender().append(payloads(20, seed=1), NOON_MS)
    quiet = SourceSettings(unacknowledged=frozenset({"q"}))
    ours = settings(1, NetSettings(listen=Address.parse(LOOPBACK)), source=quiet)
    async with serve_host(ours, sources={"q": tmp_path / "q"}, sinks={}) as one:
        theirs = settings(2, NetSettings(peers={1: Address.parse(at(one.port))}))
        async with serve_host(theirs, sources={}, sinks={"q": tmp_path / "copy"}):

            def lag() -> object:
                queues: Any = snapshot_of(one)["queues"]
                return queues[0]["sinks"][0]["lag"]

            await eventually(lambda: lag() == 0)


async def test_it_is_asked_at_a_socket_of_its_owner(run_dir: Path) -> None:
    async with asked_at(run_dir, 7, lambda: {"v": 1, "host": 7}):
        assert await asked(run_dir, 7) == {"v": 1, "host": 7}
        path = rundirectory.socket_path(run_dir, 7)
        assert (path.stat().st_mode & 0o777, run_dir.stat().st_mode & 0o777) == (0o600, 0o700)
        assert rundirectory.known_hosts(run_dir) == [7]
    with pytest.raises(NotThere, match="no host answers"):
        await asked(run_dir, 7)
    assert rundirectory.known_hosts(run_dir) == []


async def test_what_a_dead_host_has_left_is_replaced(run_dir: Path) -> None:
    run_dir.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(rundirectory.socket_path(run_dir, 1)))
    async with asked_at(run_dir, 1, lambda: {"v": 1}):
        assert await asked(run_dir, 1) == {"v": 1}


async def test_a_living_host_keeps_its_socket(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked_at(run_dir, 1, lambda: {"v": 1, "first": True}):
        async with asked_at(run_dir, 1, lambda: {"v": 1, "first": False}):
            assert (await asked(run_dir, 1))["first"] is True
        assert "another process is the host of this id here" in caplog.text
        assert (await asked(run_dir, 1))["first"] is True


async def test_a_directory_that_others_write_to_or_is_too_long_is_not_used(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir.mkdir()
    run_dir.chmod(0o777)
    async with asked_at(run_dir, 1, lambda: {"v": 1}):
        assert list(run_dir.iterdir()) == []
    assert "a directory that only its owner writes to expected" in caplog.text
    async with asked_at(run_dir.with_name("d" * 120), 1, lambda: {"v": 1}):
        pass
    assert caplog.text.count("cqrepl status cannot ask this host") == 2


@pytest.mark.parametrize("line", [b"\n", b"status\n", b"[1]\n", b'{"v": 2}\n', b"x" * 5000])
async def test_who_asks_otherwise_hears_how(run_dir: Path, line: bytes) -> None:
    async with asked_at(run_dir, 1, lambda: {"v": 1}):
        async with await trio.open_unix_socket(rundirectory.socket_path(run_dir, 1)) as stream:
            await stream.send_all(line)
            said = json.loads(await stream.receive_some())
            assert "expected" in said["error"]


async def test_who_says_nothing_keeps_nobody_out(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlsocket, "ASK_SECONDS", 60.0)
    async with asked_at(run_dir, 1, lambda: {"v": 1}):
        path = rundirectory.socket_path(run_dir, 1)
        silent = [await trio.open_unix_socket(path) for _ in range(controlsocket.ASKING_MAX - 1)]
        assert await asked(run_dir, 1) == {"v": 1}
        for each in silent:
            await each.aclose()


def test_the_usual_directory_is_that_of_the_service_or_the_login() -> None:
    usual = rundirectory.usual_directory
    assert usual({"RUNTIME_DIRECTORY": "/run/a:/run/b", "XDG_RUNTIME_DIR": "/x"}) == Path("/run/a")
    assert usual({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/cqrepl")
    assert usual({}).name == f"cqrepl-{os.getuid()}"


def ask(run_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cqrepl", "status", "--run-dir", str(run_dir), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


async def test_the_command(tmp_path: Path, run_dir: Path) -> None:
    async with two_hosts(tmp_path) as (one, two):
        await eventually(lambda: one.source.queues["q"].acknowledged == last(tmp_path / "q"))
        async with (
            asked_at(run_dir, 1, lambda: snapshot_of(one)),
            asked_at(run_dir, 2, lambda: snapshot_of(two)),
        ):
            done = await trio.to_thread.run_sync(ask, run_dir)
            assert done.returncode == 0, done.stderr
            lines = [line.split() for line in done.stdout.splitlines()]
            assert ["host", "1", "process", str(os.getpid())] == [
                e.rstrip(",") for e in lines[0][:4]
            ]
            end = f"{last(tmp_path / 'q'):#x}"
            assert ["q", "source", end, "host", "2", end, "0", "live"] in lines
            assert ["host", "3", "-", "20", "away"] in lines
            assert ["q", "sink", end, "host", "1", "-", "0", "live"] in lines
            done = await trio.to_thread.run_sync(ask, run_dir, "--host-id", "2", "--json")
            assert json.loads(done.stdout)["host"] == 2
            for words in ((), ("--json",)):
                said = await trio.to_thread.run_sync(watched, run_dir, *words)
                assert sum(line.startswith(LOOKED) for line in said) == 2
                assert any(end in line for line in said)
                assert any("host-4.sock: no host answers" in line for line in said)
            done = await trio.to_thread.run_sync(ask, run_dir, "--max-lag", "100")
            assert done.returncode == 1  # host 3 is not there


LOOKED = ("host 1:", '{"v": 1, "host": 1,')


def watched(run_dir: Path, *words: str) -> list[str]:
    """The lines of two looks, at hosts of which one has ended."""
    (run_dir / "host-4.sock").touch()
    command = [sys.executable, "-P", "-m", "cqrepl", "status", "--run-dir", str(run_dir)]
    command += ["--watch", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: list[str] = []
    while sum(line.startswith(LOOKED) for line in said) < 2:
        said.append(process.stdout.readline())
        assert said[-1], said
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    return said


def test_the_command_where_no_host_runs(run_dir: Path) -> None:
    done = ask(run_dir)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"cqrepl status: {run_dir}: no host runs here\n"
    done = ask(run_dir, "--host-id", "4")
    assert done.returncode == 3
    assert done.stderr.startswith(f"cqrepl status: {run_dir}/host-4.sock: no host answers: ")


@contextmanager
def stopped_host(run_dir: Path) -> Iterator[socket.socket]:
    """Host 5 as others see it when it is stopped: connections are made, and nothing is read."""
    run_dir.mkdir(mode=0o700, exist_ok=True)
    path = rundirectory.socket_path(run_dir, 5)
    with socket.socket(socket.AF_UNIX) as place:
        place.bind(str(path))
        place.listen(4)
        yield place


def test_a_stopped_host_is_told_nothing_that_it_would_do_later(run_dir: Path) -> None:
    with stopped_host(run_dir) as place:
        with pytest.raises(Silent, match=r"does not answer within 0\.2 s; it was told nothing"):
            controlsocket.ask(run_dir, 5, {"do": "pause", "queue": "q"}, 0.2)
        place.settimeout(0.0)
        come, _ = place.accept()
        with come:
            heard = come.recv(4096)
        with pytest.raises(BlockingIOError):
            place.accept()
    assert json.loads(heard) == {"v": 1, "do": "hail"}


async def test_a_host_that_takes_its_time_was_told(run_dir: Path) -> None:
    async def never(_asked: controlsocket.Values) -> controlsocket.Values:
        await trio.Event().wait()
        return {}

    async with asked_at(run_dir, 1, lambda: {"v": 1}, never):
        with pytest.raises(Silent, match="it is not known what it has done, or does yet"):
            await trio.to_thread.run_sync(
                controlsocket.ask, run_dir, 1, {"do": "promote", "queue": "q"}, 4.0
            )


async def test_the_command_names_a_host_that_does_not_answer(run_dir: Path) -> None:
    idle: controlsocket.Values = {"v": 1, "host": 1, "process": 1, "listens": None}
    idle |= {"peers": [], "queues": []}
    silent = f"{rundirectory.socket_path(run_dir, 5)}: the host does not answer within 5 s"
    with stopped_host(run_dir):
        async with asked_at(run_dir, 1, lambda: idle):
            done = await trio.to_thread.run_sync(ask, run_dir)
        assert done.stderr == f"cqrepl status: {silent}\n"
        assert (done.returncode, done.stdout[:6]) == (3, "host 1")


@contextmanager
def crowd(path: Path) -> Iterator[list[socket.socket]]:
    """As many connections as wait there, so that there is room for no other."""
    waiting: list[socket.socket] = []
    try:
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            try:
                waiting[-1].connect(str(path))
            except BlockingIOError:
                break
        yield waiting
    finally:
        for each in waiting:
            each.close()


def test_a_stopped_host_that_was_asked_often_is_not_taken_for_one_that_has_ended(
    run_dir: Path,
) -> None:
    """The system lets no other process wait for it."""
    path = rundirectory.socket_path(run_dir, 5)
    with stopped_host(run_dir), crowd(path):
        with pytest.raises(Silent, match=r"does not answer within 0\.2 s; it was told nothing"):
            controlsocket.ask(run_dir, 5, {"do": "pause", "queue": "q"}, 0.2)
        done = ask(run_dir)
    assert done.stderr == f"cqrepl status: {path}: the host does not answer within 5 s\n"
    assert (done.returncode, done.stdout) == (3, "")


def test_who_asks_waits_for_room(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is only slow lets in one of those who wait, and then there is room."""
    path = rundirectory.socket_path(run_dir, 5)
    heard: list[bytes] = []
    with stopped_host(run_dir) as place, crowd(path) as waiting:
        asking, sleep = threading.current_thread(), time.sleep

        def one_is_let_in(seconds: float) -> None:
            if threading.current_thread() is asking:
                place.accept()[0].close()
            else:  # a thread that another test has left
                sleep(seconds)

        monkeypatch.setattr(time, "sleep", one_is_let_in)
        with pytest.raises(Silent):
            controlsocket.ask(run_dir, 5, {"do": "pause", "queue": "q"}, 1.0)
        for each in waiting:
            each.close()
        place.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                come, _ = place.accept()
                with come:
                    heard.append(come.recv(4096))
    assert json.loads(b"".join(heard)) == {"v": 1, "do": "hail"}
