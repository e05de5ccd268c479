"""`cqrepl tasks` as a user runs it, against hosts that `cqrepl run` started."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.console import exitcodes
from cqrepl.queue import Queue
from cqrepl.queue.write.retention import Policy, remove
from tests.support.commands import Command, Start, commands
from tests.support.ports import reserved_port
from tests.support.samples import fill

PAGE: Final = """\
cluster:
  context: {{heartbeatIntervalMs: 500, heartbeatTimeoutMs: 60000, basePath: "{folder}/$hostId"}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:{one}"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:{two}"}}
queues:
  jobs-log: {{masterId: 1, acknowledge: true}}
cqrepl:
  ack: {{jobs-log: {{level: appended, from: 1}}}}
  tasks: {{jobs: {{group: jobs-log, workerLease: 10s, backoff: 10ms}}}}
"""
SERVES: Final = re.compile(r"board 'jobs': host 1 serves it")


class Hosts:
    """Two hosts, of which the first one leads the board."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.ports = reserved_port(), reserved_port()
        self.folder, self._start = folder, start
        self.file = folder / "cluster.yaml"
        one, two = self.ports
        self.file.write_text(PAGE.format(folder=folder, one=one, two=two))

    async def begin(self) -> list[Command]:
        words = ("run", "-c", self.file, "--run-dir", self.folder / "run", "--host-id")
        hosts = [await self._start(*words, str(each)) for each in (1, 2)]
        await hosts[0].says(SERVES)
        return hosts

    async def tasks(
        self, verb: str, *words: str, port: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        at = f"127.0.0.1:{port or self.ports[1]}"  # which follows, and names the other one
        asked = [sys.executable, "-m", "cqrepl", "tasks", verb, "--at", at, "--board", "jobs"]
        run = partial(subprocess.run, [*asked, *words], capture_output=True, text=True, check=False)
        return await trio.to_thread.run_sync(partial(run, stdin=subprocess.DEVNULL))


async def test_a_board_that_no_host_has_is_told_at_once(tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with commands() as start:
            hosts = Hosts(tmp_path, start)
            await hosts.begin()
            closed = reserved_port()
            at = f"127.0.0.1:{closed},127.0.0.1:{hosts.ports[0]},127.0.0.1:{hosts.ports[1]}"
            wrong = ("--board", "job", "--wait", "100s", "--at", at)
            said = await hosts.tasks("submit", "--type", "upper", *wrong, "hello")
            assert said.returncode == exitcodes.REFUSED, said.stderr
            [line] = said.stderr.splitlines()
            assert "no host that answers has board 'job'" in line
            assert "expected one of the boards jobs, got 'job'" in line


async def test_a_task_is_submitted_done_and_shown(tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with commands() as start:
            hosts = Hosts(tmp_path, start)
            await hosts.begin()
            first = await hosts.tasks("submit", "--type", "upper", "--key", "k", "hello")
            again = await hosts.tasks("submit", "--type", "upper", "--key", "k", "hello")
            assert (first.returncode, first.stdout) == (0, again.stdout), first.stderr
            name = first.stdout.strip()
            bad = await hosts.tasks("submit", "--type", "upper", "--attempts", "1", "no")
            upper = "import sys; text = sys.stdin.read(); sys.exit('no luck') if text == 'no' else"
            program = f'{sys.executable} -c "{upper} print(text.upper(), end=str())"'
            worked = await hosts.tasks("work", "--type", "upper", "--exec", program, "--once", "2")
            assert worked.returncode == 0, worked.stderr
            assert set(worked.stdout.splitlines()) == {
                f"{name} done",
                f"{bad.stdout.strip()} failed: exit code 1",
            }
            shown = await hosts.tasks("show", name, "--json")
            found = json.loads(shown.stdout)
            assert (found["status"], found["payload"], found["result"]) == (
                "done",
                "hello",
                "HELLO",
            )
            listed = await hosts.tasks("list", "--status", "failed")
            assert listed.stdout.startswith(f"{bad.stdout.strip()}  upper  failed  1/1")
            assert "exit code 1: no luck" in listed.stdout
            assert (await hosts.tasks("workers")).stdout == ""  # the worker has left
            asked = ["status", "--run-dir", str(tmp_path / "run"), "--host-id", "1"]
            words = [sys.executable, "-m", "cqrepl", *asked]
            page = await trio.run_process(words, capture_stdout=True, check=False)
            assert b"jobs, served here: 2 tasks, 0 workers; checkpoint none yet" in page.stdout


MISTAKES: Final = (
    (("show", "0x1"), 5, "expected a task of board 'jobs', got 0x1"),
    (("show", "one"), 2, "expected the id of a task, as `list` shows it, got 'one'"),
    (("submit", "--type", "a b", "x"), 5, "expected a type without blanks, got 'a b'"),
    (("work", "--type", "a", "--exec", "'"), 2, "--exec: expected a command"),
    (("list", "--board", "others", "--wait", "1s"), 5, "one of the boards jobs, got 'others'"),
    (("list", "--at", "nowhere", "--wait", "1s"), 2, "--at: "),
)


async def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with commands() as start:
            hosts = Hosts(tmp_path, start)
            await hosts.begin()
            for words, code, said in MISTAKES:
                done = await hosts.tasks(*words, port=hosts.ports[0])
                assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
                assert said in done.stderr


async def test_a_host_that_cannot_join_its_only_group_ends(tmp_path: Path) -> None:
    """No checkpoint, no start of the queue, no other host: all three are named."""
    log = tmp_path / "1" / "jobs-log"
    log.parent.mkdir()
    fill(log, "FAST_DAILY", {0: 3, 1: 2})
    with Queue.open(log) as queue:
        assert len(remove(queue.cycles, Policy())) == 1
    with trio.fail_after(120):
        async with commands() as start:
            hosts = Hosts(tmp_path, start)
            words = ("run", "-c", hosts.file, "--run-dir", tmp_path / "run", "--host-id", "1")
            host = await start(*words)
            assert await host.exit_code() == exitcodes.REFUSED
            for each in ("no checkpoint of its own", "its copy begins at", "no host is connected"):
                assert each in host.said
