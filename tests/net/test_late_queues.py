"""Too few descriptors at the start: the queues that find some run, the others come later."""

import re
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.replicas import BEATS, LOOPBACK, acked, at, copied, eventually
from tests.support.samples import fill, noon_path
from tests.support.unreadable import made_unreadable

NAMES = [f"q{nth:02}" for nth in range(24)]


@pytest.mark.parametrize(("role", "few"), [("source", 32), ("sink", 50)])
async def test_those_that_find_descriptors_run_and_the_others_come(
    role: str, few: int, tmp_path: Path
) -> None:
    before = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({few}, 4096))"
    for name in NAMES:
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
        fill(tmp_path / "copies" / name, "FAST_DAILY", {0: 1})
    queues = [str(tmp_path / name) for name in NAMES]
    paths = {name: tmp_path / "copies" / name for name in NAMES}
    copies = [f"{name}={path}" for name, path in paths.items()]
    async with commands() as start, commands(before=before) as start_poor:
        starts = {"source": start, "sink": start} | {role: start_poor}
        source = await starts["source"]("source", *queues, "--listen", at(0))
        sink = await starts["sink"]("sink", *copies, "--connect", at(await source.port()))
        poor, other = (source, sink) if role == "source" else (sink, source)
        await poor.says(re.compile("queue .* pauses: .*Too many open files"))
        if role == "sink":  # those that pause keep none of what was open
            await eventually(lambda: len(whole(paths)) >= 4)
        if role == "source":
            await copied(tmp_path / NAMES[0], tmp_path / "copies" / NAMES[0])
            await other.says(re.compile("pauses: the peer says: .*Too many open files"))
        assert "not a queue" not in poor.said
        assert "expected" not in poor.said
        resource.prlimit(poor.pid, resource.RLIMIT_NOFILE, (4096, 4096))
        for name in NAMES:
            await copied(tmp_path / name, tmp_path / "copies" / name)
        for each in (sink, source):
            await each.terminate()
            assert "Traceback" not in each.said
            assert "stopped" not in each.said
    for name in NAMES:
        assert_same(tmp_path / name, tmp_path / "copies" / name)


async def test_a_sink_takes_as_many_as_it_has_descriptors_for(tmp_path: Path) -> None:
    """Each new copy takes four, or six with the plain kernel, whose maps keep one each; none keeps
    two that another one needs, nor the last ones."""
    count, said = await taken_while_poor(tmp_path, NAMES, 6)
    assert count < 18
    assert "stopped" not in said


async def test_the_logs_of_those_that_pause_take_none_either(tmp_path: Path) -> None:
    """Each log needs as many as its queue. They are opened with it, and then have every excerpt."""
    names = NAMES[:12]
    _, said = await taken_while_poor(tmp_path, names, 3, "--append-log", tmp_path / "logs")
    assert "logged no more" not in said
    for name in names:
        with Queue.open(tmp_path / "logs" / name) as log:
            assert sum(ENTRY.unpack(bytes(entry))[3] for entry in log.tailer()) == 3


async def taken_while_poor(
    tmp_path: Path, names: list[str], least: int, *words: str | Path
) -> tuple[int, str]:
    """A sink of new copies has 70 descriptors, until it has taken `least` of them; then all come.

    Returns:
        How many it had taken, and what it said.
    """
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (70, 4096))"
    copies = {name: tmp_path / "copies" / name for name in names}
    sources = {name: tmp_path / name for name in names}
    for path in sources.values():
        fill(path, "FAST_DAILY", {0: 3})
    async with commands(90, before=before) as start_poor:
        async with serve_source(sources, listen=LOOPBACK, **BEATS) as source:
            named = [f"{name}={path}" for name, path in copies.items()]
            sink = await start_poor("sink", *named, "--connect", at(source.port), *words)
            await sink.says(re.compile("pauses: .*Too many open files"))
            await eventually(lambda: len(whole(copies)) >= least)
            count = len(whole(copies))
            resource.prlimit(sink.pid, resource.RLIMIT_NOFILE, (4096, 4096))
            await eventually(lambda: len(whole(copies)) == len(names))
            assert not source.stops
        await sink.terminate()
    for name in names:
        assert_same(sources[name], copies[name])
    return count, sink.said


def whole(copies: dict[str, Path]) -> list[str]:
    """Names of the copies that have all three excerpts."""
    found = []
    for name, path in copies.items():
        with suppress(QueueError, OSError), Queue.open(path) as queue:
            if queue.count() == 3:
                found.append(name)
    return found


async def test_a_queue_that_cannot_be_opened_at_the_start_of_its_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink hears why nothing comes; the other queue goes out meanwhile."""
    written = {name: fill(tmp_path / name, "FAST_DAILY", {0: 3}) for name in NAMES[:2]}
    late, good = NAMES[:2]
    sources = {name: tmp_path / name for name in written}
    sinks = {name: tmp_path / "copies" / name for name in written}
    bring_back = made_unreadable(noon_path(sources[late]))
    async with serve_source(sources, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(sinks, connect=at(source.port), **BEATS) as sink:
            await acked(source, written[good][-1][0], good)
            await eventually(lambda: sink.queues[late].life.trouble is not None)
            assert list(source.queues) == [good]
            bring_back()
            await eventually(lambda: late in source.queues)
            await acked(source, written[late][-1][0], late)
            assert not source.stops + sink.stops
    assert f"queue '{late}' pauses: the peer says: " in caplog.text
    assert_same(sources[late], sinks[late])


async def test_a_source_of_nothing_else_does_not_start(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    bring_back = made_unreadable(noon_path(tmp_path / "q"))
    with pytest.raises(QueueError, match="cannot be opened: Too many levels"):
        async with serve_source([tmp_path / "q"], listen=LOOPBACK):
            raise AssertionError
    bring_back()
    async with serve_source([tmp_path / "q"], listen=LOOPBACK) as source:
        assert list(source.queues) == ["q"]
