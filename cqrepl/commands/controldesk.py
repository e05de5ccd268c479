"""What a running host does when it is told to, at its socket: each verb, and what is answered.

An answer has `said`, lines for people, and what programs read; one that could not be done has
`error` in place of that, and `code`, which the command that has asked ends with.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from cqrepl.commands.outcome import code_of
from cqrepl.commands.quarantine import text_of
from cqrepl.commands.reloader import Reloader
from cqrepl.console.exitcodes import USAGE, BadArguments
from cqrepl.net.errors import NetError
from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.quarantine import plan_quarantine
from cqrepl.replicator.host import Host
from cqrepl.status.controlsocket import FORM, Values

_FAILED: Final = (NetError, QueueError, OSError, BadArguments, ValueError)
_logger: Final = logging.getLogger(__name__)


class ControlDesk:
    """The verbs of one host; one is done after the other.

    Args:
        reloader: reads the file again that the host runs by.
    """

    def __init__(self, host: Host, reloader: Reloader) -> None:
        self._host = host
        self._reloader = reloader
        self._turn = trio.Lock()
        self._verbs: Final[Mapping[str, Callable[[Values], Awaitable[Values]]]] = {
            "reload": self._reload,
            "pause": self._pause,
            "resume": self._resume,
            "forget": self._forget,
            "quarantine": self._quarantine,
        }

    async def do(self, asked: Values) -> Values:
        """Does what is asked for; the answer."""
        name = asked.get("do")
        verb = self._verbs.get(name) if isinstance(name, str) else None
        if verb is None:
            known = ", ".join(("status", *self._verbs))
            return {"v": FORM, "error": f"one of {known} expected", "code": USAGE}
        async with self._turn:
            try:
                found = await verb(asked)
            except _FAILED as error:
                code = USAGE if isinstance(error, ValueError) else code_of(error)
                return {"v": FORM, "error": str(error), "code": code}
        return {"v": FORM, "host": self._host.endpoint.protocol.host_id, "do": name} | found

    async def _reload(self, _asked: Values) -> Values:
        try:
            return await self._reloader.reload(self._host)
        except _FAILED as error:
            _logger.error("by operator: all stays as it is: %s", error)
            raise

    async def _pause(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        await self._host.pause(name)
        return _said(f"queue {name!r} is paused") | {"queue": name}

    async def _resume(self, asked: Values) -> Values:
        name = _text(asked, "queue")
        await self._host.resume(name)
        return _said(f"queue {name!r} goes on") | {"queue": name}

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
