"""One process for the directories of a host: a second one of its id is refused."""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cqrepl import Host, HostSettings
from cqrepl.net.directoryclaim import DirectoryClaim
from cqrepl.net.errors import Refused
from tests.support.commands import commands
from tests.support.hostpairs import CONNECTED, Pair, two_queues
from tests.support.replicas import LOOPBACK
from tests.support.samples import fill


def claims(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("*.held"))


async def test_a_second_process_of_a_host_is_refused_until_the_first_one_is_gone(
    tmp_path: Path,
) -> None:
    two_queues(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        await pair.all_copied("a", "b")
        words = ("run", "-c", pair.file, "--run-dir", pair.run_dir, "--host-id")
        for host, first, place in ((1, pair.one, pair.source), (2, pair.two, pair.sink)):
            second = await start(*words, host)
            assert await second.exit_code() == 5
            expected = f"cqrepl run: {place('a')}: one process of host {host} expected, "
            assert second.said == f"{expected}process {first.pid} runs it there already\n"
            assert await pair.state(host, "a") == "live"
        await pair.two.kill()
        assert len(claims(pair.run_dir)) == 2
        pair.two = await start(*words, 2)
        await pair.two.says(CONNECTED)
        assert len(claims(pair.run_dir)) == 2  # that of the process that is gone was deleted
        await pair.end()
        assert claims(pair.run_dir) == []


async def test_a_queue_that_is_added_may_not_be_one_of_another_process(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        fill(tmp_path / name, "FAST_DAILY", {0: 1})

    def host(*names: str) -> Host:
        return Host(
            HostSettings.of(
                listen=LOOPBACK,
                host_id=7,
                sources={name: tmp_path / name for name in names},
                run_dir=tmp_path / "run",
            )
        )

    async with host("a") as one, host("b"):
        more = {"a": tmp_path / "a", "b": tmp_path / "b"}
        with pytest.raises(Refused, match=re.escape(f"{tmp_path / 'b'}: one process of host 7")):
            await one.change(replace(one.settings, sources=more))
        assert list(one.source.queues) == ["a"]
        await one.change(replace(one.settings, sources={"c": tmp_path / "c"}))
        with pytest.raises(Refused, match=f"process {os.getpid()} runs it there already"):
            async with host("c"):
                pass
        async with host("a"):  # it was given back
            pass


async def test_a_claim_is_by_the_directory_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "q")
    first, second = (DirectoryClaim(tmp_path / "run", 1) for _ in range(2))
    other = DirectoryClaim(tmp_path / "run", 2)
    await first.take([tmp_path / "q"])
    (path,) = claims(tmp_path / "run")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await other.take([tmp_path / "q"])  # another host may share a machine, and be refused elsewhere
    with pytest.raises(Refused, match="one process of host 1 expected"):
        await second.take([tmp_path / "link"])
    first.end()
    await second.take([tmp_path / "link"])
    second.end()
    other.end()


async def test_where_there_is_no_run_directory_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("no directory")
    claim = DirectoryClaim(tmp_path / "run", 1)
    await claim.take([tmp_path / "q"])
    claim.end()
    assert "a second process of this host is not kept out" in caplog.text
