"""One frozen look at a host: all that alarms, metrics and pages are made of."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]  # as `status.snapshot` makes them


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a queue, in bytes."""

    free: int
    size: int

    @property
    def part_free(self) -> float:
        """From 0 to 1."""
        return self.free / self.size if self.size else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """A look at a host; nothing in it is changed.

    Args:
        host: what `cqrepl status --json` prints.
        at: when, in seconds by the clock of the event loop.
        wall: the same since 1970.
        behind: for how many seconds a sink has lacked something, by queue and host.
        disks: by queue.
        descriptors: open in this process.
        rates: bytes of payload a second that a queue sent or took in, by its name.
    """

    host: Values
    at: float
    wall: float
    behind: Mapping[tuple[str, int], float] = field(default_factory=dict)
    disks: Mapping[str, Disk] = field(default_factory=dict)
    descriptors: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)


def disks_of(host: Values) -> dict[str, Disk]:
    """The disks of the queues of a host; those that can be looked at."""
    found = {}
    for queue in host["queues"]:
        try:
            status = os.statvfs(queue.get("path", ""))
        except OSError:
            continue
        size = status.f_frsize
        found[queue["name"]] = Disk(status.f_bavail * size, status.f_blocks * size)
    return found


def open_descriptors() -> int:
    """So many this process has."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
