"""Verbs for a running host: `cqrepl run` and the commands that tell it, each a real process."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.files.keptidentity import new_identity
from tests.support.commands import Start, commands, until
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import copied, last_of, more_excerpts
from tests.support.samples import fill

PAGE = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext
    heartbeatIntervalMs: 500
    heartbeatTimeoutMs: 5000
    baseSourcePath: {folder}/source
    baseSinkPath: {folder}/sink
  host1: {{hostId: 1, connectUri: "127.0.0.1:{port}"}}
  host2: {{hostId: 2}}
queues:
{queues}"""
LINE = "  {name}: {{masterId: {master}, acknowledge: true}}\n"
CONNECTED = re.compile(r"host \d at [0-9.:]+: connected")


class Pair:
    """Two hosts of a cluster on this machine; host 1 is the master of "a" and "b"."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.file = folder / "cluster.yaml"
        self.folder = folder
        self.run_dir = folder / "run"
        self._start = start
        self._port = reserved_port()
        self.write(a=1, b=1)

    def write(self, **masters: int) -> None:
        """Writes the file, with these queues and their masters."""
        queues = "".join(LINE.format(name=name, master=at) for name, at in masters.items())
        self.file.write_text(PAGE.format(folder=self.folder, port=self._port, queues=queues))

    async def begin(self) -> None:
        """Starts both, and waits until they are connected."""
        words = ("run", "-c", self.file, "--run-dir", self.run_dir, "--host-id")
        self.one = await self._start(*words, 1)
        await self.one.port()
        self.two = await self._start(*words, 2)
        await self.one.says(CONNECTED)

    async def end(self) -> None:
        for each in (self.one, self.two):
            await each.terminate()

    async def tell(self, *words: object) -> subprocess.CompletedProcess[str]:
        return await trio.to_thread.run_sync(partial(tell, self.run_dir, *words))

    async def told(self, *words: object) -> str:
        """What a command prints, that ends well."""
        done = await self.tell(*words)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    async def state(self, host: int, name: str) -> str:
        done = await self.tell("status", "--host-id", host, "--json")
        said: Any = json.loads(done.stdout)
        (found,) = [each for each in said["queues"] if each["name"] == name]
        return str(found["state"])

    async def state_begins(self, host: int, name: str, start: str) -> None:
        while not (await self.state(host, name)).startswith(start):
            await trio.sleep(0.05)

    def source(self, name: str) -> Path:
        return self.folder / "source" / name

    def sink(self, name: str) -> Path:
        return self.folder / "sink" / name

    async def all_copied(self, *names: str) -> None:
        for name in names:
            await copied(self.source(name), self.sink(name))


def tell(run_dir: Path, *words: object) -> subprocess.CompletedProcess[str]:
    verb, *rest = map(str, words)
    command = [sys.executable, "-P", "-m", "cqrepl", verb, "--run-dir", str(run_dir), *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def two_queues(folder: Path) -> None:
    for name in ("a", "b"):
        fill(folder / "source" / name, "FAST_DAILY", {0: 10})


async def test_pause_and_resume(tmp_path: Path) -> None:
    two_queues(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        await pair.all_copied("a", "b")
        assert await pair.told("pause", "a", "--host-id", 1) == "host 1: queue 'a' is paused\n"
        await pair.two.says(re.compile("queue 'a' pauses: the peer says: paused by operator"))
        assert await pair.state(1, "a") == "paused: by operator"
        end = last_of(pair.sink("a"))
        for name in ("a", "b"):
            more_excerpts(pair.source(name), 10, 10)
        await pair.all_copied("b")
        assert last_of(pair.sink("a")) == end
        said = json.loads(await pair.told("resume", "a", "--host-id", 1, "--json"))
        assert said == {"v": 1, "host": 1, "do": "resume", "queue": "a"}
        await pair.all_copied("a", "b")
        done = await pair.tell("pause", "c", "--host-id", 2)
        assert done.stderr == "cqrepl pause: one of the queues a, b expected, 'c' came\n"
        assert done.returncode == 2
        done = await pair.tell("pause", "a")
        assert done.stderr == "cqrepl pause: several hosts run here (1, 2): --host-id expected\n"
        assert done.returncode == 2
        await pair.end()


async def test_a_copy_with_an_adopted_identity_goes_on(tmp_path: Path) -> None:
    two_queues(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        await pair.all_copied("a", "b")
        await pair.end()
        with Queue.open(pair.sink("a")) as queue:
            assert queue.identity.replace(new_identity())
        await pair.begin()
        adopt = re.compile(r"copy of that one after all: cqrepl (identity adopt \S+ \w+)")
        words = (await pair.two.says(adopt)).group(1).split()
        command = [sys.executable, "-P", "-m", "cqrepl", *words, "--apply"]
        await trio.to_thread.run_sync(partial(subprocess.run, command, check=True))
        more_excerpts(pair.source("a"), 10, 10)
        await pair.told("resume", "a", "--host-id", 2)
        await pair.all_copied("a", "b")
        await pair.state_begins(1, "a", "live")
        await pair.state_begins(2, "a", "live")
        await pair.end()


async def test_quarantine_and_forget(tmp_path: Path) -> None:
    two_queues(tmp_path)
    fill(tmp_path / "sink" / "a", "FAST_DAILY", {0: 5})
    more_excerpts(tmp_path / "sink" / "a", 5, 5, seed=77)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        await pair.state_begins(2, "a", "stopped")
        said = await pair.told("quarantine", "a", "--host-id", 2)
        assert "5 excerpts" in said
        assert "nothing was changed: --apply does it" in said
        done = await pair.tell("quarantine", "a", "--host-id", 1)
        assert (done.returncode, "streamed from here" in done.stderr) == (5, True)
        done = await pair.tell("pause", "a", "--host-id", 2)
        assert (done.returncode, "stopped (diverged)" in done.stderr) == (5, True)
        line = json.loads(await pair.told("quarantine", "a", "--host-id", 2, "--apply", "--json"))
        assert (line["applied"], line["excerpts"], line["queue"]) == (True, 5, "a")
        await pair.all_copied("a", "b")
        assert_same(pair.source("a"), pair.sink("a"))
        done = await pair.tell("forget", "2", "--host-id", 1)
        assert (done.returncode, done.stderr) == (5, "cqrepl forget: host 2 is connected\n")
        await pair.two.terminate()
        await until(lambda: "disconnected" in pair.one.said)
        assert await pair.told("forget", "2") == "host 1: host 2 is forgotten: a, b\n"
        done = await pair.tell("forget", "2")
        assert done.returncode == 2
        await pair.one.terminate()


@pytest.mark.parametrize("words", [("pause", "a"), ("resume", "a"), ("forget", 2)])
def test_without_a_host_they_say_so(tmp_path: Path, words: tuple[object, ...]) -> None:
    done = tell(tmp_path / "run", *words)
    says = f"cqrepl {words[0]}: {tmp_path}/run: no host runs here\n"
    assert (done.returncode, done.stderr) == (3, says)
    done = tell(tmp_path / "run", *words, "--host-id", 7)
    assert (done.returncode, "host-7.sock: no host answers" in done.stderr) == (3, True)
