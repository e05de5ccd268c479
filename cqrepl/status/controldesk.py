"""Carries out the orders that a running host gets at its socket: each verb, and its answer.

An answer has `said`, lines for people, and values for programs. Where an order could not be carried
out, it has `error` in place of these, and `code`, with which the command that has asked ends.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from cqrepl.cluster.election.electiondesk import ElectionDesk
from cqrepl.cluster.promoter import Promoter
from cqrepl.console.exitcodes import OK, REFUSED, USAGE, BadArguments
from cqrepl.net.controlsocket import FORM, Values, asked_at
from cqrepl.net.errors import NetError, Refused
from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.index import format_index
from cqrepl.queue.quarantine import Quarantine, plan_quarantine
from cqrepl.replicator.hostparts import HostParts
from cqrepl.status.errorcodes import code_of
from cqrepl.status.quarantinetext import text_of
from cqrepl.status.snapshot import snapshot_of

FAILED: Final = (NetError, QueueError, OSError, BadArguments, ValueError)
Verb = Callable[[Values], Awaitable[Values]]
_logger: Final = logging.getLogger(__name__)


class ControlledHost(HostParts, Protocol):
    """The parts of a host that orders at its socket are carried out with."""

    @property
    def leaders(self) -> Promoter: ...

    @property
    def elections(self) -> ElectionDesk | None: ...

    async def step_down(self, name: str, why: str) -> None:
        """Gives up the lead of a queue."""

    async def hand_over(self, name: str, to: int) -> None:
        """Has another host lead a queue in place of this one."""

    async def pause(self, name: str) -> None:
        """Stops one queue by hand."""

    async def resume(self, name: str) -> None:
        """Has a queue go on that was paused by hand, or has stopped."""

    def forget(self, host_id: int) -> list[str]:
        """A sink that is not to come again is no longer waited for; names of its queues."""

    def differs_at(self, name: str) -> int:
        """The index that a queue has stopped at, as its source holds something else there."""

    async def quarantine(self, name: str) -> Quarantine:
        """Moves to quarantine what a queue holds otherwise than its source."""


class ControlDesk:
    """The verbs of one host; one is done after the other.

    Attributes:
        verbs: what is done for each; a program adds its own, and may have `reload` do something.
        services: what those that run beside the host say of themselves, by their queues.
        is_asked: true while there is a socket where it can be asked.
        turn: held while a verb is done, and by what else changes the host.
    """

    def __init__(self, host: ControlledHost) -> None:
        self.is_asked = False
        self.services: Final[dict[str, Callable[[], Mapping[str, object]]]] = {}
        self._host = host
        self.turn = trio.Lock()
        self.verbs: Final[dict[str, Verb]] = {
            "reload": self._reload,
            "pause": self._pause,
            "resume": self._resume,
            "forget": self._forget,
            "quarantine": self._quarantine,
            "promote": self._promote,
            "plan promote": self._plan_promotion,
            "step down": self._step_down,
            "epochs": self._epochs,
        }

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """For the length of a block it can be asked at the socket that its settings name; at none
        where they name none."""
        host = self._host
        if host.settings.run_dir is None:
            yield
            return
        directory, host_id = Path(host.settings.run_dir), host.settings.protocol.host_id
        status = partial(snapshot_of, host, self.services)
        async with asked_at(directory, host_id, status, self.do) as self.is_asked:
            yield

    async def do(self, asked: Values) -> Values:
        """Does what is asked for; the answer."""
        name = asked.get("do")
        verb = self.verbs.get(name) if isinstance(name, str) else None
        if verb is None:
            known = ", ".join(("status", *self.verbs))
            return {"v": FORM, "error": f"one of {known} expected", "code": USAGE}
        async with self.turn:
            try:
                found = await verb(asked)
            except FAILED as error:
                code = USAGE if isinstance(error, ValueError) else code_of(error)
                return {"v": FORM, "error": str(error), "code": code}
        return {"v": FORM, "host": self._host.endpoint.protocol.host_id, "do": name} | found

    async def _reload(self, _asked: Values) -> Values:
        raise Refused("a program runs this host: it has no file of its own to read again")

    async def _pause(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        await self._host.pause(name)
        return _said(f"queue {name!r} is paused") | {"queue": name}

    async def _resume(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        await self._host.resume(name)
        return _said(f"queue {name!r} goes on") | {"queue": name}

    async def _promote(self, asked: Values) -> Values:
        name, accept = _text(asked, "queue"), asked.get("accept_loss") is True
        done = await self._host.leaders.promote(name, accept_loss=accept)
        lines = done.lines(is_done=True)
        level = logging.WARNING if done.is_risky else logging.INFO
        for line in lines:
            _logger.log(level, "by operator: %s", line)
        return done.fields() | {"said": lines}

    async def _plan_promotion(self, asked: Values) -> Values:
        name, to = _text(asked, "queue"), asked.get("to")
        if not isinstance(to, int):
            raise BadArguments("the id of a host expected")
        plan = await self._host.leaders.plan(name, to)
        code = REFUSED if plan.refusal or plan.is_risky else OK
        return plan.fields() | {"said": plan.lines(is_done=False), "code": code}

    async def _step_down(self, asked: Values) -> Values:
        name, to = _text(asked, "queue"), asked.get("to")
        if to is not None:
            if not isinstance(to, int):
                raise BadArguments("the id of a host expected")
            await self._host.hand_over(name, to)
            return _said(f"queue {name!r}: host {to} leads it") | {"queue": name, "leader": to}
        await self._host.step_down(name, "by operator")
        elections = self._host.elections
        if elections is not None:
            elections.rest(name)
        other = "an operator promotes another" if elections is None else "another one is elected"
        return _said(f"queue {name!r}: this host leads it no longer: {other}") | {"queue": name}

    async def _epochs(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        self._host.path_of(name)
        queue = self._host.sink.queues.get(name) or self._host.source.queues.get(name)
        if queue is None:
            raise Refused(f"queue {name!r} is not open now")
        now = queue.epochs.now
        epochs = [
            {"number": each.number, "leader": each.leader, "start": format_index(each.start)}
            for each in now.history
        ]
        said = [
            f"queue {name!r}: epoch {each['number']}: host {each['leader']} from {each['start']} on"
            for each in epochs
        ]
        if now.promised and not now.is_begun:
            said.append(
                f"queue {name!r}: epoch {now.promised}: promised to host {now.promised_to}, and not"
                " begun as far as is known here"
            )
        return {
            "queue": name,
            "epochs": epochs,
            "promised": now.promised,
            "promised_to": now.promised_to,
            "said": said or [f"queue {name!r}: it was never promoted"],
        }

    async def _forget(self, asked: Values) -> Values:
        host_id = asked.get("forgotten")
        if not isinstance(host_id, int):
            raise BadArguments("the id of a host expected")
        names = self._host.forget(host_id)
        said = _said(f"host {host_id} is forgotten: {', '.join(names)}")
        return said | {"forgotten": host_id, "queues": names}

    async def _quarantine(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        is_applied = asked.get("apply") is True
        start = self._host.differs_at(name)
        path = self._host.sink.queues[name].path
        with Queue.open(path) as queue:
            shift = queue.layout.roll_cycle.shift
        if is_applied:
            gone = await self._host.quarantine(name)
        else:
            gone = await in_thread(partial(plan_quarantine, path, start))
        lines = text_of(gone, shift, is_applied=is_applied).splitlines()
        if is_applied:
            for line in lines:
                _logger.warning("queue %r: %s", name, line)
        fields = gone.fields(shift) | {"v": FORM, "queue": name, "applied": is_applied}
        return fields | {"said": lines}


def _said(line: str) -> Values:
    """An answer of one line, which is logged too."""
    _logger.info("by operator: %s", line)
    return {"said": [line]}


def _text(asked: Values, name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise BadArguments(f"a {name} expected")
    return value
