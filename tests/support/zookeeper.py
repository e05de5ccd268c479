"""Real servers of ZooKeeper, for tests, fetched by Maven: one, or an ensemble of three, each of
which may be stopped, frozen and started."""

import re
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import trio

from tests.support.javabuild import JavaUnavailableError, zookeeper_classpath
from tests.support.ports import reserved_port
from tests.support.requirements import require

TICK_MS = 500
SECONDS = 60.0  # for a server to serve
ALONE: Mapping[str, object] = MappingProxyType({})
SERVERS = (1, 2, 3)  # of an ensemble


class ZooKeeper:
    """One server.

    Args:
        folder: for its data and its configuration.
        number, ensemble: its number in an ensemble, and the lines about all servers of that.
    """

    def __init__(
        self, folder: Path, classpath: str, number: int = 0, ensemble: Mapping[str, object] = ALONE
    ) -> None:
        self.number = number
        self.port = reserved_port()
        self._folder = folder
        self._classpath = classpath
        self._process: trio.Process | None = None
        (folder / "data").mkdir(parents=True)
        if ensemble:
            (folder / "data" / "myid").write_text(f"{number}\n")
        lines: dict[str, object] = {
            "tickTime": TICK_MS,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            **ensemble,
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (folder / "zoo.cfg").write_text(text)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it serves."""
        await self.launch()
        await self.serves()

    async def launch(self) -> None:
        command = ["java", "-Xmx128m", "-cp", self._classpath]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        with (self._folder / "log").open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                [*command, str(self._folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def serves(self) -> None:
        with trio.fail_after(SECONDS):
            while not await self.mode():
                await trio.sleep(0.1)

    async def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve."""
        said = b""
        try:
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(b"srvr")
                async for data in stream:
                    said += data
        except (OSError, trio.BrokenResourceError):
            return ""
        found = re.search(rb"^Mode: (\w+)", said, re.MULTILINE)
        return found[1].decode() if found else ""

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """It is gone at once, as by a kill."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


class Ensemble:
    """Three servers, of which two are enough."""

    def __init__(self, folder: Path, classpath: str) -> None:
        ports = {each: f"{reserved_port()}:{reserved_port()}" for each in SERVERS}
        lines = {f"server.{each}": f"127.0.0.1:{ports[each]}" for each in SERVERS}
        self.servers = [ZooKeeper(folder / str(n), classpath, n, lines) for n in SERVERS]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(each.address for each in self.servers)

    async def start(self) -> None:
        """Returns when all of them serve."""
        for each in self.servers:
            await each.launch()
        for each in self.servers:
            await each.serves()

    async def stop(self) -> None:
        for each in self.servers:
            await each.stop()

    async def leader(self) -> ZooKeeper:
        """The one that leads."""
        with trio.fail_after(SECONDS):
            while True:
                for each in self.servers:
                    if await each.mode() == "leader":
                        return each
                await trio.sleep(0.05)


async def _classpath() -> str:
    """The test is skipped where Java, Maven or kazoo are not there."""
    try:
        import kazoo  # noqa: F401  # only whether it is there

        return await trio.to_thread.run_sync(zookeeper_classpath)
    except (ImportError, JavaUnavailableError) as error:
        require("zookeeper", str(error))


@asynccontextmanager
async def zookeeper(folder: Path) -> AsyncIterator[ZooKeeper]:
    """One that runs."""
    server = ZooKeeper(folder, await _classpath())
    try:
        await server.start()
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.stop()


@asynccontextmanager
async def ensemble(folder: Path) -> AsyncIterator[Ensemble]:
    """One that runs."""
    made = Ensemble(folder, await _classpath())
    try:
        await made.start()
        yield made
    finally:
        with trio.CancelScope(shield=True):
            await made.stop()
