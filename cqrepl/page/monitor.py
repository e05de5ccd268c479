"""Looks at a host now and then: keeps its last hour, raises alarms, and says that it turns.

Theory of operation. A sample is made in the event loop, at most once a second, and only where a
reader asks or a look is due; nothing changes it then, so that pages and metrics are rendered from
it in a thread. Alarms are events: one is logged, and told to the operator's command, when it comes
and when it goes.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from cqrepl.net.hookrunner import HookRunner
from cqrepl.net.threads import in_thread
from cqrepl.page.alarms import Alarm, alarms_of
from cqrepl.page.hostlook import Disk, HostLook, disks_of, open_descriptors
from cqrepl.page.settings import AlarmSettings
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 10.0
FRESH_SECONDS: Final = 1.0
KEPT: Final = 360  # looks: an hour
TURN_SECONDS: Final = 10.0  # and no turn of the event loop: it does not live
_NS: Final = 1_000_000_000
_logger: Final = logging.getLogger(__name__)


class Monitor:
    """The looks at one host.

    Args:
        snapshot: gives what the host does, as `cqrepl status --json`.

    Attributes:
        alarms: those that are raised, by their keys.
        kept: of the last hour, by queue: bytes a second, and the most excerpts that a sink lacks.
    """

    def __init__(
        self, snapshot: Callable[[], Mapping[str, Any]], settings: AlarmSettings | None = None
    ) -> None:
        self.settings = settings or AlarmSettings()
        self.alarms: dict[tuple[str, str], Alarm] = {}
        self.kept: dict[str, deque[tuple[float, int]]] = {}
        self._snapshot = snapshot
        self._last: HostLook | None = None
        self._looked: HostLook | None = None  # with the last look
        self._well: dict[tuple[str, int], float] = {}  # when a sink had all, last
        self._disks: Mapping[str, Disk] = {}
        self._descriptors = 0
        self._hooks = HookRunner("onAlarm")
        self._turned = trio.current_time()

    async def run(self) -> None:
        """Looks for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turn)
            nursery.start_soon(self._hooks.run)
            await self._look_at_machine()
            while True:  # peers have a moment to come before anything is an alarm
                await trio.sleep(LOOK_SECONDS)
                await self.look()

    async def look(self) -> None:
        """Looks once, and raises and clears alarms."""
        sample = await self._look_at_machine()
        self._keep(sample)
        found = alarms_of(sample, self.settings)
        for key in sorted(found.keys() - self.alarms.keys()):
            self._tell("raised", found[key], logging.WARNING)
        for key in sorted(self.alarms.keys() - found.keys()):
            self._tell("cleared", self.alarms[key], logging.INFO)
        self.alarms = found

    async def _look_at_machine(self) -> HostLook:
        sample = self.sample()
        self._disks, self._descriptors = await in_thread(
            lambda: (disks_of(sample.host), open_descriptors())
        )
        self._last = replace(sample, disks=self._disks, descriptors=self._descriptors)
        return self._last

    def sample(self) -> HostLook:
        """A look at the host, a second old at most."""
        now = trio.current_time()
        last = self._last
        if last is not None and now < last.at + FRESH_SECONDS:
            return last
        host = self._snapshot()
        self._last = sample = HostLook(
            host=host,
            at=now,
            wall=surroundings().wall_ns() / _NS,
            behind=self._behind(host, now),
            disks=self._disks,
            descriptors=self._descriptors,
            rates=self._rates(host, now),
        )
        return sample

    @property
    def is_turning(self) -> bool:
        """True while the event loop has turned a moment ago."""
        return trio.current_time() < self._turned + TURN_SECONDS

    async def _turn(self) -> None:
        while True:
            self._turned = trio.current_time()
            await trio.sleep(1.0)

    def _behind(self, host: Mapping[str, Any], now: float) -> dict[tuple[str, int], float]:
        found = {}
        for queue in host["queues"]:
            for sink in queue.get("sinks", ()):
                key = (queue["name"], sink["host"])
                if sink["lag"] == 0:
                    self._well[key] = now
                found[key] = now - self._well.setdefault(key, now)
        return found

    def _rates(self, host: Mapping[str, Any], now: float) -> dict[str, float]:
        before = self._looked
        if before is None or now <= before.at:
            return {}
        was = {each["name"]: each.get("bytes", 0) for each in before.host["queues"]}
        return {
            each["name"]: max(0.0, (each.get("bytes", 0) - was[each["name"]]) / (now - before.at))
            for each in host["queues"]
            if each["name"] in was
        }

    def _keep(self, sample: HostLook) -> None:
        names = {each["name"] for each in sample.host["queues"]}
        self.kept = {name: each for name, each in self.kept.items() if name in names}
        for queue in sample.host["queues"]:
            lags = [sink["lag"] or 0 for sink in queue.get("sinks", ())]
            lag = max([*lags, queue.get("lag") or 0])
            rate = sample.rates.get(queue["name"], 0.0)
            self.kept.setdefault(queue["name"], deque(maxlen=KEPT)).append((rate, lag))
        self._looked = sample

    def _tell(self, what: str, alarm: Alarm, level: int) -> None:
        _logger.log(level, "alarm %s: %s: %s: %s", what, alarm.name, alarm.subject, alarm.says)
        if self.settings.command:
            words = (what.upper(), alarm.name, alarm.subject, alarm.says)
            self._hooks.add(self.settings.command + words)
