"""The orders of operators to the hosts of one queue, by the verbs of the control socket.

A promotion is planned first, and its result is compared with the plan. Where a host goes before it
has answered, as one that is killed, the operator does not know the result.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from cqrepl.host import Host
from cqrepl.net.controlsocket import Values
from cqrepl.net.errors import Refused
from cqrepl.queue import QueueError
from cqrepl.testing.checker import BrokenPromiseError, last_index
from cqrepl.testing.filechanges import FileChanges
from cqrepl.testing.labhosts import LabHost
from cqrepl.testing.ledqueue import LedQueue
from cqrepl.testing.network import Network
from cqrepl.testing.plan import Fault, Kind
from cqrepl.testing.storereader import promises
from cqrepl.testing.story import Story

STEPPED_DOWN: Final = "it leads no more"
NOTICES_SECONDS: Final = 0.5  # that a leader is gone
PLANS_MAX: Final = 2  # where hosts come and go while one is made, as it waits for them
_LOSES_FROM_NTH: Final = 20  # which promotions are also done where something may be lost
_POWER_CUT_NTH: Final = 3  # which leaders go with the power of their machine
# of a plan, and of what has come of it
_PLANNED: Final = (
    "epoch", "leader", "was", "start", "returned", "unproved", "quarantined", "fenced", "unreached",
    "needed", "may_lose", "lost_from", "majority", "may_split",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Promoted:
    """A promotion that was told as done.

    Args:
        start: the next index at which the epoch begins.
        lost_from: from where on it was said that something may be lost; None where nothing is.
    """

    epoch: int
    leader: int
    start: int
    lost_from: int | None


class Operator:
    """The operator of the hosts of one queue.

    Attributes:
        promoted: what was done.
        counts: how often a plan came true, was refused, and so on.
        files: what is done by the files of the cluster.

    Args:
        cut_power: cuts the power of a host, which starts again when it is told to.
        start: starts a host, and its applications.
    """

    def __init__(
        self,
        led: LedQueue,
        hosts: Mapping[int, LabHost],
        network: Network,
        story: Story,
        cut_power: Callable[[int], None],
        start: Callable[[int], None],
    ) -> None:
        self.promoted: list[Promoted] = []
        self.counts: Counter[str] = Counter()
        self.files = FileChanges(led, hosts, self.tell)
        self._under_way = 0  # promotions
        self._turns = 0  # promotions that began or ended, pauses, and their ends
        self._led = led
        self._hosts = hosts
        self._network = network
        self._cut_power = cut_power
        self._start = start
        self._story = story

    async def act(self, fault: Fault) -> None:
        """Does what a plan says; returns when it is over."""
        match fault.kind:
            case Kind.PAUSE:
                await self._pause(fault)
            case Kind.PROMOTE:
                await self.promote(fault.host, accept_loss=fault.nth >= _LOSES_FROM_NTH)
            case Kind.FAIL_OVER:
                await self._fail_over(fault)
            case Kind.STEP_DOWN:
                await self._step_down(fault)
            case _:
                await self.files.act(fault)

    async def _pause(self, fault: Fault) -> None:
        host = self._hosts[fault.host]
        process = host.process
        await self._turn(fault.host, "pause")
        await trio.sleep(fault.lasting)
        if host.process is process:  # another one knows of no pause
            await self.resume(fault.host)

    async def resume(self, host: int) -> None:
        """The queue goes on at a host."""
        await self._turn(host, "resume")

    async def _turn(self, host: int, verb: str) -> None:
        self._turns += 1
        await self.tell(self._hosts[host], {"do": verb, "queue": self._led.name})
        self._turns += 1

    async def _fail_over(self, fault: Fault) -> None:
        leader = self._led.leader
        others = sorted(self._hosts.keys() - {leader})
        to = fault.host if fault.host != leader else others[fault.nth % len(others)]
        if fault.nth == _POWER_CUT_NTH:
            self._cut_power(leader)
        else:
            self._hosts[leader].kill()
        await trio.sleep(NOTICES_SECONDS)
        await self.promote(to, accept_loss=fault.nth >= _LOSES_FROM_NTH)
        await trio.sleep(fault.lasting)
        self._start(leader)

    async def _step_down(self, fault: Fault) -> None:
        """The host that leads gives that up, as a program there wants; later a host is promoted."""
        leader = self._led.leader
        self._turns += 1
        said = await self._hosts[leader].during(self._gives_up, leader)
        self._turns += 1
        self._note_said(leader, "step down", said or "no answer")
        await trio.sleep(fault.lasting)
        if said == STEPPED_DOWN:
            await self.promote(fault.host, accept_loss=fault.nth >= _LOSES_FROM_NTH)

    async def _gives_up(self, leader: int) -> str:
        node = self._hosts[leader].node
        assert isinstance(node, Host)
        try:
            await node.step_down(self._led.name, "a program wants it")
        except (Refused, QueueError, OSError) as error:
            return str(error)
        self._check_given_up(leader)
        return STEPPED_DOWN

    def _check_given_up(self, leader: int) -> None:
        """Right after it has said so, it streams the queue no more.

        Raises:
            BrokenPromiseError: it does.
        """
        if leader in self._led.streaming:
            raise BrokenPromiseError("promotion", f"host {leader} has stepped down, and leads on")

    async def promote(self, to: int, *, accept_loss: bool) -> Values | None:
        """Plans a promotion, and has it done; the answer, with `error` where it was not done. None
        where the host gave no answer, so that the operator does not know.

        Raises:
            BrokenPromiseError: it was not as planned, though nothing has changed in between, and
                no other operator did anything.
        """
        led, host = self._led, self._hosts[to]
        for _ in range(PLANS_MAX):
            own_end = last_index(led.copies[to].path)
            before, turns, is_late = self._state(to), self._turns, self._may_be_late(to)
            is_by_file = self.files.may_hand_over
            plan = await self.tell(host, {"do": "plan promote", "queue": led.name, "to": to})
            if self._state(to) == before:
                break
        if plan is None or "error" in plan:
            return plan
        is_risky = plan["may_lose"] or plan["may_split"]
        if accept_loss:
            led.losing.add(to)
        asked: Values = {"do": "promote", "queue": led.name, "accept_loss": accept_loss}
        planned_from = plan["lost_from"]
        if accept_loss and planned_from is not None:  # also where no answer comes
            assert isinstance(planned_from, str)
            led.may_lose(int(planned_from, 16))
        with self._promoting():
            done = await self.tell(host, asked)
            is_alone = self._under_way == 1 and self._turns == turns + 1
        if done is None:
            self.counts["not known"] += 1
            return None
        is_by_file = is_by_file or self.files.may_hand_over
        is_prompt = not is_late and not self._may_be_late(to)
        is_same = is_alone and is_prompt and not is_by_file and self._state(to) == before
        if "error" in done:
            self.counts["refused"] += 1
            if is_same and not plan["refusal"] and (accept_loss or not is_risky):
                raise BrokenPromiseError("promotion", f"planned, and refused: {done['error']}")
            return done
        # it may have been refused for what it has put aside since
        is_same = is_same and not (plan["refusal"] and last_index(led.copies[to].path) != own_end)
        if (plan["refusal"] or (is_risky and not accept_loss)) and is_same:
            raise BrokenPromiseError("promotion", f"done against its plan: {plan['said']}")
        if is_same:
            self._compare(plan, done)
        self._note(done)
        return done

    @contextmanager
    def _promoting(self) -> Iterator[None]:
        """One promotion, for those that go on meanwhile: of two at once each finds what hosts have
        promised to the other."""
        self._under_way += 1
        self._turns += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._turns += 1

    def _note(self, done: Values) -> None:
        led, epoch, leader = self._led, done["epoch"], done["leader"]
        start, lost_from = done["start"], done["lost_from"]
        assert isinstance(epoch, int)
        assert isinstance(leader, int)
        assert isinstance(start, str)
        assert isinstance(lost_from, str | None)
        self.counts["done"] += 1
        lost = None if lost_from is None else int(lost_from, 16)
        if lost is not None:
            led.may_lose(lost)
        promoted = Promoted(epoch, leader, int(start, 16), lost)
        self.promoted.append(promoted)
        led.writers.add(leader)
        history = promises(led.copies[leader].path).history
        begun = {(each.number, each.leader, each.start) for each in history}
        if (epoch, leader, promoted.start) not in begun:
            raise BrokenPromiseError("promotion", f"told, and not begun: {done['said']}")

    def _compare(self, plan: Values, done: Values) -> None:
        self.counts["as planned"] += 1
        for name in _PLANNED:
            # the stream may have brought it meanwhile: the epoch begins at the same index
            has_come = name == "returned" and done[name] is None
            if plan[name] != done[name] and not has_come:
                text = f"{name} was planned as {plan[name]}, and is {done[name]}"
                raise BrokenPromiseError("promotion", text)

    def _may_be_late(self, to: int) -> bool:
        """True while answers may come to a host at other times than the last ones: it goes on when
        those that have come will do, so a plan and its result may have those of other hosts."""
        weather = self._network.weather
        return any(
            each.is_frozen
            or each.machine.rare is not None
            or each.machine.slow_s > 0
            or (host != to and not (weather(to, host).is_good and weather(host, to).is_good))
            for host, each in self._hosts.items()
        )

    def _state(self, to: int) -> object:
        """The state that a plan depends on. Where it is the same before and after, it was the same
        in between."""
        hosts = []
        for host, each in self._hosts.items():
            path = self._led.copies[host].path
            end = None if host == to else last_index(path)
            process = None if each.process is None else each.process.pid
            disk = each.machine.is_full, each.machine.has_error_ahead
            hosts.append((process, each.node is None, end, disk))
        links = frozenset(link.number for link in self._network.links if not link.is_cut)
        connected = self._hosts[to].connected_to  # some time after a link is made
        return hosts, links, connected, self._network.made, len(self.promoted)

    def _note_said(self, host: int, words: str, said: str) -> None:
        self._story.tell("operator", f"{self._hosts[host].machine.name}: {words}: {said}")

    async def tell(self, host: LabHost, asked: Values) -> Values | None:
        """Asks a host for something; the answer, None where there is none."""
        answer = await host.ask(asked)
        words = " ".join(str(each) for each in asked.values())
        if answer is None:
            self._story.tell("operator", f"{host.machine.name}: {words}: no answer")
            return None
        said = answer.get("said") or [answer.get("error")]
        assert isinstance(said, list)
        for line in said:
            self._story.tell("operator", f"{host.machine.name}: {words}: {line}")
        return answer
