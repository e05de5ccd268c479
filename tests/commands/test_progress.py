"""The line of progress: on a terminal only, and with a lag that can be trusted."""

import io
import re
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.commands.progress import PAUSE_SECONDS, lag_text, show_progress
from cqrepl.queue import Queue
from cqrepl.replicator.sink import serve_sink
from tests.support.replicas import LOOPBACK, acked, live_sink, live_source, more_excerpts
from tests.support.samples import NOON_MS, fill, noon_index, noon_path, read
from tests.support.terminal import Terminal, said_on_a_terminal

DAY_MS = 86_400_000


async def test_lag(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 10})
    async with live_source(path) as source:
        assert lag_text(source) == "more than a cycle"  # no sink has acknowledged anything
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
        assert lag_text(source) == "0"
        more_excerpts(path, 10, 7)
        assert lag_text(source) == "7"
        with Queue.open_for_append(path) as queue:
            queue.appender().append([b"tomorrow"], NOON_MS + DAY_MS)
        assert lag_text(source) == "more than a cycle"
        with noon_path(path, ahead=1).open("r+b") as store:
            store.write(b"garbage in the header")
        assert lag_text(source) == "not known"


async def test_lag_of_an_empty_queue(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {})
    async with live_source(tmp_path / "q") as source:
        assert lag_text(source) == "0"


async def test_line_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    async with live_source(tmp_path / "q") as source:
        queue = source.queues["q"]
        index_last = noon_index(sequence=9)
        queue.counters.count_sent(queue.marks_of(2), index_last, 1234, 5_670_000, is_in_order=True)
        with trio.move_on_after(3.5 * PAUSE_SECONDS):
            await show_progress(source)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert len(lines) == 5
    assert re.fullmatch(r"1,234 excerpts  5\.67 MB  [\d,]+/s  lag more than a cycle", lines[1])
    assert re.fullmatch(r"1,234 excerpts  5\.67 MB  0/s  lag more than a cycle", lines[2])
    assert (lines[0], lines[-1]) == ("", "")  # cleared at the end


async def test_line_of_a_sink_has_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    async with serve_sink([tmp_path / "q"], listen=LOOPBACK) as sink:
        with trio.move_on_after(1.5 * PAUSE_SECONDS):
            await show_progress(sink)
    assert "0 excerpts  0 B  0/s" in terminal.getvalue()
    assert "lag" not in terminal.getvalue()


async def test_nothing_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    async with serve_sink([tmp_path / "q"], listen=LOOPBACK) as sink:
        await show_progress(sink)  # ends at once
    assert quiet.getvalue() == ""


def test_command_on_a_terminal(tmp_path: Path) -> None:
    """A real one: the line is there, the log lines too, and it ends clean."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    command = [sys.executable, "-P", "-m", "cqrepl", "source", str(tmp_path / "q")]
    said = said_on_a_terminal([*command, "--listen", LOOPBACK], b"lag")
    assert b"cqrepl source: listening on 127.0.0.1:" in said
    assert b"0 excerpts  0 B  0/s  lag more than a cycle" in said
    assert len(read(tmp_path / "q")) == 10
