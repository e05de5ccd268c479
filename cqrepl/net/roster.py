"""The hosts that are connected: one live connection for each host id, and the newest wins.

A host whose connection broke without our noticing comes back on a new one, so the new one has to
win. But two processes with one id would take over from each other for ever; more than a few times
in a row is refused.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import trio

from cqrepl.net.pump import Pump

TAKE_OVERS_MAX: Final = 3
TAKE_OVER_SECONDS: Final = 10.0


class Roster:
    """The live connections of one listener or dialler."""

    def __init__(self, guests_max: int = 0) -> None:
        self._guests: set[Pump] = set()
        self.guests_max = guests_max
        self._live: dict[int, Pump] = {}
        self._taken_over: dict[int, deque[float]] = {}

    @property
    def pumps(self) -> list[Pump]:
        return list(self._live.values())

    @property
    def hosts(self) -> Mapping[int, Pump]:
        """The connection of each host, by its id."""
        return self._live

    @property
    def has_room_for_guest(self) -> bool:
        return len(self._guests) < self.guests_max

    async def enter(self, host_id: int, pump: Pump) -> str | None:
        """Makes `pump` the connection of this host; what is wrong if it may not be (None:
        nothing). A guest has no host id: it counts among the guests."""
        if pump.connection.is_guest:
            if not self.has_room_for_guest:
                return f"at most {self.guests_max} guests at a time"
            self._guests.add(pump)
            return None
        old = self._live.get(host_id)
        if old is not None:
            times = self._taken_over.setdefault(host_id, deque(maxlen=TAKE_OVERS_MAX))
            now = trio.current_time()
            if len(times) == TAKE_OVERS_MAX and now - times[0] < TAKE_OVER_SECONDS:
                return (
                    f"host id {host_id} is connected, and was taken over {TAKE_OVERS_MAX} times "
                    f"in {TAKE_OVER_SECONDS:g} s: do two hosts have this id?"
                )
            times.append(now)
        self._live[host_id] = pump
        if old is not None:
            await old.stop(f"host id {host_id} connected again")
        return None

    def leave(self, pump: Pump) -> None:
        """The connection is over."""
        self._guests.discard(pump)
        for host_id, live in list(self._live.items()):
            if live is pump:
                del self._live[host_id]
