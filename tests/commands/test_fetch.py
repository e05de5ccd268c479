"""`cqrepl repair --from`: closed store files come from another host."""

import json
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.net.test_fetching import append
from tests.support.commands import commands, until
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import last_of
from tests.support.samples import noon_path, read

__all__ = ["invoke"]
COUNTS = {0: 30, 1: 40, 2: 4}
NOTED_BYTES = 2 * 48


def is_noted(path: Path) -> bool:
    """True when it is noted what the closed cycles of a queue hold."""
    noted = path / "closed.cqmanifest"
    return noted.exists() and noted.stat().st_size >= NOTED_BYTES


async def test_from_a_running_source(tmp_path: Path) -> None:
    """The file went while no sink ran: the next start would tell, and take it by itself."""
    append(tmp_path / "q", COUNTS)
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", "127.0.0.1:0")
        to = f"127.0.0.1:{await source.port()}"
        sink = await start("sink", f"q={tmp_path / 'copy'}", "--connect", to)
        await until(partial(is_noted, tmp_path / "copy"))
        await sink.terminate()
        noon_path(tmp_path / "copy", ahead=1).unlink()
        mends = "repair", tmp_path / "copy", "--from", to
        await (await start(*mends, "--name", "q")).succeeds()
        assert not noon_path(tmp_path / "copy", ahead=1).exists(), "only said"
        wrong = await start(*mends, "--apply")
        assert await wrong.exit_code() == 5
        assert "there is no queue of this name here" in wrong.said
        await (await start(*mends, "--name", "q", "--apply")).succeeds()
        assert read(tmp_path / "copy") == read(tmp_path / "q")


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_running_commands_help_each_other(tmp_path: Path, side: str) -> None:
    """One queue each: neither command ends over the stop, and both end in order afterwards."""
    append(tmp_path / "q", COUNTS)
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", "127.0.0.1:0")
        to = f"127.0.0.1:{await source.port()}"
        sink = await start("sink", f"q={tmp_path / 'copy'}", "--connect", to)
        for name in ("q", "copy"):
            await until(partial(is_noted, tmp_path / name))
        file = noon_path(tmp_path / side, ahead=1)
        file.unlink()
        loser = source if side == "q" else sink
        await until(lambda: f"gave back {file.name}" in loser.said)
        with Queue.open_for_append(tmp_path / "q") as queue:
            last = queue.append(b"more")
        await until(lambda: last_of(tmp_path / "copy") == last)
        await sink.terminate()
        await source.terminate()
    assert read(tmp_path / "copy") == read(tmp_path / "q")


async def test_commands_whose_copies_differ(tmp_path: Path) -> None:
    """The source does not end over the stop: its sink puts its copy right, and comes again."""
    append(tmp_path / "q", COUNTS)
    append(tmp_path / "copy", COUNTS, b"unlike")
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", "127.0.0.1:0")
        to = f"127.0.0.1:{await source.port()}"
        copy = f"q={tmp_path / 'copy'}"
        sink = await start("sink", copy, "--connect", to, "--on-divergence", "quarantine")
        await until(lambda: "went to" in sink.said)
        await until(lambda: last_of(tmp_path / "copy") == last_of(tmp_path / "q"))
        await sink.terminate()
        await source.terminate()
    assert read(tmp_path / "copy") == read(tmp_path / "q")


def test_nothing_to_fetch(tmp_path: Path, invoke: Invoke) -> None:
    append(tmp_path / "q", COUNTS)
    result = invoke("repair", tmp_path / "q", "--from", "127.0.0.1:1")
    assert result.exit_code == 0
    assert "holds what it held" in result.stdout
    result = invoke("repair", tmp_path / "q", "--from", "127.0.0.1:1", "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--from", "x"], "HOST:PORT expected"),
        (["--from", "h:1", "--reseed"], "exclude each other"),
        (["--from", "h:1", "--apply", "--backup", "b"], "does not go with --from"),
        (["--name", "q"], "go with --from"),
        (["--remote-id", "3"], "go with --from"),
        (["--from", "h:1", "--remote-id", "0"], "0 is not in the range"),
    ],
)
def test_what_does_not_go_together(
    tmp_path: Path, invoke: Invoke, arguments: list[str], text: str
) -> None:
    append(tmp_path / "q", COUNTS)
    result = invoke("repair", tmp_path / "q", *arguments)
    assert result.exit_code == 2
    assert text in result.stderr


async def test_commands_that_are_to_end_wait_for_what_is_given_back(tmp_path: Path) -> None:
    """The other side has it, and is connected: both end when it has come, and in order."""
    append(tmp_path / "q", COUNTS)
    to_end = {"q": "--until-caught-up", "copy": "--once"}
    async with commands() as start:
        for ends in ({}, to_end):
            source = await start(
                "source", tmp_path / "q", "--listen", "127.0.0.1:0", *filter(None, [ends.get("q")])
            )
            to = f"127.0.0.1:{await source.port()}"
            sink = await start(
                "sink", f"q={tmp_path / 'copy'}", "--connect", to, *filter(None, [ends.get("copy")])
            )
            if not ends:
                for name in ("q", "copy"):
                    await until(partial(is_noted, tmp_path / name))
                await sink.terminate()
                await source.terminate()
                noon_path(tmp_path / "copy", ahead=1).unlink()
        for each in (source, sink):
            assert await each.exit_code() == 0, f"{source.said}\n{sink.said}"
        assert "gave back" in sink.said
    assert read(tmp_path / "copy") == read(tmp_path / "q")
