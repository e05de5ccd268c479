"""A peer without TLS meets a host with it through stunnel, by the files of `deploy/stunnel`."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl import serve_sink, serve_source
from cqrepl.commands.authority import Authority
from cqrepl.net.address import Address
from tests.support.authorities import host_tls
from tests.support.ports import reserved_port
from tests.support.replicas import BEATS, LOOPBACK, SECONDS, TAKEN, at, copied, more_excerpts
from tests.support.requirements import require
from tests.support.samples import fill

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "stunnel"


@asynccontextmanager
async def stunnel(folder: Path, name: str, **places: str) -> AsyncIterator[None]:
    """stunnel by one of the files, with other addresses, and the certificates of this test."""
    program = shutil.which("stunnel4") or shutil.which("stunnel")
    if program is None:
        require("stunnel", "stunnel is not installed")
    lines = (DEPLOY / name).read_text().replace("/etc/cqrepl", str(folder / "ca")).splitlines()
    for key, value in places.items():
        (found,) = [nth for nth, line in enumerate(lines) if line.startswith(f"{key} = ")]
        lines[found] = f"{key} = {value}"
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: trio.run_process([program, str(file)], check=False))
        where = Address.parse(places["accept"])
        with trio.fail_after(SECONDS):
            while True:
                try:
                    await (await trio.open_tcp_stream(where.host, where.port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.02)
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority.make(tmp_path / "ca")
    host_tls(found, 2)
    return found


async def test_a_peer_without_tls_dials(tmp_path: Path, authority: Authority) -> None:
    original, copy, port = tmp_path / "original", tmp_path / "copy", reserved_port()
    fill(original, "FAST_DAILY", {0: 50})
    tls = host_tls(authority, 1)
    async with serve_source(
        {"q": original}, listen=LOOPBACK, host_id=1, tls=tls, **BEATS, **TAKEN
    ) as source:
        places = {"accept": at(port), "connect": at(source.port)}
        async with stunnel(tmp_path, "dials.conf", **places):
            async with serve_sink({"q": copy}, connect=at(port), **BEATS):
                await copied(original, copy)
                more_excerpts(original, 50, 20)
                await copied(original, copy)


async def test_a_peer_without_tls_is_dialled(tmp_path: Path, authority: Authority) -> None:
    original, copy, port = tmp_path / "original", tmp_path / "copy", reserved_port()
    fill(original, "FAST_DAILY", {0: 50})
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        places = {"accept": at(port), "connect": at(sink.port)}
        async with stunnel(tmp_path, "listens.conf", **places):
            tls = host_tls(authority, 1)
            async with serve_source({"q": original}, connect=at(port), tls=tls, **BEATS, **TAKEN):
                await copied(original, copy)
