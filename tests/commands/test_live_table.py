"""The table of a running host, and the lines that stand above it."""

import os
import pty
import re
import sys
import termios
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from cqrepl import HostSettings, NetSettings, ProtocolSettings, serve_host
from cqrepl.commands.livetable import LiveTable
from cqrepl.commands.progress import PAUSE_SECONDS, show_progress
from cqrepl.commands.screen import Screen
from cqrepl.net.address import Address
from tests.support.clusters import OLDER_PAGE
from tests.support.ports import reserved_port
from tests.support.replicas import LOOPBACK
from tests.support.samples import fill
from tests.support.terminal import Terminal, said_on_a_terminal


def seen(text: str) -> list[str]:
    """The lines on a terminal once this was written to it: it knows the few signs that we use."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[\d*[AKJ]|[\r\n]|[^\x1b\r\n]+", text):
        if piece == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            column = 0
        elif piece.endswith("A") and piece.startswith("\x1b"):
            row -= int(piece[2:-1])
        elif piece == "\x1b[K":
            lines[row] = lines[row][:column]
        elif piece == "\x1b[J":
            lines[row:] = [lines[row][:column]]
        else:
            lines[row] = lines[row][:column] + piece + lines[row][column + len(piece) :]
            column += len(piece)
    return lines


def test_lines_stand_above_what_is_drawn() -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    screen.write("first\n")
    screen.draw(["a table", "of two lines"])
    screen.write("second\n")
    assert seen(terminal.getvalue()) == ["first", "second", "a table", "of two lines"]
    screen.draw(["now", "of", "three"])
    screen.write("third\n")
    assert seen(terminal.getvalue()) == ["first", "second", "third", "now", "of", "three"]
    screen.clear()
    screen.write("last\n")
    assert seen(terminal.getvalue()) == ["first", "second", "third", "last", ""]


def test_nothing_is_drawn_that_the_terminal_has_no_room_for() -> None:
    near, far = pty.openpty()
    try:
        termios.tcsetwinsize(far, (4, 10))
        with os.fdopen(os.dup(far), "w") as stream:
            Screen(stream).draw(["0123456789"] * 9)
        assert os.read(near, 4096).count(b"012345678") == 3
    finally:
        os.close(near)
        os.close(far)


def host(sent: int, **more: Any) -> dict[str, Any]:
    """A host with one queue of each kind, as it says of itself."""
    sinks = [
        {"host": 2, "state": "live", "lag": 0, "acknowledged": "0x2"},
        {"host": 3, "state": "away", "lag": None, "acknowledged": None},
    ]
    one = {"name": "q", "role": "source", "last": "0x2", "excerpts": sent, "bytes": 10 * sent}
    two = {"name": "r", "role": "sink", "last": None, "excerpts": 0, "bytes": 0, "master": 2}
    peers = [{"host": 2, "state": "connected"}, {"host": 3, "state": "away"}]
    queues = [{**one, "state": "live", "sinks": sinks, **more}, {**two, "state": "waits"}]
    return {"host": 1, "peers": peers, "queues": queues}


def cells(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_a_line_for_each_sink_and_for_each_queue_that_comes_in() -> None:
    live = LiveTable()
    title, _, *rows = live.lines(host(100), 10.0, 40)
    assert title == "host 1: 1 of 2 peers connected, 2 queues, 100 excerpts"
    assert cells(rows) == [
        ["q", "source", "host", "2", "0x2", "0", "0", "0", "-", "live"],
        ["host", "3", "?", "?", "0.0s", "away"],
        ["r", "sink", "host", "2", "-", "-", "-", "-", "-", "waits"],
    ]
    rows = live.lines(host(600), 12.5, 40)[2:]
    assert cells(rows)[0][-2:] == ["200/s", "live"]


def behind(lag: int | None, end: int) -> dict[str, Any]:
    """A host that has sent excerpts of 10 bytes, and one sink that lacks so many."""
    sink = {"host": 2, "state": "live", "lag": lag, "acknowledged": None}
    return host(100, sinks=[sink], last=hex(end))


def lag_of(lines: list[str]) -> list[str]:
    """The lag of the first queue, in excerpts, bytes and time."""
    return re.split(r" {2,}", lines[2])[4:7]


def test_the_lag_in_excerpts_bytes_and_time() -> None:
    live = LiveTable()
    looks = [(0.0, 0, 10), (1.0, 5, 15), (2.5, 5, 15), (3.0, 20, 35), (4.0, 15, 35), (200.0, 1, 36)]
    assert [lag_of(live.lines(behind(lag, end), now, 40)) for now, lag, end in looks] == [
        ["0", "0", "0"],
        ["5", "~50 B", "0.0s"],
        ["5", "~50 B", "1.5s"],
        ["20", "~200 B", "0.0s"],  # the first five have come, what is missing was seen later
        ["15", "~150 B", "1.0s"],
        ["1", "~10 B", "0.0s"],
    ]
    assert lag_of(live.lines(behind(None, 40), 400.0, 40)) == ["?", "?", "3min"]


def test_many_ends_are_remembered_less_finely() -> None:
    live = LiveTable()
    for second in range(3000):
        lines = live.lines(behind(second, second + 1), float(second), 40)
    assert lag_of(lines)[2] == "50min"


def test_a_queue_that_has_stopped_says_so_at_each_sink() -> None:
    rows = LiveTable().lines(host(1, state="stopped: it is\nbroken"), 1.0, 40)[2:]
    assert all(row.endswith("stopped: it is broken") for row in rows[:2])


def test_what_has_no_room_is_counted() -> None:
    lines = LiveTable().lines(host(1), 1.0, 4)
    assert len(lines) == 4
    assert lines[-1] == "and 2 lines more"


async def test_a_host_on_a_terminal(tmp_path: Path, autojump_clock: MockClock) -> None:
    terminal = Terminal()
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    settings = HostSettings(
        net=NetSettings(listen=Address.parse(LOOPBACK)),
        protocol=ProtocolSettings(host_id=1, remote_ids=frozenset({2})),
    )
    async with serve_host(settings, sources={"q": tmp_path / "q"}, sinks={}) as running:
        with trio.move_on_after(2.5 * PAUSE_SECONDS):
            await show_progress(running, Screen(terminal))
    text = terminal.getvalue()
    assert "host 1: 0 of 1 peer connected, 1 queue, 0 excerpts\n" in text
    assert seen(text) == [""]  # cleared at the end


def test_the_command_on_a_terminal(tmp_path: Path) -> None:
    """A real one: the table is there, the log lines too, and it ends clean."""
    (tmp_path / "c.yaml").write_text(OLDER_PAGE)
    names = [f"--address=host.port{each}=127.0.0.1:{reserved_port()}" for each in (1, 2)]
    command = [sys.executable, "-P", "-m", "cqrepl", "run", "-c", "c.yaml", "--host-id", "1"]
    said = said_on_a_terminal([*command, *names, "--run-dir", "run"], b"away", cwd=tmp_path)
    lines = seen(said.decode().replace("\r\n", "\n"))
    assert any(line.startswith("cqrepl run: listening on 127.0.0.1:") for line in lines)
    assert "host 1: 0 of 1 peer connected, 1 queue, 0 excerpts" in lines
    (row,) = [line.split() for line in lines if line.startswith("queue1")]
    assert row == ["queue1", "source", "host", "2", "-", "0", "0", "0", "-", "away"]
