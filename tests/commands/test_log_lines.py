"""The log of a command that runs on, beside its data: lines for people, or JSON for programs."""

import json
import logging
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from cqrepl.commands.reachlog import QUIET_SECONDS, ReachLog
from cqrepl.console.loglines import LogChoice, port_told
from cqrepl.queue.format.index import Index, format_index
from cqrepl.replicator.reaches import Reach
from tests.support.commands import commands, until
from tests.support.invoke import Invoke
from tests.support.ports import reserved_port
from tests.support.replicas import at, last_of
from tests.support.samples import fill, noon_index

SHIFT = 32


def record(level: int = logging.INFO, said: str = "it is so") -> logging.LogRecord:
    logger = logging.getLogger("cqrepl.some.place")
    return logger.makeRecord(logger.name, level, "file", 1, "%s", (said,), None)


def test_what_a_file_or_a_peer_says_is_escaped() -> None:
    """It neither steers a terminal nor makes up lines of its own."""
    assert LogChoice(host_id=7).formatter("cqrepl run").format(record()) == "cqrepl run: it is so"
    said = "queue \x1b[2J\x9b1m\ncqrepl run: all is well\r\u202e"
    for verbosity in (0, 1):
        line = LogChoice(verbosity=verbosity).formatter("cqrepl run").format(record(said=said))
        escaped = "queue \\x1B[2J\\x9B1m\\x0Acqrepl run: all is well\\x0D\\u202E"
        assert line.endswith(f": {escaped}")


def test_all_of_the_log_says_when_and_where() -> None:
    line = LogChoice(verbosity=1, host_id=7).formatter("cqrepl run").format(record(logging.DEBUG))
    told = (
        r"cqrepl run: host 7 \d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z debug cqrepl\.some\.place: it is so"
    )
    assert re.fullmatch(told, line)


@pytest.mark.parametrize(
    ("verbosity", "level"), [(1, logging.DEBUG), (0, logging.INFO), (-1, logging.WARNING)]
)
def test_what_is_shown(verbosity: int, level: int) -> None:
    assert LogChoice(verbosity=verbosity).level == level


@pytest.mark.parametrize("before", ["", "a.py:3: UserWarning: at 1:2\n", "\x00 listening on\n"])
def test_the_port_is_in_the_first_whole_line_that_names_it(before: str) -> None:
    line = "cqrepl source: listening on [::1]:9009\n"
    said = f"{before}{line}cqrepl source: listening on 127.0.0.1:9010\n"
    end = len(before) + len(line)
    assert all(port_told(said[:upto]) is None for upto in range(end))
    assert port_told(said[:end]) == port_told(said) == 9009


def test_json_says_what_a_line_is_about() -> None:
    lines = LogChoice(as_json=True, host_id=7).formatter("cqrepl run")
    said = "host 2 at 127.0.0.1:9009: queue 'q-1' stopped (gap): at 0x4cdb00000000 of host 3"
    line = json.loads(lines.format(record(said=said)))
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "v": 1,
        "level": "info",
        "logger": "cqrepl.some.place",
        "host": 7,
        "queue": "q-1",
        "index": "0x4cdb00000000",
        "peer": 2,
        "message": said,
    }
    bare = json.loads(LogChoice(as_json=True).formatter("cqrepl run").format(record()))
    assert set(bare) == {"v", "time", "level", "logger", "message"}


def test_json_has_the_trace_of_an_error() -> None:
    try:
        raise LookupError("no such thing")
    except LookupError:
        found = record()
        found.exc_info = sys.exc_info()
    line = json.loads(LogChoice(as_json=True).formatter("x").format(found))
    assert "LookupError: no such thing" in line["trace"]


def reach(held: int, end: int) -> Reach:
    """One copy of the queue "q", on host 2."""
    return Reach(
        queue="q",
        peer=2,
        held=noon_index(sequence=held),
        end=Index(noon_index(sequence=end)),
        shift=SHIFT,
    )


class Looks:
    """Looks one after the other, and what each of them said."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self._log = ReachLog()

    def __call__(self, now: float, *reaches: Reach) -> list[str]:
        self._caplog.clear()
        self._log.look(reaches, now)
        return [each.getMessage() for each in self._caplog.records]


def test_a_copy_catches_up_and_falls_behind(caplog: pytest.LogCaptureFixture) -> None:
    look = Looks(caplog)
    assert look(0.0, reach(3, 9)) == []  # the first look only sees where it stands
    assert look(1.0, reach(5, 9)) == ["queue 'q', host 2: behind by 4 excerpts"]
    assert look(2.0, reach(7, 9)) == []  # said less than a minute ago
    caught_up = [f"queue 'q', host 2: caught up at {format_index(Index(noon_index(sequence=9)))}"]
    assert look(3.0, reach(9, 9)) == caught_up
    assert look(4.0, reach(9, 9)) == []
    assert look(5.0, reach(9, 12)) == []  # on its way
    assert look(6.0, reach(12, 30)) == []


def test_each_is_said_once_a_minute_at_most(caplog: pytest.LogCaptureFixture) -> None:
    look = Looks(caplog)
    look(0.0, reach(1, 9))
    assert len(look(1.0, reach(1, 9))) == 1
    assert len(look(2.0, reach(9, 9))) == 1
    for second in range(3, 60, 2):
        assert look(float(second), reach(9, 20)) == []
        assert look(float(second + 1), reach(10, 20)) == []
    assert look(1.0 + QUIET_SECONDS, reach(11, 20)) == ["queue 'q', host 2: behind by 9 excerpts"]
    assert look(2.0 + QUIET_SECONDS, reach(20, 20)) != []
    # what could not be said in its minute is said when that is over, if it is still so
    look(3.0 + QUIET_SECONDS, reach(20, 30))
    assert look(1.0 + 2 * QUIET_SECONDS, reach(21, 30)) != []
    assert look(1.5 + 2 * QUIET_SECONDS, reach(30, 30)) == []
    assert look(2.5 + 2 * QUIET_SECONDS, reach(30, 30)) != []


def test_a_copy_that_comes_again_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    look = Looks(caplog)
    look(0.0, reach(9, 9))
    assert len(look(1.0, reach(9, 9))) == 1
    assert look(2.0) == []
    assert look(3.0, reach(9, 9)) == []
    assert len(look(1.0 + QUIET_SECONDS, reach(9, 9))) == 1


def test_what_spans_cycles_is_not_counted() -> None:
    later = Index(noon_index(ahead=1, sequence=9))
    assert reach(9, 9).lag == "0 excerpts"
    assert Reach(queue="q", peer=2, held=0, end=later, shift=SHIFT).lag == "more than a cycle"


async def test_a_source_and_a_sink_say_how_far_they_are(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    last = last_of(tmp_path / "q")
    assert last is not None
    told = f"caught up at {format_index(Index(last))}"
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", "127.0.0.1:0")
        port = await source.port()
        sink = await start(
            *("sink", f"q={tmp_path / 'copy'}", "--connect", at(port), "--log-json", "-v")
        )
        await until(lambda: f"queue 'q', host 2: {told}" in source.said)
        await until(lambda: f"queue 'q': {told}" in sink.said)
        lines = [json.loads(line) for line in sink.said.splitlines()]
        assert all(line["v"] == 1 and line["host"] == 2 for line in lines)
        assert any("taken in from" in line["message"] for line in lines)
        (line,) = [line for line in lines if told in line["message"]]
        assert (line["queue"], line["index"]) == ("q", format_index(Index(last)))


async def test_a_quiet_one_says_what_is_wrong_only(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    port = reserved_port()
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", at(port), "-q")
        await start("sink", f"q={tmp_path / 'copy'}", "--connect", at(port))
        await until(lambda: last_of(tmp_path / "copy") is not None)
        assert source.said == ""


def test_an_error_is_a_line_of_json_too(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "q").mkdir()
    arguments = ("source", tmp_path / "q", "--listen", "127.0.0.1:0")
    plain = invoke(*arguments)
    as_json = invoke(*arguments, "--log-json", "--host-id", 9)
    assert (plain.exit_code, as_json.exit_code) == (2, 2)
    line = json.loads(as_json.stderr)
    assert (line["level"], line["host"], as_json.stdout) == ("error", 9, "")
    assert f"cqrepl source: {line['message']}\n" == plain.stderr


def test_an_error_has_its_trace_where_all_is_shown(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    words = ("source", tmp_path / "q", "--listen", "127.0.0.1:0", "-v")
    command = [sys.executable, "-P", "-m", "cqrepl", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "Traceback" not in done.stdout
