"""A program uses a queue of its host while that turns round, and gets an answer that says so."""

from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.net.errors import Refused
from cqrepl.replicator.leadership import AckOutcome
from cqrepl.replicator.ownwriters import OwnWriters
from cqrepl.replicator.sink import SinkOpener
from cqrepl.replicator.source import Source
from tests.support.promotions import cluster
from tests.support.replicas import more_excerpts

ON_ITS_WAY = "queue 'a' is on its way to go another way"


async def test_each_use_of_a_queue_that_neither_half_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is appended or waited for, and the reason is the turn."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        queue, remove, told = hosts.hosts[1].queue("a"), Source.remove, []

        async def used(self: Source, name: str, why: str = "") -> None:
            await remove(self, name, why)
            assert hosts.hosts[1].queue("a").path == queue.path == hosts.path(1)
            assert not queue.is_streamed
            queue.open().close()
            for use in (
                lambda: queue.board,
                lambda: queue.leading,
                partial(queue.applied, 0),
                partial(queue.append_here, [b"late"], None),
            ):
                with pytest.raises(Refused, match=ON_ITS_WAY):
                    use()
            with pytest.raises(Refused, match=ON_ITS_WAY):
                await queue.append(b"late")
            with pytest.raises(Refused, match=ON_ITS_WAY):
                await queue.wait_acked(0)
            told.append(name)

        with monkeypatch.context() as patch:
            patch.setattr(Source, "remove", used)
            await hosts.hosts[2].leaders.promote("a")
        assert told == ["a"]
        more_excerpts(hosts.path(2), 3, 2)
        await hosts.follow(2)


async def test_a_thread_that_waits_for_hosts_hears_of_the_lost_lead(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        leading, outcomes = hosts.hosts[1].queue("a").leading, []

        def wait() -> None:
            outcomes.append(leading.wait_hosts_here((1 << 62) - 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, wait)
            await hosts.hosts[2].leaders.promote("a")
        assert outcomes == [AckOutcome.STEPPED_DOWN]
        assert "host 2 leads it in epoch 1" in leading.why_fenced


def test_no_writer_is_made_behind_a_turn(tmp_path: Path) -> None:
    """A thread that had found the queue streamed before."""
    writers = OwnWriters()

    def gone() -> None:
        raise Refused("it went another way")

    with pytest.raises(Refused, match="it went another way"):
        writers.of("a", lambda name: tmp_path / name, gone)
    assert writers.take("a") is None
    made = writers.of("a", lambda name: tmp_path / name, lambda: None)
    assert writers.take("a") is made


@pytest.mark.parametrize("by", ["a promotion", "what its epochs say"])
async def test_a_copy_that_is_not_closed_in_order_is_in_one_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A promotion leaves it where it was; what is led here already is streamed."""
    close = SinkOpener.close

    async def fails(self: SinkOpener, queue: object) -> None:
        await close(self, queue)  # type: ignore[arg-type]  # it passes on what it was given
        raise OSError(5, "no more of it")

    async with cluster(tmp_path, 2) as hosts:
        await hosts.leaderless({2: 3})
        host = hosts.hosts[2]
        with monkeypatch.context() as patch:
            patch.setattr(SinkOpener, "close", fails)
            if by == "a promotion":
                with pytest.raises(OSError, match="no more of it"):
                    await host.leaders.promote("a", accept_loss=True)
            else:
                await host.direction.stream_led(host.sink.queues["a"])
        halves = {"sink": "a" in host.sink.queues, "source": "a" in host.source.names}
        assert halves == {"sink": by == "a promotion", "source": by != "a promotion"}
