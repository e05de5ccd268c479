"""Sources and sinks as processes: how they start, what they say, and how they end."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from cqrepl.console.loglines import port_told
from cqrepl.queue import Queue, QueueLocked
from cqrepl.replicator.queuestate.logs import ENTRY
from tests.support import peer
from tests.support.commands import Command, commands
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import at, copied, held_by_another_process
from tests.support.samples import NOON_MS, fill, layout, noon_index, read
from tests.support.scripted import Scripted, scripted

LISTEN = ("--listen", "127.0.0.1:0")
UNHURRIED = (
    "from cqrepl.net import endpoint, pump; endpoint.END_SECONDS = pump.CLOSE_SECONDS = 60.0"
)
FOR_EVER = "from cqrepl.net import endpoint; endpoint.END_SECONDS = 1000.0"


async def ends(command: Command, *signals: int) -> int:
    for number in signals:
        command.send(number)
    code = await command.exit_code()
    assert "Traceback" not in command.said
    return code


def python(*arguments: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


# the start


@pytest.mark.parametrize(
    ("role", "host"), [("source", "127.0.0.1"), ("sink", "[::1]"), ("source", "localhost")]
)
async def test_listening_line(queue: Path, role: str, host: str) -> None:
    """The very first line, and complete at once: scripts read the port from it."""
    if host == "[::1]" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with commands(120) as start:
        command = await start(role, queue, "--listen", f"{host}:0")
        port = await command.port()
        assert command.said.splitlines()[0] == f"cqrepl {role}: listening on {host}:{port}"
        assert command.said.endswith("\n")
        (await trio.open_tcp_stream(host.strip("[]"), port)).socket.close()
        assert await ends(command, signal.SIGTERM) == 0


async def test_several_addresses(tmp_path: Path) -> None:
    """A source that dials two sinks, and one that listens on two addresses, serve both of them."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    ids = {name: ("--host-id", 2 + at) for at, name in enumerate("abcd")}
    async with commands(120) as start:
        takes = {
            each: await start("sink", f"q={tmp_path / each}", *ids[each], *LISTEN) for each in "ab"
        }
        dials = [("--connect", at(await each.port())) for each in takes.values()]
        two = ("--remote-id", 2, "--remote-id", 3)
        dialler = await start("source", tmp_path / "q", *dials[0], *dials[1], *two)
        listens = await start("source", tmp_path / "q", *LISTEN, *LISTEN)
        lines = await listens.says(re.compile(r".* on .*:(\d+)\n.* on .*:(\d+)\n"))
        assert lines[1] != lines[2]
        for name, port in zip("cd", lines.groups(), strict=True):
            place = at(int(port))
            takes[name] = await start(
                "sink", f"q={tmp_path / name}", *ids[name], "--connect", place
            )
        for name in takes:
            await copied(tmp_path / "q", tmp_path / name)
        for command in (dialler, listens, *takes.values()):
            await command.terminate()


async def test_all_addresses_are_listened_on_or_none(queue: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = at(taken.getsockname()[1])
        done = python("-m", "cqrepl", "source", str(queue), *LISTEN, "--listen", place)
    assert done.returncode == 3
    assert done.stderr == f"cqrepl source: cannot listen on {place}: the port is in use\n"


def test_version() -> None:
    done = python("-m", "cqrepl", "--version")
    assert done.returncode == 0
    assert re.fullmatch(r"cqrepl \d+\.\d+\.\d+ \(kernel: (python|native)\)\n", done.stdout)
    assert done.stderr == ""


def test_a_kernel_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CQREPL_KERNEL", "fast")
    done = python("-m", "cqrepl", "--version")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "cqrepl: CQREPL_KERNEL: expected auto, native or python, found 'fast'"


def loaded_by(program: str) -> set[str]:
    """Top-level names and sub-packages that a program has loaded at its end."""
    tail = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = python("-c", f"{program}\n{tail}")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_no_sub_package() -> None:
    loaded = loaded_by("import cqrepl")
    assert {name for name in loaded if name.startswith("cqrepl")} == {"cqrepl", "cqrepl._version"}
    assert not loaded & {"trio", "construct", "ruamel", "click", "wire"}


def test_version_loads_nothing_slow() -> None:
    loaded = loaded_by(
        "import sys, runpy; sys.argv = ['cqrepl', '--version']\n"
        "try: runpy.run_module('cqrepl', run_name='__main__')\n"
        "except SystemExit: pass"
    )
    assert "click" in loaded
    slow = {"trio", "construct", "ruamel", "ruamel.yaml", "cqrepl.net", "cqrepl.queue", "asyncio"}
    assert not loaded & slow


def test_replication_needs_no_construct_and_no_yaml() -> None:
    assert not loaded_by("import cqrepl; cqrepl.serve_source") & {"construct", "ruamel.yaml"}


def test_public_names_are_there() -> None:
    done = python("-c", "from cqrepl import *; print(Queue, Sink, serve_source, __version__)")
    assert done.returncode == 0, done.stderr
    done = python("-c", "import cqrepl; cqrepl.nothing")
    assert "module 'cqrepl' has no attribute 'nothing'" in done.stderr


# signals


async def test_signal_while_dialling(queue: Path) -> None:
    async with commands(120) as start:
        command = await start("sink", queue, "--connect", at(reserved_port()))
        await command.says(re.compile("Connection refused; trying again"))
        assert await ends(command, signal.SIGTERM) == 0


async def test_signal_on_both_sides_of_a_connection(queue: Path, tmp_path: Path) -> None:
    """The sink ends first, in order; the source stays, and ends when it is told to."""
    async with commands(120, before=UNHURRIED) as start:
        source = await start("source", queue, *LISTEN)
        sink = await start("sink", f"q={tmp_path / 'copy'}", "--connect", at(await source.port()))
        await source.says(re.compile("connected"))
        await copied(queue, tmp_path / "copy")
        assert await ends(sink, signal.SIGTERM) == 0
        await source.says(re.compile("disconnected: ended in order by the peer"))
        assert await ends(source, signal.SIGTERM) == 0


async def test_a_sink_that_owes_acknowledgements_is_not_waited_for_long(queue: Path) -> None:
    async with commands(120) as start:
        source = await start("source", queue, *LISTEN)
        async with scripted(await source.port(), 2, 1) as sink:
            await takes_all(sink)
            assert await ends(source, signal.SIGINT) == 130


async def takes_all(sink: Scripted) -> tuple[int, int]:
    """The five excerpts of the queue come in; the nano time of the last one, and the cid."""
    _, cid = await sink.answer(0)
    await sink.send(peer.end_of_stream(cid))
    return (await sink.hear("re", 5))[-1]["re"][2], cid


async def test_acknowledgements_that_are_owed_are_waited_for(queue: Path) -> None:
    """As long as it takes here; a source that is about to end lets no sink in any more."""
    async with commands(120, before=FOR_EVER) as start:
        source = await start("source", queue, *LISTEN)
        async with scripted(await source.port(), 2, 1) as sink:
            ns, cid = await takes_all(sink)
            port = await source.port()
            assert await answers(port)
            source.send(signal.SIGTERM)
            while await answers(port):
                pass
            assert not source.ended.is_set()
            await sink.send(peer.acknowledgement(noon_index(sequence=4), ns, cid))
            await source.succeeds()
    with Queue.open(queue) as there:
        assert there.acknowledged_index == noon_index(sequence=4)


async def answers(port: int) -> bool:
    """True when a new host is answered; false when its connection is closed without a word."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with suppress(trio.BrokenResourceError):  # a reset is as good
            await stream.send_all(peer.uber(3, 1))
            return bool(await stream.receive_some())
        return False


async def test_second_signal_ends_at_once(queue: Path) -> None:
    async with commands(120, before=FOR_EVER) as start:
        source = await start("source", queue, *LISTEN)
        async with scripted(await source.port(), 2, 1) as sink:
            await takes_all(sink)
            ended = await ends(source, signal.SIGTERM, signal.SIGINT)
    assert ended in (0, 130)  # the code of the one that was taken first


# ends of their own


async def test_until_caught_up_and_once(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 2000, 1: 3}, per_batch=1000)
    async with commands(120) as start:
        source = await start(
            *("source", tmp_path / "q", *LISTEN, "--until-caught-up"),
            *("--ack-log", tmp_path / "acks"),
        )
        sink = await start(
            *("sink", f"q={tmp_path / 'copy'}", "--once", "--connect", at(await source.port())),
            *("--append-log", tmp_path / "appends"),
        )
        await source.succeeds()
        await sink.succeeds()
    came = f"queue 'q': 2,003 excerpts came, the copy ends at {written[-1][0]:#x}"
    assert sink.said.splitlines()[-1] == f"cqrepl sink: {came}"
    assert read(tmp_path / "copy") == written
    for log in ("acks", "appends"):
        entries = [ENTRY.unpack(data) for _, data in read(tmp_path / log)]
        assert sum(entry[3] for entry in entries) == len(written)
        assert sum(entry[4] for entry in entries) == sum(len(data) for _, data in written)
        assert entries[-1][0] == written[-1][0]
        assert all(0 < sent <= noted < time.monotonic_ns() for _, sent, noted, _, _ in entries)
    with Queue.open_for_append(tmp_path / "copy") as copy:
        assert copy.append_lock.try_acquire()


async def test_until_caught_up_with_an_empty_queue_waits_for_a_sink(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()):
        pass
    async with commands(120) as start:
        source = await start("source", tmp_path / "q", *LISTEN, "--until-caught-up")
        port = await source.port()
        async with scripted(port, 2, 1) as sink:
            _, cid = await sink.answer(0)
            with trio.move_on_after(0.1):
                await source.exit_code()
            assert not source.ended.is_set()  # a sink that has not said `eos` does not count
            await sink.send(peer.end_of_stream(cid))
            await source.succeeds()


async def test_until_caught_up_does_not_wait_for_later_excerpts(queue: Path) -> None:
    """The excerpts that the queue held at the start count, however many are appended meanwhile."""
    async with commands(120) as start:
        source = await start("source", queue, *LISTEN, "--until-caught-up")
        async with scripted(await source.port(), 2, 1) as sink:
            with Queue.open_for_append(queue) as here:
                here.appender().append([b"late"], NOON_MS)
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            ns = (await sink.hear("re", 6))[-1]["re"][2]
            await sink.send(peer.acknowledgement(noon_index(sequence=4), ns, cid))
            await source.succeeds()


async def test_once_does_not_end_with_a_cut(queue: Path, tmp_path: Path) -> None:
    async with commands(120) as start:
        port = reserved_port()
        source = await start("source", queue, "--listen", at(port))
        await source.port()
        sink = await start("sink", f"q={tmp_path / 'copy'}", "--once", "--connect", at(port))
        await copied(queue, tmp_path / "copy")
        await source.kill()
        # who, and what, in plain words: the system may have the connection end in either way
        lost = "the connection ended without a goodbye|connection broken: [A-Z]"
        await sink.says(re.compile(f"host 1 at {at(port)}: disconnected: ({lost})"))
        again = await start("source", queue, "--listen", at(port), "--until-caught-up")
        await again.succeeds()
        await sink.succeeds()


@pytest.mark.parametrize("source_stops", [True, False])
async def test_stopped_queues_end_the_command(tmp_path: Path, source_stops: bool) -> None:
    """One line with both indexes, once every queue has stopped; exit code 1 of what is to end."""
    held = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with commands(120) as start:
        if source_stops:
            command = await start(
                "source", tmp_path / "q", *LISTEN, "--until-caught-up", "--accept-returns", "2"
            )
            async with scripted(await command.port(), 2, 1) as sink:
                _, cid = await sink.answer(noon_index(sequence=7))
                await sink.send(peer.excerpts(noon_index(sequence=6), b"x", cid=cid))
                code = await command.exit_code()
        else:
            command = await start("sink", f"q={tmp_path / 'q'}", *LISTEN, "--once")
            async with scripted(await command.port(), 1, 2) as source:
                await source.offer_held("q", 901, held)
                await source.send(peer.excerpts(noon_index(sequence=6), b"x", cid=901))
                code = await command.exit_code()
    assert code == 1
    (line,) = [each for each in command.said.splitlines() if "stopped (gap)" in each]
    for sequence in (5, 6):
        assert f"{noon_index(sequence=sequence):#x}" in line
    assert "Traceback" not in command.said


async def test_once_ends_with_the_code_of_what_has_stopped(tmp_path: Path) -> None:
    """One queue is refused, and the other one comes whole."""
    fill(tmp_path / "a", "FAST_DAILY", {0: 5})
    fill(tmp_path / "b", "FAST_DAILY", {0: 5})
    fill(tmp_path / "copy-b", "FAST_HOURLY", {0: 5})
    async with commands(120) as start:
        source = await start("source", tmp_path / "a", tmp_path / "b", *LISTEN)
        copies = (f"a={tmp_path / 'copy-a'}", f"b={tmp_path / 'copy-b'}")
        sink = await start("sink", *copies, "--connect", at(await source.port()), "--once")
        await copied(tmp_path / "a", tmp_path / "copy-a")
        assert await ends(source, signal.SIGTERM) == 0
        assert await sink.exit_code() == 5
    assert "queue 'b' stopped (refused)" in sink.said


async def test_damage_met_while_streaming_is_exit_code_4(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.appender().append([b"a" * 100] * 10, NOON_MS)
    async with commands(120) as start:
        source = await start("source", tmp_path / "q", *LISTEN)
        port = await source.port()
        (file,) = (tmp_path / "q").glob("*.cq4")
        data = file.read_bytes()
        with file.open("r+b") as store:
            store.seek(data.index(b"a" * 100) + 100)
            store.write(b"\xff\xff\xff\x3f")
        await start("sink", f"q={tmp_path / 'copy'}", "--connect", at(port))
        assert await source.exit_code() == 4
    assert str(file) in source.said


# what is not there


def without_atomics(*arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-c", WITHOUT_ATOMICS, *map(str, arguments))


WITHOUT_ATOMICS = """
import ctypes, ctypes.util, os, sys
os.environ["CQREPL_KERNEL"] = "python"
load = ctypes.CDLL
def only_others(name, *more, **options):
    if name and "atomic" in name:
        raise OSError("not installed")
    return load(name, *more, **options)
ctypes.CDLL, ctypes.util.find_library = only_others, lambda name: None
from cqrepl.__main__ import main
main()
"""


@pytest.mark.parametrize("command", ["sink new", "sink q", "source q --ack-log", "demo --count 9"])
def test_without_libatomic(queue: Path, tmp_path: Path, command: str) -> None:
    """A command that writes says in one line, at once, what to install."""
    arguments: Sequence[object] = [
        *(tmp_path / word if word in ("new", "q") else word for word in command.split()),
        *([tmp_path / "log"] if "--ack-log" in command else []),
        *(() if "demo" in command else LISTEN),
    ]
    done = without_atomics(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "libatomic1" in line
    assert line.startswith(f"cqrepl {command.split()[0]}: ")
    assert not (tmp_path / "new").exists()


async def test_a_source_needs_no_libatomic(queue: Path, tmp_path: Path) -> None:
    """It only reads; there are no marks then."""
    command = [sys.executable, "-P", "-c", WITHOUT_ATOMICS, "source", str(queue), *LISTEN]
    source = await trio.lowlevel.open_process(
        [*command, "--until-caught-up"], stderr=subprocess.PIPE
    )
    assert source.stderr is not None
    try:
        with trio.fail_after(120):
            said = ""
            while (port := port_told(said)) is None:
                data = bytes(await source.stderr.receive_some())
                assert data, said
                said += data.decode()
            async with commands(120) as start:
                sink = await start(
                    "sink", f"q={tmp_path / 'copy'}", "--once", "--connect", at(port)
                )
                await sink.succeeds()
            assert await source.wait() == 0
    finally:
        source.kill()
        await source.wait()
        await source.stderr.aclose()
    assert_same(queue, tmp_path / "copy")


async def test_sink_takes_over_from_a_dead_process(queue: Path) -> None:
    """Its lock is still there, and no process holds it any more."""
    with Queue.open_for_append(queue) as here:
        here.note_follower(is_follower=True)
    with held_by_another_process(queue) as pid:
        with Queue.open_for_append(queue) as here:
            assert here.append_lock.holder() == pid
            with pytest.raises(QueueLocked):
                here.append_lock.acquire()
        async with commands(120) as start:
            refused = await start("sink", queue, *LISTEN)
            assert await refused.exit_code() == 5
            assert f"process {pid} holds it" in refused.said
    async with commands(120) as start:
        sink = await start("sink", queue, *LISTEN)
        await sink.port()
        with Queue.open_for_append(queue) as here:
            assert here.append_lock.holder() == sink.pid
        await sink.terminate()
    with Queue.open_for_append(queue) as here:
        assert here.append_lock.holder() is None


UNREACHABLE = """
import sys
from cqrepl.net import dialer
dialer.GIVE_UP_SECONDS = float(sys.argv.pop(1))
from cqrepl.__main__ import main
main()
"""


@pytest.mark.long
def test_unreachable_for_30_seconds(queue: Path) -> None:
    start = time.monotonic()
    done = python(
        *("-m", "cqrepl", "sink", str(queue), "--once", "--connect", at(reserved_port())),
        seconds=300,
    )
    assert done.returncode == 3
    assert time.monotonic() - start > 24


async def test_dialler_without_a_limit_goes_on(queue: Path) -> None:
    """Longer than the limit of ordinary excerpts would be here."""
    command = [sys.executable, "-P", "-c", UNREACHABLE, "0.2", "sink", str(queue)]
    process = await trio.lowlevel.open_process(
        [*command, "--connect", at(reserved_port())], stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        said = await process.stderr.receive_some()
        assert said.endswith(b"Connection refused; trying again\n")
        with trio.move_on_after(0.8) as waited:
            await process.wait()
        assert waited.cancelled_caught
        process.terminate()
        assert await process.wait() == 0
    finally:
        process.kill()
        await process.wait()
        await process.stderr.aclose()
