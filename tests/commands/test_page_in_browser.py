"""The page of a host as a real browser shows it: narrow, wide, light, dark, and without scripts.

axe-core looks for what keeps a person from reading it. Where CQREPL_PICTURES names a folder, a
picture of each page is left there.
"""

import copy
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from cqrepl import Host
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import NO_TLS
from cqrepl.page import monitor as monitors
from cqrepl.page.monitor import Monitor
from cqrepl.page.server import page_of
from cqrepl.page.settings import AlarmSettings, PageSettings
from cqrepl.replicator.settings import HostSettings
from cqrepl.status.snapshot import snapshot_of
from tests.support.browser import Tab, axe_source, browsed
from tests.support.replicas import BEATS, LOOPBACK, at, copied, eventually
from tests.support.samples import fill

pytest.importorskip("cqrepl.page.app", reason="the page has packages of its own")
PHONE: Final = 360
DESK: Final = 1280
LONG_KINDS: Final = ((PHONE, False), (DESK, True))  # of a page that takes the browser long
LOOKS: Final = 40  # an hour of them is 360; so many draw a line
Values = Mapping[str, Any]
# texts that are smaller than a person reads
_TOO_SMALL: Final = """
[...document.querySelectorAll('body *')].filter(each =>
    [...each.childNodes].some(text => text.nodeType === 3 && text.textContent.trim())
    && parseFloat(getComputedStyle(each).fontSize) < 12).map(each => each.outerHTML.slice(0, 80))
"""
_AXE: Final = """
axe.run(document).then(told => JSON.stringify(told.violations.map(each =>
    [each.id, each.help, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))])))
"""


@asynccontextmanager
async def hosts(path: Path, queues: int) -> AsyncIterator[Host]:
    """A host with so many queues, one at least, and another that takes them in."""
    names = [f"prices-{nth}" for nth in range(1, queues + 1)]
    for name in names:
        fill(path / name, "FAST_DAILY", {0: 40, 1: 5})
    sources = {name: path / name for name in names}
    settings = HostSettings.of(sources=sources, host_id=1, listen=LOOPBACK, remote_ids=[2], **BEATS)
    async with Host(settings) as host:
        assert host.port is not None
        sinks = {name: path / f"{name}-copy" for name in names}
        async with Host(HostSettings.of(sinks=sinks, connect=at(host.port), **BEATS)):
            for name in names:
                await copied(path / name, path / f"{name}-copy")
            await eventually(lambda: 2 in host.endpoint.connections)
            yield host


def multiplied(values: Values, rows: int) -> Values:
    """The same host with so many rows: queues that have stopped, that lack much, of long names."""
    host = copy.deepcopy(dict(values))
    (queue, *_), (peer, *_) = host["queues"], host["peers"]
    queues, rest = [], rows
    for nth in range(rows // 3):
        each = copy.deepcopy(queue)
        each["name"] = f"prices-of-the-exchange-in-a-far-country-{nth:03}"
        (sink,) = each["sinks"]
        each["sinks"] = [sink | {"host": other, "lag": nth * 1_234_567} for other in (2, 3, 4)]
        each["sinks"][1]["state"] = "away"
        if nth % 7 == 3:
            each["sinks"][2]["state"] = "stopped: diverged at 0x4d4d00000002: other bytes there"
        queues.append(each)
        rest -= 3
    assert not rest
    if not rows:
        return host | {"queues": [], "peers": []}
    others = [peer | {"host": other, "state": "away", "name": None} for other in (3, 4)]
    return host | {"queues": queues, "peers": [peer, *others]}


@asynccontextmanager
async def shown(snapshot: Callable[[], Values]) -> AsyncIterator[str]:
    """The address of the pages of a host that has been looked at for a while."""
    monitor = Monitor(snapshot, AlarmSettings(disk_free=0.0, lag_seconds=1e9))
    page = PageSettings(listen=Address("127.0.0.1", 0), tls=NO_TLS)
    for _ in range(LOOKS):
        await monitor.look()
    async with page_of(monitor, page, lambda: True) as port:
        yield f"http://127.0.0.1:{port}"


async def faults(tab: Tab, address: str, *, width: int, is_dark: bool, name: str) -> list[object]:
    """All that is wrong with a page of this width and colour."""
    tab.asked.clear()
    tab.refused.clear()
    await tab.show(address, width=width, is_dark=is_dark, has_scripts=False)
    home = address[: address.index("/", len("http://")) + 1]
    found: list[object] = [each for each in tab.asked if not each.startswith(home)]
    await tab.show(address, width=width, is_dark=is_dark)
    await tab.value("window.stop()")  # it does not renew itself while it is looked at
    found += tab.refused
    wide = await tab.value("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{wide} wide")
    folder = os.environ.get("CQREPL_PICTURES")
    if folder:
        await tab.picture(Path(folder) / f"{name}.png")
    found += await tab.value(_TOO_SMALL)
    await tab.value(axe_source() + "; 0")
    return [(name, each) for each in found + json.loads(await tab.value(_AXE))]


@pytest.mark.parametrize("rows", [0, 3, 300])
async def test_pages_in_a_browser(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axe_source()
    monkeypatch.setattr(monitors, "FRESH_SECONDS", 0.0)
    found: list[object] = []
    with trio.fail_after(300):
        async with hosts(tmp_path, 3 if rows else 1) as host, browsed(tmp_path) as tab:
            snapshot: Callable[[], Values] = partial(snapshot_of, host)
            if rows != 3:
                many = multiplied(snapshot_of(host), rows)
                snapshot = partial(dict, many)
            async with shown(snapshot) as address:
                pages = {"host": "/"}
                if rows:
                    pages["queue"] = f"/queue/{snapshot()['queues'][-1]['name']}"
                kinds = product((PHONE, DESK), (False, True)) if rows < 9 else LONG_KINDS
                for (page, path), (width, is_dark) in product(pages.items(), kinds):
                    name = f"{page}-{rows}-{width}-{'dark' if is_dark else 'light'}"
                    found += await faults(
                        tab, address + path, width=width, is_dark=is_dark, name=name
                    )
                await tab.show(address + "/", width=PHONE)
                shown_rows = await tab.value("document.querySelectorAll('tr[data-row]').length")
    assert found == []
    assert shown_rows == rows


async def test_keys_alone_reach_a_queue(tmp_path: Path) -> None:
    seen: list[str] = []
    with trio.fail_after(120):
        async with hosts(tmp_path, 3) as host, browsed(tmp_path) as tab:
            async with shown(partial(snapshot_of, host)) as address:
                await tab.show(address + "/", width=DESK)
                await tab.value("window.stop()")
                while len(seen) < 20 and "prices-1" not in seen:
                    await tab.press("Tab")
                    seen.append(await tab.value("document.activeElement.textContent.trim()"))
                outline = await tab.value("getComputedStyle(document.activeElement).outlineStyle")
                link = await tab.value("document.activeElement.href")
    assert "prices-1" in seen
    assert outline == "solid"
    assert link == f"{address}/queue/prices-1"
