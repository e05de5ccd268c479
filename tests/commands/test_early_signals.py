"""A signal that comes while a command is still starting, or while its interpreter ends: the command
ends in order, whenever that is.

The process is known to be ours once it has asked the system for SIGTERM; what comes before that
meets the interpreter. Nothing is asserted of when a signal comes, only of how the command ends.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.replicas import SECONDS
from tests.support.samples import fill

CAUGHT: Final = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)
# of start-up, and of what comes then; all of them in the long run
DELAYS: Final = (0.0, 0.02, 0.08, 0.32)
DELAYS_ALL: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
LOOPBACK: Final = ("--listen", "127.0.0.1:0")
INTERRUPTED: Final[dict[int, int]] = {signal.SIGTERM: 130, signal.SIGHUP: 130, signal.SIGINT: 130}
IN_ORDER: Final[dict[int, int]] = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: 130}
OF_A_HOST: Final[dict[int, int]] = {signal.SIGTERM: 0, signal.SIGINT: 130}
HOSTS: Final = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext {{baseSourcePath: {0}, baseSinkPath: {0}/copies}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:2"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:1"}}
queues:
  q: {{masterId: 1}}
"""
AS_HOST: Final = ("--host-id", 1, *LOOPBACK)


def hosts_of(folder: Path) -> Path:
    """The file of a cluster whose first host streams the queue."""
    path = folder / "hosts"
    path.write_text(HOSTS.format(folder))
    return path


COMMANDS: Final[dict[str, tuple[str, Callable[[Path], tuple[object, ...]], dict[int, int]]]] = {
    "source": ("main", lambda folder: ("source", folder / "q", *LOOPBACK), IN_ORDER),
    "sink": ("main", lambda folder: ("sink", folder / "copy", *LOOPBACK), IN_ORDER),
    "run": ("main", lambda folder: ("run", "-c", hosts_of(folder), *AS_HOST), OF_A_HOST),
    "tail": ("main", lambda folder: ("tail", "-f", folder / "q"), INTERRUPTED),
    "append": ("main", lambda folder: ("append", folder / "q"), INTERRUPTED),
    # so many that it has not ended by itself, however late a signal comes
    "demo": ("main", lambda _: ("demo", "--count", 4_000_000), INTERRUPTED),
    "wire-dump": ("wire_dump", lambda folder: ("--follow", folder / "q"), INTERRUPTED),
    "proxy": ("wire_dump", lambda _: ("--proxy", "127.0.0.1:0=127.0.0.1:9"), INTERRUPTED),
}


def catches(pid: int, number: int) -> bool:
    """True when a process has asked for a signal."""
    found = CAUGHT.search(Path(f"/proc/{pid}/status").read_text())
    return found is not None and bool(int(found.group(1), 16) >> (number - 1) & 1)


def ended(words: list[str], number: int, delay_seconds: float) -> tuple[int, str]:
    """Starts a command, sends it a signal a while after it has asked for one; its exit code, and
    what it has said."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True
    ) as command:
        assert command.stdin is not None
        assert command.stderr is not None
        try:
            until = time.monotonic() + SECONDS
            while not catches(command.pid, signal.SIGTERM):
                assert command.poll() is None, command.stderr.read()
                assert time.monotonic() < until, "it never asked for SIGTERM"
            with suppress(subprocess.TimeoutExpired):
                command.wait(timeout=delay_seconds)
                raise AssertionError(command.stderr.read())  # nothing here ends by itself
            command.send_signal(number)
            return command.wait(timeout=SECONDS), command.stderr.read()
        finally:
            command.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("delays", [DELAYS, pytest.param(DELAYS_ALL, marks=pytest.mark.long)])
@pytest.mark.parametrize("which", COMMANDS)
def test_it_ends_in_order_at_any_moment(
    which: str, delays: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    entry, arguments, codes = COMMANDS[which]
    program = f"from cqrepl.__main__ import {entry}; {entry}()"
    words = [sys.executable, "-P", "-c", program, *map(str, arguments(tmp_path))]
    for nth, delay_seconds in enumerate(delays):
        for number in list(codes)[nth % 2 :: 2]:
            code, said = ended(words, number, delay_seconds)
            assert (code, delay_seconds) == (codes[number], delay_seconds), said
            assert all(re.match("cqrepl|wire-dump", line) for line in said.splitlines()), said
    assert not list(temporary.iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_sighup_does_not_end_a_host_that_still_starts(tmp_path: Path) -> None:
    """It reads its file in a moment anyway; a supervisor's reload may come that early."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    words = ["run", "-c", hosts_of(tmp_path), *AS_HOST, "--run-dir", tmp_path / "run"]
    command = [sys.executable, "-P", "-m", "cqrepl", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as host:
        assert host.stderr is not None
        try:
            until = time.monotonic() + SECONDS
            while not catches(host.pid, signal.SIGTERM):
                assert time.monotonic() < until, "it never asked for SIGTERM"
            host.send_signal(signal.SIGHUP)
            said = ""
            while "nothing has changed" not in said:
                line = host.stderr.readline()
                assert line, said
                said += line
            host.send_signal(signal.SIGTERM)
            assert host.wait(SECONDS) == 0
        finally:
            host.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_one_that_comes_while_the_interpreter_ends_changes_no_exit_code(number: int) -> None:
    """Objects left in the main module go when the interpreter has given back its signals."""
    program = (
        "import os\n"
        "class Late:\n"
        f"    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, {int(number)})\n"
        "late = Late()\n"
        "from cqrepl.__main__ import main; main()\n"
    )
    words = [sys.executable, "-P", "-c", program, "no-such-command"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
