"""A promotion while something else is done about the same queue, and hosts that were away."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.cluster.promotion import Promotion
from cqrepl.net.errors import Refused
from cqrepl.queue.files.epochfile import load_epochs, store_epochs
from cqrepl.queue.quarantine import quarantine
from cqrepl.replicator import sink
from cqrepl.replicator.agreement.lineage import held
from cqrepl.replicator.incoming import proofdesk
from cqrepl.replicator.outgoing.backcopy import BackCopyTarget
from cqrepl.replicator.outgoing.sourceopener import SourceOpener
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate import keptepochs
from tests.support.replicas import (
    copied,
    eventually,
    last_of,
    more_excerpts,
    opened_by_another_process,
)
from tests.support.samples import noon_index, read
from tests.support.threehosts import ThreeHosts, three_hosts


class Gate:
    """Work of one queue in a thread waits here until `open`.

    Args:
        work: what is done then.
        is_meant: by the arguments of a call; others pass.
    """

    def __init__(self, work: Callable[..., Any], is_meant: Callable[..., bool]) -> None:
        self._work = work
        self._is_meant = is_meant
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **more: Any) -> Any:
        if self._is_meant(*args):
            self._reached.set()
            assert self._opened.wait(60)
        return self._work(*args, **more)

    async def reached(self) -> None:
        await eventually(self._reached.is_set)

    def open(self) -> None:
        self._opened.set()


def kept_promises(path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate: nothing that this copy promises is on the disk before the gate opens."""
    gate = Gate(store_epochs, lambda at, _: at == path)
    monkeypatch.setattr(keptepochs, "store_epochs", gate)
    return gate


async def promote_to(cluster: ThreeHosts, to: int, done: list[Promotion]) -> None:
    """A host is made the leader; what has come of that goes to `done`."""
    done.append(await cluster.hosts[to].leaders.promote("q"))


async def all_follow(cluster: ThreeHosts, leader: int, held: int) -> None:
    """The leader holds so many excerpts; others hold what it appends, and no host has stopped."""
    more_excerpts(cluster.at(leader), held, 3, seed=77)
    await cluster.follow(leader)
    assert len(read(cluster.at(leader))) == held + 3
    assert not any(host.stops for host in cluster.hosts.values())


async def test_what_an_operator_says_waits_until_a_promise_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a copy could be resumed into the stream of the old leader, whose writes it promises
    another host to refuse."""
    async with three_hosts(tmp_path) as cluster:
        copy = cluster.hosts[3].sink.queues["q"]
        gate = kept_promises(cluster.at(3), monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.hosts[2].leaders.promote, "q")
            await gate.reached()
            nursery.start_soon(cluster.hosts[3].resume, "q")
            await trio.sleep(0.1)
            assert copy.owner is None
            held = copy.life.hold.reason
            assert held is not None
            assert held.message == "host 2 is to lead it in epoch 1"
            gate.open()
        await all_follow(cluster, 2, 10)


async def test_a_pause_that_is_said_while_a_promise_is_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_hosts(tmp_path) as cluster:
        gate = kept_promises(cluster.at(3), monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.hosts[2].leaders.promote, "q")
            await gate.reached()
            nursery.start_soon(cluster.hosts[3].pause, "q")
            await trio.sleep(0.1)
            gate.open()
        more_excerpts(cluster.at(2), 10, 3)
        await eventually(lambda: last_of(cluster.at(1)) == noon_index(sequence=12))
        assert cluster.hosts[3].sink.queues["q"].life.is_paused
        assert last_of(cluster.at(3)) == noon_index(sequence=9)
        await cluster.hosts[3].resume("q")
        await all_follow(cluster, 2, 13)


async def test_a_copy_that_puts_aside_what_differs_promises_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(3)
        more_excerpts(cluster.at(1), 10, 4)
        more_excerpts(cluster.at(3), 10, 2, seed=3)
        await cluster.start(3)
        copy = cluster.hosts[3].sink.queues["q"]
        await eventually(lambda: copy.life.stop is not None)
        await cluster.meet()
        gate = Gate(quarantine, lambda path, _: path == cluster.at(3))
        monkeypatch.setattr(sink, "quarantine", gate)
        promises = kept_promises(cluster.at(3), monkeypatch)
        done: list[Promotion] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.hosts[3].quarantine, "q")
            await gate.reached()
            nursery.start_soon(promote_to, cluster, 2, done)
            await eventually(lambda: load_epochs(cluster.at(1)).promised == 1)
            await eventually(lambda: bool(done))  # the answers of the others do
            gate.open()
            await promises.reached()
            promises.open()
        assert [(each.fenced, each.unreached) for each in done] == [((1,), (3,))]
        await eventually(lambda: load_epochs(cluster.at(3)).promised == 1)
        assert not copy.life.is_paused
        await all_follow(cluster, 2, 14)
        (folder,) = (cluster.at(3) / "quarantine").iterdir()
        assert len(read(folder)) == 2


async def old_backup(cluster: ThreeHosts) -> None:
    """The master comes back with 10 excerpts, of which its copies have 14."""
    shutil.copytree(cluster.at(1), cluster.folder / "backup")
    more_excerpts(cluster.at(1), 10, 4)
    await cluster.follow(1)
    await cluster.stop(1)
    shutil.rmtree(cluster.at(1))
    (cluster.folder / "backup").rename(cluster.at(1))


@pytest.mark.parametrize("to", [2, 3])
async def test_a_promotion_while_a_copy_gives_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: int
) -> None:
    """Whichever of the two leads has what was to come back, and so has the old leader then."""
    may_append, append = trio.Event(), BackCopyTarget.append

    async def late(self: BackCopyTarget, batch: Any) -> None:
        await may_append.wait()
        await append(self, batch)

    async with three_hosts(tmp_path) as cluster:
        await old_backup(cluster)
        monkeypatch.setattr(BackCopyTarget, "append", late)
        await cluster.start(1)
        givers = [cluster.hosts[each].sink.queues["q"] for each in (2, 3)]
        await eventually(lambda: any(each.owner is not None for each in givers))
        await cluster.meet()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.hosts[to].leaders.promote, "q")
            await eventually(lambda: load_epochs(cluster.at(5 - to)).promised == 1)
            may_append.set()
        assert last_of(cluster.at(to)) == noon_index(sequence=13)
        await all_follow(cluster, to, 14)
        assert not (cluster.at(1) / "quarantine").exists()


async def test_copies_whose_return_is_refused_lead_instead(tmp_path: Path) -> None:
    """A master that consents to nothing stops them; an operator has one of them lead."""
    async with three_hosts(tmp_path, "  source: {acceptReturns: none}") as cluster:
        await old_backup(cluster)
        await cluster.start(1)
        copies = [cluster.hosts[each].sink.queues["q"] for each in (2, 3)]
        await eventually(lambda: all(each.life.end for each in copies))
        await cluster.meet()
        await cluster.hosts[2].leaders.promote("q")
        await all_follow(cluster, 2, 14)


async def test_a_copy_that_is_still_being_compared_promises_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(3)
        gate = Gate(held, lambda *_: True)
        monkeypatch.setattr(proofdesk, "held", gate)
        await cluster.start(3)
        await gate.reached()
        done: list[Promotion] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(promote_to, cluster, 2, done)
            await eventually(lambda: bool(done))  # the answers of the others do
            gate.open()
        assert [(each.fenced, each.unreached) for each in done] == [((1,), (3,))]
        await eventually(lambda: load_epochs(cluster.at(3)).promised == 1)
        await all_follow(cluster, 2, 10)


async def test_a_tail_that_waits_for_another_process_while_the_leader_changes_again(
    tmp_path: Path,
) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(1)
        more_excerpts(cluster.at(1), 10, 8, seed=3)
        await cluster.hosts[2].leaders.promote("q")
        more_excerpts(cluster.at(2), 10, 2)
        with opened_by_another_process(cluster.at(1)):
            await cluster.start(1)
            taken = cluster.hosts[1].sink.queues
            await eventually(lambda: "q" in taken and taken["q"].life.trouble is not None)
            await cluster.meet()
            with pytest.raises(Refused, match="host 1 has excerpts that are not the queue's"):
                await cluster.hosts[1].leaders.promote("q")
            done = await cluster.hosts[3].leaders.promote("q")
            assert (done.epoch, done.start) == (2, noon_index(sequence=12))
            assert [each.host for each in done.quarantined] == [1]
            assert len(read(cluster.at(1))) == 18
        await all_follow(cluster, 3, 12)
        (folder,) = (cluster.at(1) / "quarantine").iterdir()
        assert len(read(folder)) == 8


@pytest.mark.parametrize("has_tail", [False, True])
async def test_a_host_that_is_off_while_the_leader_changes_twice(
    tmp_path: Path, has_tail: bool
) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(1)
        if has_tail:
            more_excerpts(cluster.at(1), 10, 5, seed=3)
        await cluster.hosts[2].leaders.promote("q")
        more_excerpts(cluster.at(2), 10, 2)
        await cluster.follow(2)
        done = await cluster.hosts[3].leaders.promote("q")
        assert (done.epoch, done.start, done.unreached) == (2, noon_index(sequence=12), (1,))
        more_excerpts(cluster.at(3), 12, 1)
        await cluster.start(1)
        await cluster.follow(3)
        assert load_epochs(cluster.at(1)).history == load_epochs(cluster.at(3)).history
        assert len(list((cluster.at(1) / "quarantine").glob("*"))) == has_tail
        await all_follow(cluster, 3, 13)
        await cluster.hosts[1].leaders.promote("q")
        await all_follow(cluster, 1, 16)


async def test_a_master_that_has_paused_the_queue_gives_what_it_has_alone(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.hosts[1].pause("q")
        more_excerpts(cluster.at(1), 10, 5)
        plan = await cluster.hosts[3].leaders.plan("q", 3)
        assert plan.start == noon_index(sequence=15)
        done = await cluster.hosts[3].leaders.promote("q")
        assert done == plan
        assert len(read(cluster.at(3))) == 15
        more_excerpts(cluster.at(3), 15, 2)
        await eventually(lambda: last_of(cluster.at(2)) == noon_index(sequence=16))
        assert cluster.hosts[1].sink.queues["q"].life.is_paused
        assert last_of(cluster.at(1)) == noon_index(sequence=14)
        await cluster.hosts[1].resume("q")
        await all_follow(cluster, 3, 17)


@pytest.mark.parametrize("is_alive", [True, False])
async def test_two_operators_promote_to_two_hosts(tmp_path: Path, is_alive: bool) -> None:
    """By the sockets of both, at once. One host leads at most, and one more word does it."""
    async with three_hosts(tmp_path) as cluster:
        if not is_alive:
            await cluster.stop(1)
        answers: dict[int, dict[str, object]] = {}

        async def promote(host_id: int) -> None:
            asked: dict[str, object] = {"do": "promote", "queue": "q"}
            answers[host_id] = await cluster.hosts[host_id].control.do(asked)

        async with trio.open_nursery() as nursery:
            for host_id in (2, 3):
                nursery.start_soon(promote, host_id)
        done = [each for each, answer in answers.items() if "error" not in answer]
        epochs = {str(answers[each]["epoch"]): each for each in done}
        assert len(epochs) == len(done), "where one comes after the other, both can be done"
        leaders = [epochs[each] for each in sorted(epochs)][-1:]
        # the first of two begins its connections anew, and may hear of the second when it is back
        roles = [(host.source, host.sink) for host in cluster.hosts.values()]
        await eventually(
            lambda: leaders == [each for each, host in cluster.hosts.items() if host.source.names]
        )
        await eventually(lambda: all(source.names or sink.queues for source, sink in roles))
        assert all(answers[each]["code"] == 5 for each in answers.keys() - set(done))
        await trio.sleep(1)
        await cluster.meet()
        to = next(each for each in (3, 2) if each not in leaders)
        await cluster.hosts[to].leaders.promote("q")
        if not is_alive:
            await cluster.start(1)
        await all_follow(cluster, to, 10)


async def test_a_leader_whose_queue_opens_late_is_known_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former leader, which was away, has connected before and heard of no epoch."""
    open_source, is_poor = SourceOpener.open, True

    def poor(opener: SourceOpener, name: str, path: Path, *args: Any, **more: Any) -> SourceQueue:
        if is_poor and path == cluster.at(2):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_source(opener, name, path, *args, **more)

    async with three_hosts(tmp_path, others=("r",)) as cluster:
        await cluster.stop(1)
        await cluster.hosts[2].leaders.promote("r", accept_loss=True)
        more_excerpts(tmp_path / "2" / "r", 0, 5)
        await copied(tmp_path / "2" / "r", tmp_path / "3" / "r")  # they are connected again
        await cluster.hosts[2].leaders.promote("q", accept_loss=True)
        await cluster.stop(2, 3)
        monkeypatch.setattr(SourceOpener, "open", poor)
        await cluster.start(2, 1)
        await cluster.meet()
        assert "q" in cluster.hosts[1].source.queues
        assert "q" not in cluster.hosts[2].source.queues
        is_poor = False
        await eventually(lambda: "q" in cluster.hosts[2].source.queues)
        await eventually(lambda: "q" in cluster.hosts[1].sink.queues)
        await cluster.follow(2)
