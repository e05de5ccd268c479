"""Verbs for a running host: `cqrepl run` and the commands that tell it, each a real process."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.support.commands import commands, until
from tests.support.copies import assert_same
from tests.support.hostpairs import Pair, running_pair, tell, two_queues
from tests.support.replicas import last_of, more_excerpts
from tests.support.samples import fill


async def test_pause_and_resume(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        assert await pair.told("pause", "a", "--host-id", 1) == "host 1: queue 'a' is paused\n"
        await pair.two.says(re.compile("queue 'a' pauses: the peer says: paused by operator"))
        assert await pair.state(1, "a") == "paused: by operator"
        end = last_of(pair.sink("a"))
        for name in ("a", "b"):
            more_excerpts(pair.source(name), 10, 10)
        await pair.all_copied("b")
        assert last_of(pair.sink("a")) == end
        said = json.loads(await pair.told("resume", "a", "--host-id", 1, "--json"))
        assert said == {"v": 1, "host": 1, "do": "resume", "queue": "a"}
        await pair.all_copied("a", "b")
        done = await pair.tell("pause", "c", "--host-id", 2)
        assert done.stderr == "cqrepl pause: expected one of the queues a, b, got 'c'\n"
        assert done.returncode == 2
        done = await pair.tell("pause", "a")
        assert done.stderr == "cqrepl pause: several hosts run here (1, 2): --host-id expected\n"
        assert done.returncode == 2


async def test_a_queue_that_could_not_be_opened_is_resumed(tmp_path: Path) -> None:
    """Damaged at the start, and still so at the first try; the other one flows meanwhile."""
    two_queues(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        table = pair.source("a") / FILE_NAME
        whole = table.read_bytes()
        table.write_bytes(whole[:70])
        await pair.begin()
        await pair.all_copied("b")
        await pair.two.says(re.compile("queue 'a' stopped .damaged.: the peer says: .*cq4t"))
        for host in (1, 2):
            await pair.state_begins(host, "a", "stopped: ")
        done = await pair.tell("resume", "a", "--host-id", 1)
        assert done.returncode == 4
        assert str(table) in done.stderr
        table.write_bytes(whole)
        await pair.told("resume", "a", "--host-id", 1)
        await pair.all_copied("a", "b")
        await pair.end()


async def test_a_copy_with_an_adopted_identity_goes_on(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        await pair.end()
        with Queue.open(pair.sink("a")) as queue:
            assert queue.identity.replace(new_identity())
        await pair.begin()
        adopt = re.compile(r"copy of that one after all: cqrepl (identity adopt \S+ \w+)")
        words = (await pair.two.says(adopt)).group(1).split()
        command = [sys.executable, "-P", "-m", "cqrepl", *words, "--apply"]
        await trio.to_thread.run_sync(partial(subprocess.run, command, check=True))
        more_excerpts(pair.source("a"), 10, 10)
        await pair.told("resume", "a", "--host-id", 2)
        await pair.all_copied("a", "b")
        await pair.state_begins(1, "a", "live")
        await pair.state_begins(2, "a", "live")


STAYS = "every queue has stopped: this host stays, for 'cqrepl status', 'resume', 'reload'"


def other_copies(folder: Path) -> None:
    """Host 2 has other excerpts in both queues than host 1."""
    two_queues(folder)
    for name in ("a", "b"):
        fill(folder / "sink" / name, "FAST_DAILY", {0: 5})
        more_excerpts(folder / "sink" / name, 5, 5, seed=77)


async def test_a_host_stays_when_all_of_its_queues_have_stopped(tmp_path: Path) -> None:
    other_copies(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        for each in (pair.one, pair.two):
            await each.says(re.compile(STAYS))
        done = await pair.tell("status", "--host-id", 2)
        assert (done.returncode, done.stdout.count("stopped: ")) == (1, 2)
        await pair.told("quarantine", "a", "--host-id", 2, "--apply")
        await pair.told("resume", "a", "--host-id", 1)
        await pair.all_copied("a")
        fill(pair.source("c"), "FAST_DAILY", {0: 10})
        pair.write(a=1, b=1, c=1)
        for host in (1, 2):
            await pair.told("reload", "--host-id", host)
        await pair.all_copied("a", "c")
        for each in (pair.one, pair.two):
            assert each.said.count(STAYS) == 1
        await pair.end()


async def test_a_host_that_nobody_can_tell_anything_ends(tmp_path: Path) -> None:
    other_copies(tmp_path)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        pair.run_dir.mkdir()
        pair.run_dir.chmod(0o777)  # others write there: no socket is made
        await pair.begin()
        assert await pair.two.exit_code() == 1
        assert "cqrepl status cannot ask this host" in pair.two.said
        assert STAYS not in pair.two.said


async def test_quarantine_and_forget(tmp_path: Path) -> None:
    two_queues(tmp_path)
    fill(tmp_path / "sink" / "a", "FAST_DAILY", {0: 5})
    more_excerpts(tmp_path / "sink" / "a", 5, 5, seed=77)
    async with commands() as start:
        pair = Pair(tmp_path, start)
        await pair.begin()
        await pair.state_begins(2, "a", "stopped")
        said = await pair.told("quarantine", "a", "--host-id", 2)
        assert "5 excerpts" in said
        assert "nothing was changed: --apply does it" in said
        done = await pair.tell("quarantine", "a", "--host-id", 1)
        assert (done.returncode, "streamed from here" in done.stderr) == (5, True)
        done = await pair.tell("pause", "a", "--host-id", 2)
        assert (done.returncode, "stopped (diverged)" in done.stderr) == (5, True)
        line = json.loads(await pair.told("quarantine", "a", "--host-id", 2, "--apply", "--json"))
        assert (line["applied"], line["excerpts"], line["queue"]) == (True, 5, "a")
        await pair.all_copied("a", "b")
        assert_same(pair.source("a"), pair.sink("a"))
        done = await pair.tell("forget", "2", "--host-id", 1)
        assert (done.returncode, done.stderr) == (5, "cqrepl forget: host 2 is connected\n")
        await pair.two.terminate()
        await until(lambda: "disconnected" in pair.one.said)
        assert await pair.told("forget", "2") == "host 1: host 2 is forgotten: a, b\n"
        done = await pair.tell("forget", "2")
        assert done.returncode == 2
        await pair.one.terminate()


@pytest.mark.parametrize("words", [("pause", "a"), ("forget", 2), ("reload",)])
def test_without_a_host_they_say_so(tmp_path: Path, words: tuple[object, ...]) -> None:
    done = tell(tmp_path / "run", *words)
    says = f"cqrepl {words[0]}: {tmp_path}/run: no host runs here\n"
    assert (done.returncode, done.stderr) == (3, says)
    done = tell(tmp_path / "run", *words, "--host-id", 7)
    assert (done.returncode, "host-7.sock: no host answers" in done.stderr) == (3, True)
