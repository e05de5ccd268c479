"""Two connections of one host: the newer one wins, but not for ever."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cqrepl.net.pump import Pump
from cqrepl.net.roster import TAKE_OVER_SECONDS, TAKE_OVERS_MAX, Roster
from cqrepl.protocol import Connection, ConnectionConfig
from tests.net.streams import InMemory, Recorder, make_pump, memory_streams
from tests.support import peer
from tests.support.replicas import live_sink, live_source
from tests.support.samples import fill


class House:
    """Connections that all knock at one roster."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.roster = Roster()
        self._nursery = nursery
        self._far: list[InMemory] = []

    async def knock(self, host_id: int) -> Pump:
        near, far = memory_streams()
        self._far.append(far)
        pump = make_pump(near)
        pump._admit = self.roster.enter
        self._nursery.start_soon(self._run, pump)
        await far.send_all(peer.uber(host_id, 1) + peer.heartbeats(3_600_000, 1_800_000))
        await wait_all_tasks_blocked()
        return pump

    async def _run(self, pump: Pump) -> None:
        await pump.run(Recorder())
        self.roster.leave(pump)


async def test_the_newer_one_wins(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        first, other = await house.knock(2), await house.knock(3)
        second = await house.knock(2)
        assert first.ended.is_set()
        assert first.ended_why == "host id 2 connected again"
        assert house.roster.pumps == [second, other]
        assert not second.ended.is_set()
        assert not other.ended.is_set()
        nursery.cancel_scope.cancel()


async def test_t10_more_than_three_take_overs_in_ten_seconds_are_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        live = await house.knock(2)
        for _ in range(TAKE_OVERS_MAX):
            before, live = live, await house.knock(2)
            assert before.ended.is_set()
            await trio.sleep(1)
        refused = await house.knock(2)
        assert refused.ended.is_set()
        assert refused.has_failed
        assert "do two hosts have this id?" in refused.ended_why
        assert sum("do two hosts" in message for message in caplog.messages) == 1
        assert house.roster.pumps == [live]
        assert not (await house.knock(3)).ended.is_set()  # another host is not concerned
        await trio.sleep(TAKE_OVER_SECONDS - TAKE_OVERS_MAX)
        again = await house.knock(2)  # the first take-over is ten seconds ago now
        assert house.roster.pumps[0] is again
        assert live.ended.is_set()
        assert (await house.knock(2)).has_failed
        nursery.cancel_scope.cancel()


async def test_coming_back_after_an_end_is_no_take_over(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        for _ in range(3 * TAKE_OVERS_MAX):
            pump = await house.knock(2)
            assert not pump.ended.is_set()
            await pump.stop("enough")
            await wait_all_tasks_blocked()
            assert house.roster.pumps == []
        nursery.cancel_scope.cancel()


async def test_the_loser_does_not_remove_the_winner(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        await house.knock(2)
        second = await house.knock(2)
        await wait_all_tasks_blocked()  # the first one has left by now
        assert house.roster.pumps == [second]
        nursery.cancel_scope.cancel()


async def test_a_second_host_of_one_id_hears_why(tmp_path: Path) -> None:
    """Once the two have taken over from each other too often; the first one goes on."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            other = ConnectionConfig(settings=sink.endpoint.protocol, is_dialler=True)
            refused = ""
            while not refused:
                assert source.port is not None
                stream = await trio.open_tcp_stream("127.0.0.1", source.port)
                pump = Pump(stream, Connection(other, trio.current_time()), "other", let_in)
                with trio.move_on_after(0.2):
                    await pump.run(Recorder())
                refused = pump.ended_why if pump.connection.was_refused else ""
            assert refused.startswith("the peer says: host id 2 is connected")
            assert refused.endswith("do two hosts have this id?")


async def let_in(host_id: int, pump: Pump) -> str | None:
    return None
