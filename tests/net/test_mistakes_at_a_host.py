"""Mistakes of a program at a host: each error says what was expected, what came, and where."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cqrepl
import cqrepl.aio
import cqrepl.blocking
from cqrepl import Host, HostSettings, Queue
from tests.support.program import Echo
from tests.support.replicas import LOOPBACK

MAKERS: list[Any] = [Host, cqrepl.aio.Host, cqrepl.blocking.Host]


def here(path: Path) -> HostSettings:
    Queue.open_for_append(path, create="FAST_DAILY").close()
    return HostSettings.of(listen=LOOPBACK, sources={"orders": path})


def _later(*args: object) -> None:
    """Any function."""


BEFORE_ITS_BLOCK: list[Callable[[Host], object]] = [
    lambda host: host.port,
    lambda host: host.stops,
    lambda host: host.leaders,
    lambda host: host.queue("orders"),
    lambda host: host.path_of("orders"),
    lambda host: host.position("orders"),
    lambda host: host.forget(2),
    lambda host: host.differs_at("orders"),
]


@pytest.mark.parametrize("use", BEFORE_ITS_BLOCK)
def test_a_host_that_does_not_run_yet_says_so(
    tmp_path: Path, use: Callable[[Host], object]
) -> None:
    host = Host(here(tmp_path / "q"))
    with pytest.raises(RuntimeError, match="does not run yet: `async with` begins it"):
        use(host)


def test_a_host_of_asyncio_that_does_not_run_yet_has_not_ended(tmp_path: Path) -> None:
    host = cqrepl.aio.Host(here(tmp_path / "q"))
    with pytest.raises(RuntimeError, match="does not run yet: `async with` begins it"):
        host.position("orders")


async def test_no_queue_of_a_host_that_does_not_run_yet_changes(tmp_path: Path) -> None:
    host = Host(here(tmp_path / "q"))
    for work in (host.pause, host.resume, host.quarantine):
        with pytest.raises(RuntimeError, match="does not run yet"):
            await work("orders")
    with pytest.raises(RuntimeError, match="does not run yet"):
        await host.step_down("orders", "its disk is slow")
    with pytest.raises(RuntimeError, match="does not run yet"):
        await host.wait_stopped()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"programs": Echo}, "programs=: expected a list of programs, got <class"),
        ({"programs": [5]}, "expected a program, with kinds, connected, told, got 5"),
        ({"program": Echo}, "expected a program, with kinds, connected, told, got <class"),
        ({"events": _later}, "events=: expected HostEvents, or a list of them, got <function"),
        ({"events": [5]}, "events=: expected HostEvents, or a list of them, got 5"),
    ],
)
def test_what_is_no_program_is_refused_when_a_host_is_made(
    tmp_path: Path, make: Any, given: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(TypeError, match=wanted):
        make(here(tmp_path / "q"), **given)


@pytest.mark.parametrize("make", MAKERS)
def test_the_path_of_a_file_is_no_settings(make: Any) -> None:
    wanted = "expected HostSettings, as cqrepl.read_settings reads them, got 'cluster.yaml'"
    with pytest.raises(TypeError, match=wanted):
        make("cluster.yaml")


def test_an_event_that_is_no_function_is_named() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match="HostEvents: on_role_change=: expected a function, got 5"):
        cqrepl.HostEvents(on_role_change=wrong)


async def test_wrong_types_change_nothing(tmp_path: Path) -> None:
    wrong: Any = ["orders"]
    async with Host(here(tmp_path / "q")) as host:
        with pytest.raises(
            ValueError, match=r"expected one of the queues orders, got \['orders'\]"
        ):
            host.position(wrong)
        text: Any = "all"
        with pytest.raises(TypeError, match="policy=: expected an AckPolicy, got 'all': cqrepl"):
            await host.queue("orders").append(b"buy 100", policy=text)
        with pytest.raises(TypeError, match="policy=: expected an AckPolicy, got 'all'"):
            await host.queue("orders").wait_acked(0, policy=text)
        assert host.position("orders").last_index is None
