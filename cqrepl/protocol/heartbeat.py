"""Heartbeats: proof of life on an idle connection.

The dialler registers the handler and its two numbers rule both sides; the acceptor reflects the
registration. The first heartbeat goes out one interval after that, then at a fixed rate, even when
there is other traffic; it is left out while bytes wait to be sent, since those prove as much. Any
received byte counts as a sign of life, so silence is measured by the connection and only the limit
is kept here.
"""

import math

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages import HEARTBEAT_CSP, HeartbeatHandler, write_cid, write_heartbeat
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.settings import heartbeat_problem
from wire import Reader


class Heartbeat:
    """One side's half of the heartbeat."""

    csp = HEARTBEAT_CSP

    def __init__(self, cid: Cid, numbers: HeartbeatHandler, now: float, outbox: Outbox) -> None:
        assert heartbeat_problem(numbers.timeout_ms, numbers.interval_ms) is None
        self.silence_max = numbers.timeout_ms / 1000
        self._interval = numbers.interval_ms / 1000
        self._next = now + self._interval
        self._message = write_cid(cid) + write_heartbeat()
        self._outbox = outbox
        self._is_off = False

    @property
    def deadline(self) -> float:
        return math.inf if self._is_off else self._next

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return name == "heartbeat"

    def stop(self) -> None:
        """Sends no more; nothing may follow our TerminatorHandler."""
        self._is_off = True

    def tick(self, now: float) -> None:
        if self._is_off or now < self._next:
            return
        if not self._outbox.data:
            self._outbox.send(self._message)
        missed = (now - self._next) // self._interval
        self._next += (missed + 1) * self._interval

    def produce(self, room: int) -> bytes:
        return b""

    def closed(self, reason: str) -> None:
        """Nothing is held."""
