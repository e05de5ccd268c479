"""A program hears each change of its host's roles, in order, however slow it is."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cqrepl.blocking
from cqrepl import AckLevel, AckOutcome, AckPolicy, Host, HostEvents, Role, RoleChange
from cqrepl.replicator.hostevents import EventDesk, telling
from cqrepl.replicator.rolelog import WAITING_MAX, RoleLog, RoleReader
from cqrepl.replicator.settings import HostSettings
from cqrepl.surroundings import Surroundings
from tests.support.promotions import cluster
from tests.support.replicas import BEATS, LOOPBACK, eventually, live_source
from tests.support.samples import fill

LEADING, FOLLOWING, IDLE = Role.LEADING, Role.FOLLOWING, Role.IDLE


def change(epoch: int, role: Role, leader: int | None, queue: str = "a") -> RoleChange:
    return RoleChange(queue=queue, epoch=epoch, role=role, leader=leader)


class Slow:
    """A program that waits in its first call until it may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.is_called = threading.Event()
        self.roles: list[Role] = []
        self.changes: list[RoleChange] = []

    @property
    def events(self) -> HostEvents:
        return HostEvents(on_role=self._on_role, on_role_change=self.changes.append)

    def _on_role(self, queue: str, role: Role) -> None:
        self.is_called.set()
        self.may_go_on.wait()
        self.roles.append(role)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.may_go_on.set()


async def test_a_slow_program_hears_that_its_host_was_deposed_and_leads_again(
    tmp_path: Path, slow: Slow
) -> None:
    """It is in its first call all the while; a quick one beside it has the same order."""
    async with cluster(tmp_path, 2) as hosts:
        hosts.events[1] = [slow.events]
        await hosts.followed({2: 3})
        await eventually(slow.is_called.is_set)
        await hosts.hosts[2].leaders.promote("a")
        await eventually(lambda: hosts.changes[1][-1:] == [change(1, FOLLOWING, 2)])
        await hosts.meet()
        await hosts.follow(2)
        await hosts.hosts[1].leaders.promote("a")
        await eventually(lambda: hosts.changes[1][-1:] == [change(2, LEADING, 1)])
        assert slow.roles == []
        slow.may_go_on.set()
        await eventually(lambda: slow.changes == hosts.changes[1])
        assert slow.roles == hosts.roles[1] == [LEADING, IDLE, FOLLOWING, LEADING]
        assert slow.changes == [
            change(0, LEADING, 1),
            change(1, IDLE, 2),
            change(1, FOLLOWING, 2),
            change(2, FOLLOWING, None),
            change(2, LEADING, 1),
        ]


async def test_a_host_that_gives_up_the_lead_names_no_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        await hosts.hosts[1].step_down("a", "it is slow")
        await eventually(lambda: len(hosts.changes[1]) == 3)
        assert hosts.changes[1] == [
            change(0, LEADING, 1),
            change(1, IDLE, None),
            change(1, FOLLOWING, None),
        ]


async def test_a_copy_hears_of_each_new_leader(tmp_path: Path) -> None:
    """Its role stays, so `on_role` says nothing."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        await eventually(lambda: hosts.changes[3] == [change(0, FOLLOWING, 1)])
        await hosts.hosts[2].leaders.promote("a")
        await eventually(lambda: hosts.changes[3][-1:] == [change(1, FOLLOWING, 2)])
        assert hosts.roles[3] == [FOLLOWING]


async def test_a_leader_that_a_policy_has_step_down_and_lead_again_is_told_both(
    tmp_path: Path, slow: Slow
) -> None:
    """Though it leads again before anything looks."""
    fill(tmp_path / "a", "FAST_DAILY", {0: 1})
    policy = AckPolicy(level=AckLevel.APPENDED, timeout_seconds=0.001, on_timeout="step_down")
    async with live_source(tmp_path / "a") as source, telling(slow.events, source):
        await eventually(slow.is_called.is_set)
        leading = source.leading()
        index = leading.append([b"x"])
        outcome = await source.wait_acked(index, policy=policy)
        assert outcome is AckOutcome.STEPPED_DOWN
        leading.lead_again()
        slow.may_go_on.set()
        await eventually(lambda: slow.roles == [LEADING, IDLE, LEADING])
        assert [each.leader for each in slow.changes] == [1, None, 1]


async def test_a_queue_that_comes_and_goes_is_told_as_added_and_removed(
    tmp_path: Path, slow: Slow
) -> None:
    paths = {name: tmp_path / name for name in ("a", "b")}
    for path in paths.values():
        fill(path, "FAST_DAILY", {0: 1})

    def settings(*names: str) -> HostSettings:
        sources = {name: paths[name] for name in names}
        return HostSettings.of(listen=LOOPBACK, sources=sources, **BEATS)

    async with Host(settings("a"), events=slow.events) as host:
        await eventually(slow.is_called.is_set)
        for _ in range(2):
            await host.change(settings("a", "b"))
            await host.change(settings("a"))
        slow.may_go_on.set()
        told = [change(0, LEADING, 1, "b"), change(0, IDLE, None, "b")]
        await eventually(lambda: slow.changes == [change(0, LEADING, 1), *told, *told])


def test_a_blocking_host_tells_several_programs(tmp_path: Path, slow: Slow) -> None:
    """One that does not come back keeps none of the others waiting."""
    fill(tmp_path / "a", "FAST_DAILY", {0: 1})
    told, has_heard = list[RoleChange](), threading.Event()

    def on_role_change(each: RoleChange) -> None:
        told.append(each)
        has_heard.set()

    events = [slow.events, HostEvents(on_role_change=on_role_change)]
    settings = HostSettings.of(listen=LOOPBACK, sources={"a": tmp_path / "a"}, **BEATS)
    with cqrepl.blocking.Host(settings, events=events):
        assert has_heard.wait(20)
        assert told == [change(0, LEADING, 1)]
        assert not slow.roles


async def test_a_desk_that_has_ended_is_called_no_more(tmp_path: Path) -> None:
    fill(tmp_path / "a", "FAST_DAILY", {0: 1})
    async with live_source(tmp_path / "a") as source:
        async with EventDesk(Slow().events, source).running() as _:
            assert len(source.role_watchers) == 1
        assert source.role_watchers == []


def test_beyond_the_limit_the_oldest_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = RoleReader(threading.Lock())
    reader.add(change(7, LEADING, 1, "b"))
    for epoch in range(WAITING_MAX + 3):
        reader.add(change(epoch, FOLLOWING, epoch))
    other, first, *rest = reader.take()
    assert other == change(7, LEADING, 1, "b")
    assert (first.epoch, first.missed) == (3, 3)
    assert [each.epoch for each in rest] == list(range(4, WAITING_MAX + 3))
    assert not any(each.missed for each in rest)
    assert caplog.text.count("the oldest are left out") == 1
    reader.add(change(1, IDLE, None))
    assert reader.take() == [change(1, IDLE, None)]


async def test_on_role_tells_a_role_again_where_others_were_left_out(tmp_path: Path) -> None:
    """Another role came between, which is not known any more."""
    fill(tmp_path / "a", "FAST_DAILY", {0: 1})
    roles: list[Any] = []
    async with live_source(tmp_path / "a") as source:
        log = RoleLog(source)
        desk = EventDesk(HostEvents(on_role=lambda _, role: roles.append(role)), source, roles=log)
        async with desk.running():
            await eventually(lambda: roles == [LEADING])
            assert desk._reader is not None
            left_out = RoleChange(queue="a", epoch=0, role=LEADING, leader=1, missed=1)
            desk._reader.add(left_out)
            await eventually(lambda: roles == [LEADING, LEADING])


async def test_a_host_without_threads_tells_each_change_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the laboratory."""
    fill(tmp_path / "a", "FAST_DAILY", {0: 1})
    changes: list[tuple[Role, int]] = []

    def on_role_change(each: RoleChange) -> None:
        changes.append((each.role, threading.get_ident()))

    async with live_source(tmp_path / "a") as source:
        desk = EventDesk(HostEvents(on_role_change=on_role_change), source)
        with monkeypatch.context() as patch:
            patch.setattr(Surroundings, "has_threads", False)
            async with desk.running():
                leading, loop = source.leading(), threading.get_ident()
                for _ in range(3):
                    leading.fence("host 2 leads it")
                    leading.why_fenced = ""
                    leading.lead_again()
                await eventually(lambda: len(changes) == 7)
    assert changes == [(role, loop) for role in [LEADING, *[IDLE, LEADING] * 3]]
