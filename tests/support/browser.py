"""Headless Chromium, told what to do over a pair of pipes by its DevTools protocol.

Chromium reads requests from its file descriptor 3 and answers on 4: JSON texts, each of which ends
in a zero byte. So no port is opened, and no library is needed.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from tests.support.requirements import require

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = (ROOT / "build" / "npm", *ROOT.parents)  # where `npm install` may have put it
SECONDS: Final = 30.0  # an answer of the browser
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_WORDS: Final = (
    "--headless=new",
    "--no-sandbox",  # which a browser of root does without
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# out of each other's way first: one of the two may be what the other is to become
_LAID: Final = """
import fcntl, os, sys
high = [fcntl.fcntl(int(each), fcntl.F_DUPFD_CLOEXEC, 10) for each in sys.argv[1:3]]
for number, each in zip((3, 4), high):
    os.dup2(each, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def axe_source() -> str:
    """The script of axe-core; skips the test where it is not installed."""
    scripts = [place / "node_modules" / "axe-core" / "axe.min.js" for place in PLACES]
    found = [each for each in scripts if each.exists()]
    if found:
        return found[0].read_text()
    return require("axe", "axe-core is not installed: npm install --prefix build/npm axe-core")


class Tab:
    """One tab of a browser that runs.

    Attributes:
        asked: the addresses of all that it has asked for.
        refused: what the policy of the page has kept it from, as it says.
    """

    def __init__(self, write_to: int, read_from: int) -> None:
        self._output = trio.lowlevel.FdStream(write_to)
        self._input = trio.lowlevel.FdStream(read_from)
        self._numbers = itertools.count(1)
        self._session = ""
        self._rest = b""
        self._waiting: deque[Mapping[str, Any]] = deque()
        self.asked: list[str] = []
        self.refused: list[str] = []

    async def start(self) -> None:
        """Makes the tab."""
        target = (await self.tell("Target.createTarget", url="about:blank"))["targetId"]
        told = await self.tell("Target.attachToTarget", targetId=target, flatten=True)
        self._session = told["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.tell(f"{domain}.enable")

    async def tell(self, method: str, **parameters: object) -> Mapping[str, Any]:
        """The result of one request."""
        number = next(self._numbers)
        request: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        await self._output.send_all(json.dumps(request).encode() + b"\0")
        with trio.fail_after(SECONDS):
            while True:
                message = await self._next()
                if message.get("id") == number:
                    assert "error" not in message, (method, message["error"])
                    found: Mapping[str, Any] = message["result"]
                    return found
                self._waiting.append(message)

    async def show(
        self, address: str, *, width: int, is_dark: bool = False, has_scripts: bool = True
    ) -> None:
        """Goes to an address, and waits until the page is loaded."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.tell("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.tell("Emulation.setEmulatedMedia", features=[scheme])
        await self.tell("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self._waiting.clear()
        found = await self.tell("Page.navigate", url=address)
        assert "errorText" not in found, found
        with trio.fail_after(SECONDS):
            await self._event("Page.loadEventFired")

    async def value(self, expression: str) -> Any:
        """The value of an expression on the page; of a promise what it becomes."""
        told = await self.tell(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def picture(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        shot = await self.tell("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    async def press(self, key: str) -> None:
        """Presses a key, as a person does."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            await self.tell(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key]
            )

    async def _event(self, name: str) -> None:
        while True:
            message = self._waiting.popleft() if self._waiting else await self._next()
            if message.get("method") == name:
                return

    async def _next(self) -> Mapping[str, Any]:
        while b"\0" not in self._rest:
            got = await self._input.receive_some(1 << 20)
            assert got, "the browser has ended"
            self._rest += got
        text, _, self._rest = self._rest.partition(b"\0")
        message: Mapping[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: Mapping[str, Any]) -> None:
        if message.get("method") == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])
        if message.get("method") == "Log.entryAdded":
            self.refused.append(message["params"]["entry"]["text"])


@asynccontextmanager
async def browsed(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser that runs for the length of a block; skips the test where there is none.

    Args:
        folder: for what the browser keeps.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        require("chromium", "no Chromium is installed")
    words = [program, *_WORDS, f"--user-data-dir={folder / 'browser'}", "about:blank"]
    read_requests, write_requests = os.pipe()
    read_answers, write_answers = os.pipe()
    try:
        process = _started(words, read_requests, write_answers)
    finally:
        os.close(read_requests)
        os.close(write_answers)
    tab = Tab(write_requests, read_answers)
    try:
        with trio.fail_after(SECONDS):
            await tab.start()
        yield tab
    finally:
        process.terminate()
        await trio.to_thread.run_sync(process.wait)


def _started(words: Sequence[str], requests: int, answers: int) -> subprocess.Popen[bytes]:
    """The browser, with these two pipes as its descriptors 3 and 4."""
    command = [sys.executable, "-c", _LAID, str(requests), str(answers), *words]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, pass_fds=(requests, answers), stdin=quiet, stdout=quiet, stderr=quiet
    )
