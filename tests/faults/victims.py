"""Real sources and sinks that are attacked, each with a good peer that goes on being served.

What a peer is closed or refused for is logged once, under its address; each attacker has one of its
own, or it would be counted with another one.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from cqrepl.queue import ExcerptBatch, Queue
from tests.support.replicas import at, eventually, last_of
from tests.support.samples import fill
from tests.support.scripted import Scripted, scripted

SECONDS = 60
HOSTILE_ID = 9


def machines() -> Iterator[str]:
    """One address of this machine's after the other, none of them the good peer's."""
    for nth in count(256):
        yield f"127.{nth >> 16 & 255}.{nth >> 8 & 255}.{nth & 255}"


MACHINES = machines()


class Victim:
    """A listening process, and a good peer of it with a queue of its own."""

    def __init__(self, folder: Path, role: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.role = role
        self.own_id = 1 if role == "source" else 2
        self.original, self.copy = folder / "q", folder / "copies" / "q"
        fill(self.original, "FAST_DAILY", {0: 3})
        self._said = folder / "said"
        self._since = 0  # how much of it was there before the present attack
        mine, other = (self.original, self.copy) if role == "source" else (self.copy, self.original)
        self.process = self._start(role, mine, "--listen", "127.0.0.1:0")
        self.port = int(self._await_said(r"listening on 127\.0\.0\.1:(\d+)\n")[1])
        good = "sink" if role == "source" else "source"
        self._good = self._start(good, other, "--connect", at(self.port))
        self._await_said(r"host \d at [\d.:]+: connected\n")

    def close(self) -> None:
        for process in (self._good, self.process):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=SECONDS) for process in (self._good, self.process)]
        assert "Traceback" not in self.said
        assert codes == [0, 0], self.said

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @asynccontextmanager
    async def attacked(self, *, greet: bool = False) -> AsyncIterator[Scripted]:
        """A connection to it; the good peer is served before, during and after."""
        await self.serves()
        own, other = (HOSTILE_ID, self.own_id) if greet else (None, None)
        self._since = len(self.said)
        async with scripted(self.port, own, other, next(MACHINES)) as attacker:
            await self.serves()
            yield attacker
        await self.serves()
        assert self.process.poll() is None, self.said

    async def serves(self) -> None:
        """The good peer gets a new excerpt."""
        last = last_of(self.original)
        assert last is not None
        with Queue.open_for_append(self.original) as queue:
            queue.appender().append_at(ExcerptBatch.of(last + 1, [b"%d" % last]))
        await eventually(lambda: last_of(self.copy) == last + 1)

    async def logs(self, attacker: Scripted, what: str, reason: str) -> None:
        """It logs once, for this connection, that it was closed or something was refused.

        An earlier one may have come from the same port.
        """
        address = re.escape(attacker.address)
        line = re.compile(rf"^cqrepl {self.role}: (host \d+ at )?{address}: {what}: .*$", re.M)
        await eventually(lambda: line.search(self.said, self._since) is not None)
        lines = [found[0] for found in line.finditer(self.said, self._since)]
        assert len(lines) == 1, lines
        assert re.search(reason, lines[0]), lines[0]

    def _start(self, role: str, path: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with self._said.open("ab") as said:
            command = [sys.executable, "-P", "-m", "cqrepl", role, f"q={path}", *arguments]
            return subprocess.Popen(command, stderr=said if role == self.role else None)

    def _await_said(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self.said)) is None:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.005)
        return found
