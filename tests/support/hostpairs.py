"""Two hosts of a cluster as processes of this machine, told what to do by commands."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tests.support.commands import Start, commands
from tests.support.ports import reserved_port
from tests.support.replicas import copied
from tests.support.samples import fill

PAGE: Final = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext
    heartbeatIntervalMs: 500
    heartbeatTimeoutMs: 60000
{places}
  host1: {{hostId: 1, connectUri: "127.0.0.1:{port}"}}
  host2: {{hostId: 2}}
queues:
{queues}"""
PLACES: Final = """\
    baseSourcePath: {folder}/source
    baseSinkPath: {folder}/sink"""
LINE: Final = "  {name}: {{masterId: {master}, acknowledge: true}}\n"
CONNECTED: Final = re.compile(r"host \d at [0-9.:]+: connected")


class Pair:
    """Two hosts of a cluster on this machine; host 1 is the master of "a" and "b".

    Args:
        base: the one base path of both roles; two if not given.
    """

    def __init__(self, folder: Path, start: Start, base: str | None = None) -> None:
        self._places = PLACES if base is None else f"    basePath: {{folder}}/{base}"
        self.file = folder / "cluster.yaml"
        self.folder = folder
        self.run_dir = folder / "run"
        self._start = start
        self._port = reserved_port()
        self.write(a=1, b=1)

    def write(self, more: str = "", **masters: int) -> None:
        queues = "".join(LINE.format(name=name, master=at) for name, at in masters.items())
        places = self._places.format(folder=self.folder)
        page = PAGE.format(places=places, port=self._port, queues=queues)
        self.file.write_text(page + more)

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
        """The output of a command, which must end with exit code 0 and without an error line."""
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


@asynccontextmanager
async def running_pair(folder: Path) -> AsyncIterator[Pair]:
    """Both hosts, with copies of two queues that are whole; they end in order."""
    two_queues(folder)
    async with commands() as start:
        pair = Pair(folder, start)
        await pair.begin()
        await pair.all_copied("a", "b")
        yield pair
        await pair.end()
