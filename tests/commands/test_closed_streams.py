"""Commands that are started without standard input, output or error, by a shell's `<&-` and `>&-`.

What is opened next would get their numbers, and what is said would be written into a queue.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from tests.support.commands import until
from tests.support.samples import fill, read

PROGRAM = f"{sys.executable} -P -m cqrepl"
STREAMS = (0, 1, 2)


def done(words: str, closed: str) -> subprocess.CompletedProcess[str]:
    """A command without some streams, at its end."""
    asked = ["sh", "-c", f"exec {PROGRAM} {words} {closed}"]
    return subprocess.run(asked, capture_output=True, text=True, input="", check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_that_stays_has_no_file_under_their_numbers(path: Path, closed: str) -> None:
    before = read(path)
    asked = f"exec {PROGRAM} source {path} --listen 127.0.0.1:0 {closed}"
    with subprocess.Popen(["sh", "-c", asked]) as command:

        def has_opened_it() -> bool:
            assert command.poll() is None
            maps = Path(f"/proc/{command.pid}/maps").read_text()
            return str(path) in maps

        trio.run(until, has_opened_it)
        found = {n: os.readlink(f"/proc/{command.pid}/fd/{n}") for n in STREAMS}
        assert not [each for each in found.values() if str(path) in each]
        assert found[2] == os.devnull
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0
    assert read(path) == before


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("info {path}", "2>&-", 0),
        ("info {path}/none", "2>&-", 2),
        ("verify {path}", "2>&- <&-", 0),
        ("append {path} --lines", "<&-", 2),
        ("--version", "2>&-", 0),
        ("--version", ">/dev/full", 2),
        ("--help", ">/dev/full", 2),
        ("tail --help", ">/dev/full", 2),
        ("demo --count 10", ">/dev/full", 2),
    ],
)
def test_a_command_ends_as_it_would(path: Path, words: str, closed: str, code: int) -> None:
    ended = done(words.format(path=path), closed)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert "2>&-" in closed or bool(ended.stderr) == bool(code)
    with Queue.open(path) as queue:
        assert queue.count() == 3


def test_what_a_command_starts_has_all_three() -> None:
    program = (
        "import os, subprocess\n"
        "from cqrepl.console.standardstreams import fill_closed_streams\n"
        "fill_closed_streams()\n"
        "os._exit(subprocess.run(['sh', '-c', 'true <&0 && true >&1 && true >&2']).returncode)\n"
    )
    asked = ["sh", "-c", f'exec {sys.executable} -P -c "$1" <&- >&- 2>&-', "sh", program]
    assert subprocess.run(asked, check=False).returncode == 0
