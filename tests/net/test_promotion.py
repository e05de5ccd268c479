"""A copy becomes the leader by an operator's word, and what was planned is what happens."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import AppendsToCopy, Host, Queue, SteppedDown
from cqrepl.cluster import fencekind
from cqrepl.net.errors import Refused
from cqrepl.protocol import StopReason
from cqrepl.protocol.messages.fetches import Excerpts, write_excerpts, write_refused
from cqrepl.queue import QueueDamaged, QueueError, QueueLocked
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, load_epochs, store_epochs
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.rolelog import Role
from cqrepl.status.snapshot import snapshot_of
from tests.support.promotions import cluster, last
from tests.support.replicas import copied, eventually, last_of, more_excerpts
from tests.support.samples import noon_index, read
from tests.support.threehosts import IDS, ThreeHosts, three_hosts
from tests.support.unreadable import made_unreadable


@pytest.mark.parametrize("to", [2, 3, 4])
async def test_copies_of_5_7_and_9_with_a_dead_source(tmp_path: Path, to: int) -> None:
    """Whichever leads ends at 9, and all are equal; the plan said so."""
    async with cluster(tmp_path, 4) as hosts:
        await hosts.leaderless({2: 5, 3: 7, 4: 9})
        plan = await hosts.hosts[to].leaders.plan("a", to)
        assert [load_epochs(hosts.path(each)).promised for each in (2, 3, 4)] == [0, 0, 0]
        done = await hosts.hosts[to].leaders.promote("a")
        assert done == plan
        assert done.start == noon_index(sequence=9)
        assert (done.unreached, done.may_lose) == ((1,), False)
        await hosts.follow(to)
        assert last_of(hosts.path(to)) == last(9)
        more_excerpts(hosts.path(to), 9, 4)
        await hosts.follow(to)
        for host_id in (2, 3, 4):
            epochs = load_epochs(hosts.path(host_id))
            assert (epochs.promised, epochs.promised_to, epochs.number) == (1, to, 1)
            assert not hosts.hosts[host_id].stops


async def test_a_program_is_told_in_which_epoch_its_host_leads(tmp_path: Path) -> None:
    """Each time that a host comes to lead: what a program has of an earlier time stays."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        first = hosts.hosts[1].queue("a").leading
        assert first.epoch == 0, "it was never promoted"
        await hosts.hosts[2].leaders.promote("a")
        second = hosts.hosts[2].queue("a").leading
        assert (first.epoch, second.epoch) == (0, 1)
        more_excerpts(hosts.path(2), 3, 1)
        await hosts.follow(2)  # connected anew, as its queue goes another way now
        await hosts.hosts[1].leaders.promote("a")
        assert (second.epoch, hosts.hosts[1].queue("a").leading.epoch) == (1, 2)
        await hosts.stop(1)
        await hosts.start(1)
        assert hosts.hosts[1].queue("a").leading.epoch == 2


async def test_an_append_that_an_old_leader_refuses_names_the_new_one(tmp_path: Path) -> None:
    """With its host, which keeps appenders out, and without."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 1)
        await hosts.follow(2)
        await eventually(lambda: load_epochs(hosts.path(1)).is_begun)
        leads = re.escape("; host 2 leads it, in epoch 1")
        with Queue.open(hosts.path(1)) as queue:
            with pytest.raises(QueueLocked, match=leads):
                queue.append(b"other")
            await hosts.stop(1)
            with pytest.raises(AppendsToCopy, match=leads):
                queue.append(b"other")
        done = await trio.to_thread.run_sync(append_by_command, hosts.path(1))
        assert (done.returncode, done.stdout) == (5, "")
        assert re.search(f"^cqrepl append: .*{leads}$", done.stderr, re.MULTILINE), done.stderr


def append_by_command(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cqrepl", "append", str(path), "--lines"]
    return subprocess.run(
        command, input="other\n", capture_output=True, text=True, timeout=120, check=False
    )


async def test_a_damaged_epoch_file_starts_no_host(tmp_path: Path) -> None:
    """Without it a copy could follow the wrong host; the error names the file."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        await hosts.stop_all()
        for host_id in (1, 2):
            file = hosts.path(host_id) / EPOCH_FILE_NAME
            whole = file.read_bytes()
            file.write_bytes(whole[:-9])
            with pytest.raises(QueueDamaged, match=r"epoch\.cqmark: .* not as it was written"):
                async with Host(hosts.settings(host_id)):
                    raise AssertionError
            file.write_bytes(whole)
        await hosts.start(1, 2)
        more_excerpts(hosts.path(2), 3, 2)
        await hosts.follow(2)


async def test_roles_are_told_as_epochs_have_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        told = hosts.roles
        await eventually(lambda: told[1] == [Role.LEADING])
        await hosts.hosts[2].leaders.promote("a")
        await eventually(lambda: told[2][-1] is Role.LEADING and told[1][-1] is Role.FOLLOWING)
        await hosts.stop(2)
        await hosts.meet()
        await hosts.hosts[3].leaders.promote("a")
        await eventually(lambda: told[3][-1] is Role.LEADING)
        told[2].clear()
        await hosts.start(2)  # it hears of that when it comes back
        await eventually(lambda: told[2][-1:] == [Role.FOLLOWING])
        assert told[1][-1] is Role.FOLLOWING


async def test_the_old_source_comes_back_and_follows(tmp_path: Path) -> None:
    """The tail that only the old source has goes to quarantine, with a report."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.uneven({2: 5, 3: 5})
        await hosts.stop(1)
        tail = more_excerpts(hosts.path(1), 5, 4, seed=77)
        await hosts.resume_all()
        await hosts.meet()
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 5, 2, seed=78)
        await hosts.start(1)
        await hosts.follow(2)
        (folder,) = (hosts.path(1) / "quarantine").iterdir()
        assert read(folder)[-4:] == tail
        assert (folder / "report.json").exists()
        with Queue.open(hosts.path(1)) as queue:
            assert queue.is_follower
        for _ in range(2):  # all of it is so after a restart, too
            more_excerpts(hosts.path(2), len(read(hosts.path(2))), 3)
            await hosts.follow(2)
            for host_id in (1, 2, 3):
                await hosts.stop(host_id)
            await hosts.start(1, 2, 3)
            await hosts.follow(2)
        await hosts.meet()
        done = await hosts.hosts[1].leaders.promote("a")  # and back, with all of them there
        assert (done.epoch, done.was, done.returned, done.quarantined) == (2, 2, None, ())
        await hosts.follow(1)


async def test_an_old_source_that_meets_only_a_copy_gives_it_nothing_until_the_leader_is_there(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.leaderless({2: 5, 3: 5})
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        await hosts.stop(2)
        more_excerpts(hosts.path(1), 5, 2, seed=50)
        await hosts.start(1)
        await hosts.meet()
        assert len(read(hosts.path(3))) == 5
        await hosts.start(2)
        more_excerpts(hosts.path(2), 5, 1)
        await hosts.follow(2)
        assert list((hosts.path(1) / "quarantine").iterdir())


async def test_a_source_that_is_there_steps_down_with_all_that_it_has(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 6})
        done = await hosts.hosts[2].leaders.promote("a")
        assert done.start == noon_index(sequence=6)
        more_excerpts(hosts.path(2), 6, 2)
        await hosts.follow(2)
        assert not hosts.hosts[1].source.names
        assert not any(host.stops for host in hosts.hosts.values())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Excerpts(0, [1 << 31], b""), r"at most \d+ bytes of excerpts expected, 2147483648 came"),
        (Excerpts(0, [3], b"four"), "excerpts of 3 bytes expected, 4 came"),
    ],
)
async def test_a_copy_that_lies_about_what_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Excerpts, told: str
) -> None:
    """It costs no memory, and what it sent is not taken."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.leaderless({2: 5, 3: 7})
        with monkeypatch.context() as patch:
            patch.setattr(fencekind, "write_stretch", lambda *_: [write_excerpts(said)])
            with pytest.raises(Refused, match=told):
                await hosts.hosts[2].leaders.promote("a")
        assert last_of(hosts.path(2)) == last(5)
        done = await hosts.hosts[2].leaders.promote("a")  # once it tells the truth
        assert done.start == noon_index(sequence=7)
        await hosts.follow(2)


async def test_with_too_few_copies_it_is_refused(tmp_path: Path) -> None:
    """One copy of two: a write may have been safe with the other one alone."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.uneven({2: 5, 3: 7})
        await hosts.stop(1)
        await hosts.stop(3)
        await hosts.resume_all()
        with pytest.raises(Refused, match="2 copies expected to promise, 1 does: --accept-loss"):
            await hosts.hosts[2].leaders.promote("a")
        assert load_epochs(hosts.path(2)).promised == 0
        done = await hosts.hosts[2].leaders.promote("a", accept_loss=True)
        assert (done.may_lose, done.unreached) == (True, (1, 3))
        more_excerpts(hosts.path(2), 5, 1, seed=5)
        await hosts.start(1, 3)
        await hosts.follow(2)
        for host_id in (1, 3):  # what they had is not gone
            (folder,) = (hosts.path(host_id) / "quarantine").iterdir()
            assert len(read(folder)) == 2


async def test_a_host_that_leads_without_an_epoch_begins_the_first(tmp_path: Path) -> None:
    """So its writes have a number that tells them from those of a later leader. Where it is paused,
    or the others do not promise, it leads as before."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 5, 3: 5})
        leader = hosts.hosts[1]
        first = leader.queue("a").leading
        await leader.pause("a")
        with pytest.raises(Refused, match="host 1: it is paused by operator: resume it first"):
            await leader.leaders.promote("a")
        await leader.resume("a")
        await hosts.stop(2)
        await hosts.stop(3)
        with pytest.raises(Refused, match="2 hosts expected to promise, 1 does"):
            await leader.leaders.promote("a")
        assert (leader.position("a").role, first.has_stepped_down) == (Role.LEADING, False)
        await hosts.start(2, 3)
        await hosts.meet()
        done = await leader.leaders.promote("a")
        assert (done.epoch, done.was, done.quarantined) == (1, 1, ())
        with pytest.raises(
            SteppedDown, match="it is to lead in epoch 1, which begins anew"
        ) as gone:
            first.append([b"one"])
        assert gone.value.epoch == 0
        second = leader.queue("a").leading
        second.append([b"one"])
        await hosts.follow(1)
        assert second.epoch == 1
        for host_id in (2, 3):
            epochs = load_epochs(hosts.path(host_id))
            assert (epochs.promised, epochs.promised_to, epochs.is_begun) == (1, 1, True)
            assert not (hosts.path(host_id) / "quarantine").exists()


async def test_who_leads_is_not_promoted_and_who_is_unknown_neither(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.uneven({2: 5})
        await hosts.meet()
        await hosts.resume_all()
        await hosts.hosts[1].leaders.promote("a")
        assert (await hosts.hosts[2].leaders.plan("a", 1)).refusal == "host 1 leads it already"
        with pytest.raises(Refused, match="host 1 leads it already"):
            await hosts.hosts[1].leaders.promote("a")
        with pytest.raises(ValueError, match=r"the id of a host \(1, 2\) expected, 7 came"):
            await hosts.hosts[1].leaders.plan("a", 7)
        with pytest.raises(ValueError, match="one of the queues"):
            await hosts.hosts[1].leaders.plan("b", 1)


@pytest.mark.parametrize("part", ["metadata.cq4t", "."])
async def test_an_old_source_that_cannot_open_its_copy_comes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Its promise is kept, so it streams no more; what keeps it from following passes."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        old = hosts.hosts[1]
        mended, remove = [], old.source.remove

        async def remove_and_break(name: str, why: str) -> None:
            await remove(name, why)
            mended.append(made_unreadable(hosts.path(1) / part if part != "." else hosts.path(1)))

        monkeypatch.setattr(old.source, "remove", remove_and_break)
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 4, 3)
        await copied(hosts.path(2), hosts.path(3))
        assert not old.source.names
        await eventually(lambda: "paused: " in state_of(old))
        assert "Too many levels of symbolic links" in state_of(old)
        (bring_back,) = mended
        bring_back()
        assert load_epochs(hosts.path(1)).promised_to == 2
        await hosts.follow(2)
        assert not old.stops
        await eventually(lambda: state_of(old) == "live")


def state_of(host: Host) -> str:
    """The state of a host's only queue, as `status` tells it."""
    queues: Any = snapshot_of(host)["queues"]
    (queue,) = queues
    return str(queue["state"])


async def test_a_leader_that_cannot_open_its_copy_comes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch has begun on its disk when its copy is to be opened. Then it is taken in again, and
    promoted once more."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        new = hosts.hosts[2]
        mended, remove = [], new.sink.remove

        async def remove_and_break(name: str) -> None:
            await remove(name)
            mended.append(made_unreadable(hosts.path(2) / "metadata.cq4t"))

        with monkeypatch.context() as patch:
            patch.setattr(new.sink, "remove", remove_and_break)
            with pytest.raises((QueueError, OSError)):
                await new.leaders.promote("a")
        assert "Too many levels of symbolic links" in state_of(new)
        mended[0]()
        done = await new.leaders.promote("a")
        assert (done.epoch, done.start) == (2, noon_index(sequence=4))
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)


async def test_a_reload_leaves_a_promoted_queue_with_its_leader(tmp_path: Path) -> None:
    """Of a host that takes it in: the file of the cluster names the first master still."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        for host in hosts.hosts.values():
            await host.change(host.settings)
        assert {each: hosts.hosts[each].sink.queues["a"].master_id for each in (1, 3)} == {
            1: 2,
            3: 2,
        }
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)


async def test_a_queue_that_is_added_is_what_a_promotion_has_made_of_it(tmp_path: Path) -> None:
    """The answer to a reload says so, whatever the file does."""
    async with three_hosts(tmp_path, others=("r",)) as three:
        await three.hosts[2].leaders.promote("r")
        for others in ((), ("r",)):
            three.others = others
            answers = {each: await three.reload(each) for each in IDS}
        roles = {1: "sink", 2: "source", 3: "sink"}
        assert {each: answers[each]["added"]["r"]["role"] for each in IDS} == roles
        by = ", by epoch 1, which was promised to host 2"
        for each, why in ((1, by), (2, by), (3, "")):
            path = tmp_path / str(each) / "r"
            assert answers[each]["said"] == [f"queue 'r' is added: {roles[each]}, {path}{why}"]
        more_excerpts(tmp_path / "2" / "r", 0, 5)
        await copied(tmp_path / "2" / "r", tmp_path / "1" / "r")


async def test_two_that_are_promoted_at_once(tmp_path: Path) -> None:
    """Two operators promote at once: one host leads at most, each that is refused hears why, and
    the next promotion makes one a leader."""
    async with cluster(tmp_path, 4) as hosts:
        await hosts.followed({2: 4, 3: 4, 4: 4})
        refused: list[Refused] = []

        async def promote(host_id: int) -> None:
            try:
                await hosts.hosts[host_id].leaders.promote("a", accept_loss=True)
            except Refused as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for host_id in (2, 3):
                nursery.start_soon(promote, host_id)
        leaders = [each for each, host in hosts.hosts.items() if host.source.names]
        assert len(leaders) + len(refused) == 2
        assert len(leaders) <= 1
        assert all("promised" in str(each) for each in refused)
        await hosts.meet()
        to = next(each for each in (4, 3) if each not in leaders)
        await hosts.hosts[to].leaders.promote("a")
        more_excerpts(hosts.path(to), 4, 3)
        await hosts.follow(to)


async def test_two_that_led_in_one_epoch_meet_and_neither_takes_from_the_other(
    tmp_path: Path,
) -> None:
    """Both operators accepted a loss, of two halves that did not see each other. Promoted once
    more, the one with the longer copy leads, and the other one follows."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.uneven({2: 4, 3: 4})
        await hosts.stop(1)
        await hosts.stop(3)
        for own in (2, 3):
            await hosts.resume_all()
            done = await hosts.hosts[own].leaders.promote("a", accept_loss=True)
            assert (done.epoch, done.may_lose) == (1, True)
            more_excerpts(hosts.path(own), 4, own, seed=own)
            await hosts.stop(own)
            if own == 2:
                await hosts.start(3)
        await hosts.start(2, 3)
        await hosts.meet()
        with pytest.raises(Refused, match="host 2 has excerpts that are not the queue's"):
            await hosts.hosts[2].leaders.promote("a")
        assert [len(read(hosts.path(each))) for each in (2, 3)] == [6, 7]
        assert all(hosts.hosts[each].source.names for each in (2, 3))
        plan = await hosts.hosts[3].leaders.plan("a", 3)
        done = await hosts.hosts[3].leaders.promote("a")
        assert (done, done.epoch) == (plan, 2)
        more_excerpts(hosts.path(3), 7, 3)
        await hosts.follow(3)
        (folder,) = (hosts.path(2) / "quarantine").iterdir()
        assert len(read(folder)) == 2


async def test_a_paused_copy_is_not_promoted_before_it_is_resumed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.uneven({2: 4, 3: 4})
        await hosts.meet()
        with pytest.raises(Refused, match="host 2: it is paused by operator: resume it first"):
            await hosts.hosts[2].leaders.promote("a")
        assert (await hosts.hosts[2].leaders.plan("a", 2)).refusal
        assert load_epochs(hosts.path(1)).promised == 0
        await hosts.hosts[1].pause("a")
        await hosts.hosts[2].resume("a")
        await hosts.hosts[2].leaders.promote("a")
        assert hosts.hosts[1].sink.queues["a"].life.is_paused  # a promotion ends no pause
        more_excerpts(hosts.path(2), 4, 3)
        for host_id in (1, 3):
            await hosts.hosts[host_id].resume("a")
        await hosts.follow(2)


async def test_a_copy_that_was_resumed_gives_what_it_has_though_nobody_offers(
    tmp_path: Path,
) -> None:
    """It has stopped, and is opened with the next offer; its source is dead."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.uneven({2: 4, 3: 6})
        await hosts.stop(1)
        for host_id in (2, 3):
            queue = hosts.hosts[host_id].sink.queues["a"]
            queue.end(Stop(name="a", reason=StopReason.FAILED, message="by this test"))
        with pytest.raises(Refused, match="by this test"):
            await hosts.hosts[2].leaders.promote("a")
        await hosts.resume_all()
        await hosts.meet()
        assert not hosts.hosts[2].sink.queues["a"].is_open
        done = await hosts.hosts[2].leaders.promote("a")
        assert done.start == noon_index(sequence=6)
        await hosts.follow(2)


@asynccontextmanager
async def an_epoch_behind(folder: Path) -> AsyncIterator[ThreeHosts]:
    """Host 3 was away while host 2 led, which is away now; host 1 has all of that epoch."""
    async with three_hosts(folder) as three:
        await three.stop(3)
        await three.hosts[2].leaders.promote("q")
        more_excerpts(three.at(2), 10, 5)
        await copied(three.at(2), three.at(1))
        await three.stop(2)
        await three.start(3)
        await three.meet()
        yield three


async def test_a_leader_takes_on_the_epochs_of_what_it_takes_from_another_copy(
    tmp_path: Path,
) -> None:
    """Else the copies that went through them would part from it, and put the same aside."""
    async with an_epoch_behind(tmp_path) as three:
        done = await three.hosts[3].leaders.promote("q")
        assert done.returned is not None
        assert done.returned.host == 1
        assert [each.leader for each in load_epochs(three.at(3)).history] == [2, 3]
        await three.start(2)
        await three.follow(3)
        assert not [path for each in IDS for path in three.at(each).glob("quarantine/*")]


@pytest.mark.parametrize("to", [1, 3])
async def test_one_that_ends_while_excerpts_come_over_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: int
) -> None:
    """At the same host, or at the one that gave them. What had come over is no tail of its own."""

    def two_of_them(first: int, lengths: Sequence[int], data: bytes) -> Iterator[bytes]:
        yield write_excerpts(Excerpts(first, list(lengths[:2]), data[: sum(lengths[:2])]))
        yield write_refused("the link goes")

    async with an_epoch_behind(tmp_path) as three:
        with monkeypatch.context() as patch:
            patch.setattr(fencekind, "write_stretch", two_of_them)
            with pytest.raises(Refused, match="the link goes"):
                await three.hosts[3].leaders.promote("q")
        assert len(read(three.at(3))) == 12
        done = await three.hosts[to].leaders.promote("q")
        assert (done.quarantined, done.refusal) == ((), "")
        await three.start(2)
        await three.follow(to)
        assert not [path for each in IDS for path in three.at(each).glob("quarantine/*")]


@asynccontextmanager
async def stopped_behind_host_2(folder: Path) -> AsyncIterator[ThreeHosts]:
    """All of them have what host 2 has, which was promoted; none runs."""
    async with three_hosts(folder) as three:
        await three.hosts[2].leaders.promote("q")
        await three.follow(2)
        await three.stop(*IDS)
        yield three


async def test_a_leader_whose_copies_have_promised_another_one_may_lead_once_more(
    tmp_path: Path,
) -> None:
    """The epoch that the copies promised to host 3 never began."""
    async with stopped_behind_host_2(tmp_path) as three:
        for each in (1, 3):
            store_epochs(three.at(each), load_epochs(three.at(each)).promise(2, 3))
        await three.start(1, 2, 3)
        await three.meet()
        plan = await three.hosts[1].leaders.plan("q", 2)
        done = await three.hosts[2].leaders.promote("q")
        assert done == plan
        assert (done.epoch, done.fenced, done.refusal) == (3, (1, 3), "")
        more_excerpts(three.at(2), 10, 5)
        await three.follow(2)


async def test_a_copy_that_forgot_that_it_follows_keeps_writers_out_as_it_promised(
    tmp_path: Path,
) -> None:
    """A power cut takes the mark with it, and no promise. No host offers the queue to it yet."""
    async with stopped_behind_host_2(tmp_path) as three:
        with Queue.open_for_append(three.at(1)) as queue:
            assert queue.is_follower
            queue.note_follower(is_follower=False)
        await three.start(1)
        words = [sys.executable, "-P", "-m", "cqrepl", "append", str(three.at(1)), "--lines"]
        done = await trio.run_process(words, stdin=b"x\n", capture_stderr=True, check=False)
        assert done.returncode == 5, done.stderr


async def test_a_planned_promotion_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All hosts are well and have all: no line warns, and none has the words of a fault."""
    caplog.set_level("INFO", logger="cqrepl")
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        caplog.clear()
        done = await hosts.hosts[2].control.do({"do": "promote", "queue": "a"})
        assert "error" not in done
        await hosts.follow(2)
        more_excerpts(hosts.path(2), 3, 2)
        await hosts.follow(2)
        said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert [each for each in said if each[0] != "INFO"] == []
    faults = re.compile(r"stopped|lost|reset|broken|fail|cannot")
    assert [each for each in said if faults.search(each[1])] == []


async def test_a_leader_that_gives_up_and_leads_anew_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its copies pause meanwhile, which is said, and is no error."""
    caplog.set_level("INFO", logger="cqrepl")
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        caplog.clear()
        await hosts.hosts[2].step_down("a", "by operator")
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 2)
        await hosts.follow(2)
        said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert any("pauses: the peer says: it gave up the lead, in epoch" in each[1] for each in said)
    assert [each for each in said if each[0] != "INFO"] == []
