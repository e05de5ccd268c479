"""Decides, from a sample of a host, what an operator has to look at. No I/O, no clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cqrepl.page.hostlook import HostLook
from cqrepl.page.settings import AlarmSettings

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True, order=True)
class Alarm:
    """One thing to look at.

    Args:
        name: `stopped`, `lag`, `away`, `disk`, `certificate`.
        subject: the queue, the queue and the host, or the host, it is about.
        says: a sentence, which does not count for whether two are the same.
    """

    name: str
    subject: str
    says: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Two alarms with one key are the same, however it stands."""
        return self.name, self.subject


def alarms_of(sample: HostLook, settings: AlarmSettings) -> dict[tuple[str, str], Alarm]:
    """All alarms of a sample, by their keys."""
    return {each.key: each for each in _alarms(sample, settings)}


def _alarms(sample: HostLook, settings: AlarmSettings) -> Iterator[Alarm]:
    for queue in sample.host["queues"]:
        yield from _of_queue(queue, sample, settings)
    for peer in sample.host["peers"]:
        if peer["state"] == "away":
            yield Alarm("away", f"host {peer['host']}", "it is not connected")
    for name, disk in sample.disks.items():
        if disk.part_free < settings.disk_free:
            yield Alarm("disk", name, f"{disk.part_free:.1%} of its disk is free")
    tls = sample.host.get("tls")
    if tls is not None:
        days = (tls["ends"] - sample.wall) / _DAY
        if days < settings.certificate_days or tls["warning"]:
            says = tls["warning"] or f"{tls['certificate']} ends in {days:.0f} days"
            yield Alarm("certificate", f"host {sample.host['host']}", says)


def _of_queue(
    queue: Mapping[str, Any], sample: HostLook, settings: AlarmSettings
) -> Iterator[Alarm]:
    name, state = queue["name"], str(queue["state"])
    if state.startswith("stopped"):
        yield Alarm("stopped", name, state)
    for sink in queue.get("sinks", ()):
        where = f"{name} at host {sink['host']}"
        if str(sink["state"]).startswith("stopped"):
            yield Alarm("stopped", where, str(sink["state"]))
        behind = sample.behind.get((name, sink["host"]), 0.0)
        if behind >= settings.lag_seconds:
            lacks = "some" if sink["lag"] is None else f"{sink['lag']:,}"
            yield Alarm("lag", where, f"it lacks {lacks} excerpts, for {behind:.0f} s")
