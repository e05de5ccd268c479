"""Pages, metrics, health and alarms of a host that runs."""

import json
import logging
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host
from cqrepl.commands.authority import Authority
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.page import monitor as monitors
from cqrepl.page.alarms import alarms_of
from cqrepl.page.hostlook import Disk, HostLook
from cqrepl.page.monitor import Monitor
from cqrepl.page.server import PageRefused, page_of
from cqrepl.page.settings import AlarmSettings, PageSettings
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.queuestate.durations import BOUNDS, TimeCounts
from cqrepl.replicator.settings import HostSettings
from cqrepl.status.queuetotals import QueueTotals, table
from cqrepl.status.snapshot import snapshot_of
from tests.support.authorities import host_tls
from tests.support.replicas import BEATS, LOOPBACK, at, copied, eventually
from tests.support.samples import fill

metrics = pytest.importorskip("cqrepl.page.metrics", reason="the page has packages of its own")
views = pytest.importorskip("cqrepl.page.views", reason="so it has here")
DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\bcqrepl_[a-z_]+\b")


@asynccontextmanager
async def shown(path: Path, **more: Any) -> AsyncIterator[tuple[Host, Monitor, int | None]]:
    """A host with a queue `q`, and its pages."""
    settings = HostSettings.of(sources={"q": path}, listen=LOOPBACK, remote_ids=[2], **BEATS)
    async with Host(settings) as host, trio.open_nursery() as nursery:
        monitor = Monitor(partial(snapshot_of, host), more.pop("alarms", None))
        nursery.start_soon(monitor.run)
        options: dict[str, Any] = {"listen": Address("127.0.0.1", 0), "tls": NO_TLS} | more
        page = PageSettings(**options)
        async with page_of(monitor, page, lambda: True) as port:
            yield host, monitor, port
        nursery.cancel_scope.cancel()


async def ask(
    port: int | None, path: str, headers: Mapping[str, str] | None = None, **more: Any
) -> tuple[int, str, Mapping[str, str]]:
    """Status, body and headers of an answer."""

    def get() -> tuple[int, str, Mapping[str, str]]:
        where = f"{more.pop('scheme', 'http')}://127.0.0.1:{port}{path}"
        context = more.pop("context", None)
        request = urllib.request.Request(where, headers=dict(headers or {}), **more)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)

    return await trio.to_thread.run_sync(get)


async def test_a_host_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitors, "FRESH_SECONDS", 0.0)
    fill(tmp_path / "q", "FAST_DAILY", {0: 40, 1: 5})
    async with shown(tmp_path / "q") as (host, monitor, port):
        assert host.port is not None
        copy = HostSettings.of(sinks={"q": tmp_path / "copy"}, connect=at(host.port), **BEATS)
        async with Host(copy):
            await copied(tmp_path / "q", tmp_path / "copy")
            await eventually(lambda: 2 in host.endpoint.connections)
            await monitor.look()
            for path, text in (
                ("/healthz", "ok"),
                ("/readyz", "ok"),
                ("/", '<a href="/queue/q">q</a>'),
                ("/queue/q", ".cq4"),
                ("/metrics", 'cqrepl_queue_excerpts_total{queue="q",role="source"} 45.0'),
                ("/status.json", '"queues"'),
            ):
                code, body, headers = await ask(port, path)
                assert (code, text in body) == (200, True), (path, body)
                assert headers["cache-control"] == "no-store"
                assert "default-src 'none'" in headers["content-security-policy"]
                assert headers.get("refresh") == ("5" if body.startswith("<!doctype") else None)
            assert json.loads((await ask(port, "/status.json"))[1])["host"] == 1
            await _times_are_told(host, monitor, port)
            for path in ("/?still", "/queue/q?still"):
                _, body, headers = await ask(port, path)
                assert ("refresh" in headers, 'href="?"' in body) == (False, True)
        for path, method, wanted in (
            ("/nothing", "GET", 404),
            ("/queue/..%2fq", "GET", 404),
            ("/", "POST", 405),
            ("/", "DELETE", 405),
            ("/login", "POST", 405),
        ):
            data = b"" if method == "POST" else None
            assert (await ask(port, path, method=method, data=data))[0] == wanted
        code, body, _ = await ask(port, "/", {"Host": "elsewhere.example"})
        assert code == 421
        assert "elsewhere.example" in body


async def _times_are_told(host: Host, monitor: Monitor, port: int | None) -> None:
    """A wait of a program here, and the syncs of its queue, in the metrics and on its page."""
    queue = host.source.queues["q"]
    last = queue.queue.last_index()
    assert last is not None
    await queue.leading.wait_acked(last, AckPolicy())
    disk = queue.disk
    assert isinstance(disk, DiskEnd)
    await eventually(lambda: sum(disk.sync_times.now().counts) > 0)
    await monitor.look()
    body = (await ask(port, "/metrics"))[1]
    pattern = r"cqrepl_acknowledgement_seconds_count\{[^}]*level=.appended.[^}]*\} 1\.0"
    assert re.search(pattern, body)
    assert "cqrepl_sync_seconds_bucket{" in body
    assert "waits for hosts, appended, mean" in (await ask(port, "/queue/q"))[1]


def test_each_counter_is_in_status_metrics_and_page() -> None:
    """A new one is a field of the table, and comes by that alone to all of them."""
    for name, counted in table():
        is_times = counted.metric.endswith("_seconds")
        value: Any = (
            {"synced": {"counts": [3, *[0] * len(BOUNDS)], "seconds": 1e-6}} if is_times else 7
        )
        queue: dict[str, Any] = {
            "name": "q",
            "role": "source",
            "state": "live",
            "sinks": [],
            name: value,
        }
        sample = sample_of(host={"queues": [queue], "release": "1", "services": {}, "process": 1})
        body = metrics.exposition(sample, ()).decode()
        assert counted.says in body
        assert f"{counted.metric}_{'count' if is_times else 'total'}{{" in body
        assert counted.label in (views.queue_page(sample, "q") or "")
        counts = TimeCounts((3, *[0] * len(BOUNDS)), 1e-6)
        given: Any = {"synced": counts} if is_times else 7
        totals = QueueTotals(**{name: given})
        assert totals.values() == {name: value}


async def test_rubbish_is_answered_and_holds_nothing_up(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with shown(tmp_path / "q") as (_, _, port):
        for data in (b"\x16\x03\x01\x02", b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x" * 99999):
            async with await trio.open_tcp_stream("127.0.0.1", port or 0) as stream:
                try:
                    await stream.send_all(data)
                    await stream.send_eof()
                    while await stream.receive_some(4096):
                        pass
                except trio.BrokenResourceError:
                    pass
            assert (await ask(port, "/healthz"))[0] == 200


async def test_a_port_in_use_is_said_and_the_host_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with _Listening() as port:
        async with shown(tmp_path / "q", listen=Address("127.0.0.1", port)) as (host, _, page):
            assert page is None
            assert host.port
    assert f"page: cannot listen on 127.0.0.1:{port}: Address already in use" in caplog.text


class _Listening:
    """A port that is in use."""

    async def __aenter__(self) -> int:
        (self._listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        return int(self._listener.socket.getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        await self._listener.aclose()


async def test_beyond_this_machine_it_takes_tls_and_a_token(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "ca")
    tls, token = host_tls(authority, 1), tmp_path / "token"
    everywhere = Address("0.0.0.0", 0)
    with pytest.raises(ValueError, match="expected a 'token'"):
        PageSettings(listen=everywhere, tls=tls)
    with pytest.raises(ValueError, match="expected TLS"):
        PageSettings(listen=everywhere, token=token, tls=NO_TLS)
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    token.write_text("short\n")
    with pytest.RaisesGroup(PageRefused, flatten_subgroups=True):
        async with shown(tmp_path / "q", listen=everywhere, token=token, tls=tls):
            pass
    secret = "a-token-of-this-host"
    token.write_text(secret + "\n")
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.check_hostname = False
    get = partial(ask, scheme="https", context=context)
    async with shown(tmp_path / "q", listen=everywhere, token=token, tls=tls) as (_, _, port):
        assert (await get(port, "/healthz"))[0] == 200
        for shown_token in ("", "Bearer", "Bearer wrong", f"Basic {secret}", f"Bearer {secret}x"):
            code, body, _ = await get(port, "/metrics", {"Authorization": shown_token})
            assert code == 401
            assert "cqrepl_" not in body
        code, body, _ = await get(port, "/metrics", {"Authorization": f"Bearer {secret}"})
        assert code == 200
        assert (await get(port, f"/metrics?token={secret}"))[0] == 401
        code, body, _ = await get(port, "/", {"Accept": "text/html"})
        assert code == 401
        assert 'type="password"' in body
        code, body, _ = await get(port, "/login", method="POST", data=b"token=wrong")
        assert code == 401
        assert "got another" in body
        cookie = {"Cookie": f"cqrepl-token={secret}"}
        assert (await get(port, "/", cookie))[0] == 200


# alarms


def sample_of(**more: Any) -> HostLook:
    host = {
        "host": 1,
        "peers": [{"host": 2, "state": "connected"}],
        "queues": [
            {
                "name": "q",
                "role": "source",
                "state": "live",
                "sinks": [{"host": 2, "state": "live", "lag": 0}],
            }
        ],
        "tls": None,
    }
    return HostLook(host=host | more.pop("host", {}), at=0.0, wall=1_000_000.0, **more)


def test_alarms() -> None:
    settings = AlarmSettings()
    assert alarms_of(sample_of(), settings) == {}
    away = {"peers": [{"host": 2, "state": "away"}]}
    assert ("away", "host 2") in alarms_of(sample_of(host=away), settings)
    stopped = {"queues": [{"name": "q", "state": "stopped: diverged at 0x1"}]}
    assert ("stopped", "q") in alarms_of(sample_of(host=stopped), settings)
    behind = sample_of(behind={("q", 2): 10.0})
    assert ("lag", "q at host 2") in alarms_of(behind, settings)
    assert not alarms_of(behind, replace(settings, lag_seconds=11.0))
    assert ("disk", "q") in alarms_of(sample_of(disks={"q": Disk(9, 100)}), settings)
    assert not alarms_of(sample_of(disks={"q": Disk(10, 100)}), settings)
    tls = {"tls": {"certificate": "CN=1", "ends": 1_000_000.0 + 29 * 86_400, "warning": ""}}
    assert ("certificate", "host 1") in alarms_of(sample_of(host=tls), settings)


async def test_alarms_are_logged_and_told_when_they_come_and_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    monkeypatch.setattr(monitors, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(monitors, "FRESH_SECONDS", 0.0)
    said = tmp_path / "said"
    program = "import sys; print(*sys.argv[2:], file=open(sys.argv[1], 'a'))"
    command = (sys.executable, "-c", program, str(said))
    alarms = AlarmSettings(command=command, disk_free=0.0, lag_seconds=1000.0)
    with caplog.at_level(logging.INFO, "cqrepl"):
        async with shown(tmp_path / "q", alarms=alarms) as (host, _, _):
            await eventually(lambda: "alarm raised: away: host 2" in caplog.text)
            assert host.port is not None
            copy = HostSettings.of(sinks={"q": tmp_path / "copy"}, connect=at(host.port), **BEATS)
            async with Host(copy):
                await eventually(lambda: "alarm cleared: away: host 2" in caplog.text)
                await eventually(lambda: said.exists() and "CLEARED" in said.read_text())
    assert said.read_text().splitlines()[0] == "RAISED away host 2 it is not connected"


# what is given with it


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    known = metrics.names()
    rules = (DEPLOY / "prometheus" / "cqrepl-alerts.yaml").read_text()
    dashboard = json.loads((DEPLOY / "grafana" / "cqrepl.json").read_text())
    targets = [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    found = set(NAME.findall(" ".join([rules, *targets])))
    assert found
    assert found <= known, found - known


def test_large_pages_are_made_quickly_enough_and_escape_names() -> None:
    """100 queues with 20 peers each; a name that is HTML stays a text."""
    sinks = [
        {"host": each, "state": "live", "lag": each, "sent": None, "acknowledged": None}
        for each in range(2, 22)
    ]
    queues = [
        {"name": f"<b>{nth}", "role": "source", "state": "live", "last": None, "sinks": sinks}
        for nth in range(100)
    ]
    peers = [{"host": each, "state": "connected", "name": None, "tls": None} for each in range(20)]
    host = {"queues": queues, "peers": peers, "listens": None, "release": "1", "process": 1}
    sample = sample_of(host=host | {"services": {}})
    page = views.host_page(sample, (), {})
    assert "<b>" not in page
    assert page.count('<tr role="row"') > 2000


def test_the_file_of_tls_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a 'token'"):
        PageSettings(listen=Address("10.0.0.1", 1), tls=TlsSettings())
