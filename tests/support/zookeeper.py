"""Real servers of ZooKeeper, for tests: one, fetched by Maven, that may be stopped and started."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.javabuild import JavaUnavailableError, zookeeper_classpath
from tests.support.ports import reserved_port
from tests.support.requirements import require

TICK_MS = 500
SECONDS = 60.0  # for a server to answer


class ZooKeeper:
    """One server.

    Args:
        folder: for its data and its configuration.
    """

    def __init__(self, folder: Path, classpath: str) -> None:
        self.port = reserved_port()
        self._folder = folder
        self._classpath = classpath
        self._process: trio.Process | None = None
        folder.mkdir(parents=True)
        lines = {
            "tickTime": TICK_MS,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (folder / "zoo.cfg").write_text(text)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it answers."""
        command = ["java", "-Xmx128m", "-cp", self._classpath]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        with (self._folder / "log").open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                [*command, str(self._folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with trio.fail_after(SECONDS):
            while not await self._answers():
                await trio.sleep(0.1)

    async def _answers(self) -> bool:
        try:
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(b"srvr")
                return bool(await stream.receive_some())
        except (OSError, trio.BrokenResourceError):
            return False

    async def stop(self) -> None:
        """It is gone at once, as by a kill."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@asynccontextmanager
async def zookeeper(folder: Path) -> AsyncIterator[ZooKeeper]:
    """One that runs; the test is skipped where Java, Maven or kazoo are not there."""
    try:
        import kazoo  # noqa: F401  # only whether it is there

        classpath = await trio.to_thread.run_sync(zookeeper_classpath)
    except (ImportError, JavaUnavailableError) as error:
        require("zookeeper", str(error))
    server = ZooKeeper(folder, classpath)
    try:
        await server.start()
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.stop()
