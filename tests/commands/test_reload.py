"""`cqrepl reload` and SIGHUP: a running host follows another version of its file."""

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from cqrepl.config.reloader import LOOK_SECONDS
from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import load_epochs
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.hostpairs import CONNECTED, Pair, running_pair
from tests.support.replicas import copied, held_by_another_process, last_of, more_excerpts
from tests.support.samples import fill


async def test_queues_come_and_go_by_command_and_by_sighup(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        assert await pair.told("reload", "--host-id", 1) == "host 1: nothing has changed\n"
        fill(pair.source("c"), "FAST_DAILY", {0: 10})
        pair.write(b=1, c=1)
        says = (
            f"host 1: queue 'c' is added: source, {pair.source('c')}\n"
            "host 1: queue 'a' is removed\n"
        )
        assert await pair.told("reload", "--host-id", 1) == says
        line = json.loads(await pair.told("reload", "--host-id", 2, "--json"))
        added = {"c": {"role": "sink", "path": str(pair.sink("c"))}}
        assert (line["added"], line["removed"]) == (added, ["a"])
        with Queue.open_for_append(pair.sink("a")) as queue:
            queue.append_lock.acquire()  # it was given back
        for name in ("b", "c"):
            more_excerpts(pair.source(name), 10, 10)
        await pair.all_copied("b", "c")
        pair.write(a=1, b=1, c=1)
        more_excerpts(pair.source("a"), 10, 10)
        for each in (pair.one, pair.two):
            each.send(signal.SIGHUP)
        await pair.all_copied("a", "b", "c")
        pair.file.write_text("queues: [")
        pair.one.send(signal.SIGHUP)
        wrong = rf"by operator: all stays as it is: {re.escape(str(pair.file))}:1:10: "
        await pair.one.says(re.compile(wrong))
        for each in (pair.one, pair.two):
            assert len(CONNECTED.findall(each.said)) == 1  # one connection all the time


async def test_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        good = pair.file.read_text()
        pair.file.write_text(good.replace("b: {masterId: 1,", "b: {masterId: 7,"))
        done = await pair.tell("reload", "--host-id", 1)
        says = f"{pair.file}:12:17: the id of a host (1, 2) expected for 'masterId', 7 came"
        assert (done.returncode, done.stderr) == (2, f"cqrepl reload: {says}\n")
        kept = f"by operator: all stays as it is: {says}"
        await pair.one.says(re.compile(re.escape(kept)))
        pair.write(a=1, b=1, c=1, d=1)
        fill(pair.sink("c"), "FAST_DAILY", {0: 10})
        with held_by_another_process(pair.sink("c")) as process:
            done = await pair.tell("reload", "--host-id", 2)
        assert (done.returncode, str(process) in done.stderr) == (5, True)
        pair.file.unlink()
        done = await pair.tell("reload", "--host-id", 1)
        assert (done.returncode, "cannot be read" in done.stderr) == (2, True)
        for name in ("a", "b"):
            more_excerpts(pair.source(name), 10, 10)
        await pair.all_copied("a", "b")
        assert await pair.state(2, "a") == await pair.state(2, "b") == "live"


async def test_a_queue_that_was_not_moved_is_refused_as_at_a_start(tmp_path: Path) -> None:
    """Host 1 is to be the master of one that it has where it takes queues in. An empty queue in
    the right place would lead, and what the old one holds would be forgotten."""
    async with running_pair(tmp_path) as pair:
        fill(pair.sink("c"), "FAST_DAILY", {0: 10})
        pair.write(a=1, c=1)
        done = await pair.tell("reload", "--host-id", 1)
        says = (
            f"{pair.file}: queue 'c': a directory {pair.source('c')} expected, as this host is its"
            f" master, there is {pair.sink('c')}: move that one there, or give both ways one"
            " directory by 'basePath'"
        )
        assert (done.returncode, done.stderr) == (2, f"cqrepl reload: {says}\n")
        kept = f"by operator: all stays as it is: {says}"
        await pair.one.says(re.compile(re.escape(kept)))
        assert not pair.source("c").exists()
        more_excerpts(pair.source("b"), 10, 10)
        await pair.all_copied("a", "b")  # the queue that the file names no more stays, too
        pair.sink("c").rename(pair.source("c"))
        assert "queue 'c' is added" in await pair.told("reload", "--host-id", 1)


async def test_limits_are_taken_on_and_the_rest_is_named(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        with Queue.open_for_append(pair.source("a")) as queue:
            queue.appender(payload_max=1 << 30).append([bytes(20 << 20)])
        await pair.state_begins(1, "a", "stopped")
        more = "cqrepl: {maxExcerpt: 32MiB, scrub: 1MiB, limitRate: 1GiB, pauser: sleepy}\n"
        pair.write(more, a=1, b=1)
        text = pair.file.read_text().replace("TimeoutMs: 60000", "TimeoutMs: 50000")
        pair.file.write_text(text)
        for host in (1, 2):
            done = await pair.tell("reload", "--host-id", host)
            said = done.stdout.replace(f"host {host}: ", "").splitlines()
            assert "cqrepl.maxExcerpt is 33554432, was 16777216" in said
            assert "cqrepl.scrub is 1048576, was 0" in said
            assert "cqrepl.limitRate is others=1073741824, was unset" in said
            needs = "needs a restart: "
            assert f"{needs}cqrepl.pauser stays balanced, to be sleepy" in said
            assert f"{needs}context.heartbeatTimeoutMs stays 60000, to be 50000" in said
            assert (done.returncode, len(said)) == (1, 5)
        await pair.told("resume", "a", "--host-id", 1)
        await pair.all_copied("a", "b")
        done = await pair.tell("reload", "--host-id", 1)
        assert (done.returncode, done.stdout.count("needs a restart")) == (1, 2)


async def test_reloads_under_load_lose_nothing(tmp_path: Path) -> None:
    """Queues are removed and added while an application writes to them."""
    async with running_pair(tmp_path) as pair:

        async def write(name: str) -> None:
            for nth in range(200):
                more_excerpts(pair.source(name), 10 + 10 * nth, 10, seed=nth)
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(write, name)
            for _ in range(2):
                pair.write(b=1)
                for host in (1, 2):
                    await pair.told("reload", "--host-id", host)
                pair.write(a=1, b=1)
                for host in (2, 1):
                    await pair.told("reload", "--host-id", host)
        await pair.all_copied("a", "b")
        for name in ("a", "b"):
            assert_same(pair.source(name), pair.sink(name))
            assert last_of(pair.sink(name)) is not None


async def test_another_host_becomes_the_master(tmp_path: Path) -> None:
    """Both roles have one directory at each host; the new master is reloaded first."""
    for name in ("a", "b"):
        fill(tmp_path / "1" / name, "FAST_DAILY", {0: 10})
    async with commands() as start:
        pair = Pair(tmp_path, start, base="$hostId")
        await pair.begin()
        for name in ("a", "b"):
            await copied(tmp_path / "1" / name, tmp_path / "2" / name)
        pair.write(a=2, b=1)
        moved = "queue 'a' is streamed from host 2, was from host 1\n"
        assert await pair.told("reload", "--host-id", 2) == f"host 2: {moved}"
        append = [sys.executable, "-P", "-m", "cqrepl", "append", str(tmp_path / "1" / "a")]
        done = await trio.to_thread.run_sync(
            partial(subprocess.run, append, input="x\n", capture_output=True, text=True)
        )
        assert (done.returncode, str(pair.one.pid) in done.stderr) == (5, True)
        assert await pair.told("reload", "--host-id", 1) == f"host 1: {moved}"
        assert load_epochs(tmp_path / "1" / "a").promised == 1
        more_excerpts(tmp_path / "2" / "a", 10, 10)
        more_excerpts(tmp_path / "1" / "b", 10, 10)
        await copied(tmp_path / "2" / "a", tmp_path / "1" / "a")
        await copied(tmp_path / "1" / "b", tmp_path / "2" / "b")
        for host in (1, 2):
            assert await pair.told("reload", "--host-id", host) == (
                f"host {host}: nothing has changed\n"
            )
        await pair.end()
        await pair.begin()  # and so it is after a restart
        more_excerpts(tmp_path / "2" / "a", 20, 10)
        await copied(tmp_path / "2" / "a", tmp_path / "1" / "a")
        await pair.end()


async def test_two_base_paths_keep_a_master(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        pair.write(a=2, b=1)
        done = await pair.tell("reload", "--host-id", 1)
        assert done.returncode == 1
        assert "needs a restart: queues.a: masterId stays 1, to be 2" in done.stdout
        assert "needs a restart: queues.a: path stays" in done.stdout
        more_excerpts(pair.source("a"), 10, 10)
        await pair.all_copied("a", "b")


PATTERN = '  "prices-*": {masterId: 1, acknowledge: true}\n'


async def test_new_directories_that_fit_a_pattern_are_taken_in(tmp_path: Path) -> None:
    """The file says otherwise by then: that waits for `reload`. What fits no pattern, has no name
    that a queue can have, or has a line of its own, stays what it is."""
    async with commands() as start:
        pair = Pair(tmp_path, start)
        pair.file.write_text(pair.file.read_text() + PATTERN)
        fill(pair.source("prices-a"), "FAST_DAILY", {0: 10})
        for name in ("a", "b"):
            fill(pair.source(name), "FAST_DAILY", {0: 10})
        pair.sink("prices-a").mkdir(parents=True)
        await pair.begin()
        await pair.all_copied("a", "prices-a")
        pair.write("cqrepl: {limitRate: 20MiB}\n" + "", a=1, b=1)
        for name in ("prices-b", "other", "prices-.b", ".prices-c"):
            fill(pair.source(name), "FAST_DAILY", {0: 10})
            pair.sink(name).mkdir()
        await pair.one.says(re.compile(r"queue 'prices-b' is added: source"))
        await pair.two.says(re.compile(r"queue 'prices-b' is added: sink"))
        await pair.all_copied("prices-b")
        more_excerpts(pair.source("prices-a"), 10, 10)
        await pair.all_copied("prices-a")
        said = json.loads((await pair.tell("status", "--host-id", 1, "--json")).stdout)
        names = {"a", "b", "prices-a", "prices-b", "prices-.b"}
        assert {each["name"] for each in said["queues"]} == names
        assert {each["limit"] for each in said["peers"]} == {None}
        told = await pair.told("reload", "--host-id", 1)
        assert "queue 'prices-a' is removed" in told
        assert "limitRate" in told
        assert len(CONNECTED.findall(pair.one.said)) == 1
        await pair.end()


async def test_a_new_directory_that_cannot_be_taken_in_is_said_once(tmp_path: Path) -> None:
    async with commands() as start:
        pair = Pair(tmp_path, start)
        pair.file.write_text(pair.file.read_text() + PATTERN)
        for name in ("a", "b"):
            fill(pair.source(name), "FAST_DAILY", {0: 10})
        await pair.begin()
        fill(pair.sink("prices-b"), "FAST_DAILY", {0: 10})
        with held_by_another_process(pair.sink("prices-b")) as process:
            wrong = rf"a new directory is not taken in: .*{process}"
            await pair.two.says(re.compile(wrong))
            await trio.sleep(2.5 * LOOK_SECONDS)  # two looks more
            assert len(re.findall(wrong, pair.two.said)) == 1
        await pair.two.says(re.compile(r"queue 'prices-b' is added: sink"))
        await pair.end()
