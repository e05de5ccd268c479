"""A host tells its program how things stand, from a thread that holds up nothing."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.host import Host
from cqrepl.protocol import StopReason
from cqrepl.queue.format.index import Index
from cqrepl.replicator.hostevents import HostEvents, _lag, telling
from cqrepl.replicator.reaches import Reach
from cqrepl.replicator.rolelog import Role
from cqrepl.replicator.settings import HostSettings
from cqrepl.replicator.source import serve_source
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    at,
    eventually,
    live_sink,
    live_source,
    more_excerpts,
    stopped,
)
from tests.support.samples import fill, noon_index

LAST = noon_index(sequence=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


class Told:
    """Keeps what it is told, and by which threads."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()

    @property
    def events(self) -> HostEvents:
        return HostEvents(
            on_acked=lambda *what: self._take("acked", *what),
            on_lag=lambda *what: self._take("lag", *what),
            on_diverged=lambda *what: self._take("diverged", *what),
            on_role=lambda *what: self._take("role", *what),
        )

    def of(self, kind: str) -> list[Any]:
        """The arguments of each call of one kind, in a list."""
        return [list(what) for name, *what in self.all if name == kind]

    def told_last(self, kind: str, what: list[Any]) -> bool:
        return bool(self.of(kind)[-1:] == [what])

    def _take(self, *what: Any) -> None:
        self.threads.add(threading.get_ident())
        self.all.append(what)


def source_host(path: Path, **more: Any) -> HostSettings:
    return HostSettings.of(listen=LOOPBACK, sources={"q": path}, **BEATS, **more)


def sink_host(copy: Path, port: int | None, **more: Any) -> HostSettings:
    return HostSettings.of(connect=at(port), sinks={"q": copy}, **BEATS, **more)


@pytest.mark.usefixtures("has_pump")
async def test_a_host_tells_what_is_safe_and_how_far_copies_are(path: Path, copy: Path) -> None:
    here, there = Told(), Told()
    async with Host(source_host(path), events=here.events) as host:
        await eventually(lambda: here.of("role") == [["q", Role.LEADING]])
        async with Host(sink_host(copy, host.port), events=there.events):
            await eventually(lambda: ["q", LAST] in here.of("acked"))
            for turn in range(5):
                (index, _), *_ = more_excerpts(path, 3 + turn, 1)
                await eventually(partial(here.told_last, "acked", ["q", index]))
            await eventually(lambda: here.of("lag")[-1:] == [["q", 2, 0]])
            await eventually(lambda: there.of("lag")[-1:] == [["q", 0, 0]])
    told = [index for _, index in here.of("acked")]
    assert told == sorted(set(told))
    assert there.of("role") == [["q", Role.FOLLOWING]]
    assert there.of("acked") == here.of("diverged") == there.of("diverged") == []
    assert threading.get_ident() not in here.threads | there.threads


async def test_a_program_that_takes_its_time_holds_up_nothing(path: Path, copy: Path) -> None:
    """Meanwhile nothing piles up: afterwards it hears how things stand then."""
    may_go_on, began = threading.Event(), threading.Event()
    told: list[int] = []

    def on_acked(queue: str, index: int) -> None:
        told.append(index)
        began.set()
        may_go_on.wait(SECONDS)

    async with Host(source_host(path), events=HostEvents(on_acked=on_acked)) as host:
        async with live_sink(copy, host.port):
            await trio.to_thread.run_sync(began.wait, SECONDS)
            queue = host.queue("q")
            with trio.fail_after(SECONDS):
                for _ in range(100):
                    index = await queue.append(b"more")
                    await queue.wait_acked(index)
            assert len(told) == 1
            may_go_on.set()
            await eventually(lambda: told[-1] == index)
    assert len(told) == 2


async def test_one_that_never_returns_does_not_keep_the_host_from_its_end(
    path: Path, copy: Path
) -> None:
    for_ever = threading.Event()
    try:
        events = HostEvents(on_role=lambda queue, role: print(for_ever.wait()))
        with trio.fail_after(SECONDS):
            async with Host(source_host(path), events=events) as host:
                async with live_sink(copy, host.port):
                    await host.queue("q").wait_acked(LAST)
    finally:
        for_ever.set()


async def test_a_mistake_of_the_program_is_logged_and_ends_nothing(
    path: Path, copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()

    def on_acked(queue: str, index: int) -> None:
        raise ZeroDivisionError("a mistake of the program")

    def on_role(queue: str, role: Role) -> None:
        raise LookupError("another one")

    events = HostEvents(on_acked=on_acked, on_role=on_role, on_lag=told.events.on_lag)
    async with Host(source_host(path), events=events) as host:
        async with live_sink(copy, host.port):
            await eventually(lambda: "a mistake of the program" in caplog.text)
            await eventually(lambda: ["q", 2, 0] in told.of("lag"))
            index = await host.queue("q").append(b"more")
            await host.queue("q").wait_acked(index)
    assert "failed in on_role(q, Role.LEADING): LookupError('another one')" in caplog.text
    assert "failed in on_acked(q, " in caplog.text


async def test_copies_that_differ_are_told_once_on_both_sides(path: Path, copy: Path) -> None:
    fill(copy, "FAST_DAILY", {0: 2})
    more_excerpts(copy, 2, 1, seed=8)
    here, there = Told(), Told()
    async with live_source(path) as source, telling(here.events, source):
        async with live_sink(copy, source.port) as sink, telling(there.events, sink=sink):
            await stopped(sink)
            await eventually(lambda: bool(here.of("diverged") and there.of("diverged")))
    for told in (here, there):
        ((stop,),) = told.of("diverged")
        assert (stop.name, stop.reason) == ("q", StopReason.DIVERGED)


async def test_roles_that_change(path: Path, copy: Path, tmp_path: Path) -> None:
    fill(tmp_path / "other", "FAST_DAILY", {0: 3})
    told = Told()
    settings = source_host(path)
    async with Host(settings, events=told.events) as host:
        await eventually(lambda: told.of("role") == [["q", Role.LEADING]])
        both = HostSettings.of(
            listen=LOOPBACK, sources={"q": path, "o": tmp_path / "other"}, **BEATS
        )
        await host.change(both)
        await eventually(lambda: told.of("role")[1:] == [["o", Role.LEADING]])
        await host.change(settings)
        await eventually(lambda: told.of("role")[2:] == [["o", Role.IDLE]])
        host.source.leading("q").has_stepped_down = True
        await eventually(lambda: told.of("role")[3:] == [["q", Role.IDLE]])


@pytest.mark.usefixtures("unhurried_ends")
async def test_what_is_new_at_the_end_is_told(path: Path, copy: Path) -> None:
    told = Told()
    async with serve_source([path], listen=LOOPBACK, **BEATS) as source:
        async with live_sink(copy, source.port), telling(told.events, source):
            await source.wait_acked(LAST)
        assert ["q", LAST] in told.of("acked")


@pytest.mark.parametrize(
    ("held", "end", "before", "lag"),
    [
        (LAST, LAST, None, 0),
        (LAST, LAST + 5, LAST, 0),
        (LAST, LAST + 5, LAST + 4, 4),
        (LAST, LAST + 5, None, 5),
        (-1, LAST, LAST, None),
        (LAST, noon_index(ahead=1, sequence=1), noon_index(ahead=1), None),
        (-1, 4, 4, 5),
    ],
)
def test_a_lag_is_what_was_there_before(
    held: int, end: int, before: int | None, lag: int | None
) -> None:
    assert _lag(Reach(queue="q", peer=2, held=held, end=Index(end), shift=32), before) == lag
