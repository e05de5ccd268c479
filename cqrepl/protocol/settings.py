"""The settings of one side of a connection: what it is and accepts, with units and limits."""

from dataclasses import dataclass, field
from typing import Final

from cqrepl.protocol.messages import WireShape

INTERVAL_MIN_MS: Final = 500
TIMEOUT_MIN_MS: Final = 1000
PAYLOAD_MAX: Final = 16 * 1024 * 1024
FRAME_OVERHEAD_MAX: Final = 4096
EXCERPT_MAX: Final = (1 << 30) - 4 - FRAME_OVERHEAD_MAX  # a frame's length has 30 bits
HOST_IDS: Final = range(1, 128)  # one signed byte on Java's side; 0 switches its check off


def heartbeat_problem(timeout_ms: int, interval_ms: int) -> str | None:
    """The fault of a pair of heartbeat numbers; None when they have none."""
    if interval_ms < INTERVAL_MIN_MS:
        return f"heartbeat interval of at least {INTERVAL_MIN_MS} ms expected, {interval_ms} came"
    if timeout_ms < TIMEOUT_MIN_MS:
        return f"heartbeat timeout of at least {TIMEOUT_MIN_MS} ms expected, {timeout_ms} came"
    if timeout_ms <= interval_ms:
        return f"heartbeat timeout above the interval {interval_ms} ms expected, {timeout_ms} came"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    """The dialler's numbers rule both sides.

    Args:
        interval_ms: time between heartbeats, at least 500.
        timeout_ms: silence that ends a connection; at least 1,000 and above the interval.

    Raises:
        ValueError: a number beyond its limit.
    """

    interval_ms: int = 20_000
    timeout_ms: int = 40_000

    @property
    def timeout_seconds(self) -> float:
        """The time-out as the clock of a connection counts."""
        return self.timeout_ms / 1000

    def __post_init__(self) -> None:
        problem = heartbeat_problem(self.timeout_ms, self.interval_ms)
        if problem is not None:
            raise ValueError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSettings:
    """One side of every connection of a host.

    Args:
        host_id: our own id, 1 to 127; not used by a guest.
        guest: name of a side that is no member, a tool or a task; empty for a host.
        remote_ids: ids that a peer may have; empty for any but our own. A guest that dials may
            leave them out: it takes the host that answers, of a version that allows it.
        payload_max: longest excerpt in bytes that is sent or taken.
        shape: layout of the set-up messages that are written; both are read.
        runs: many excerpts go in one document, to and from peers that know of that.

    Raises:
        ValueError: a number beyond its limit.
    """

    host_id: int = 1
    guest: str = ""
    remote_ids: frozenset[int] = frozenset()
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    payload_max: int = PAYLOAD_MAX
    shape: WireShape = WireShape.NETWORK
    runs: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.payload_max <= EXCERPT_MAX:
            raise ValueError(
                f"a longest excerpt of 1 to {EXCERPT_MAX} bytes expected, {self.payload_max} came"
            )
        for each in (self.host_id, *sorted(self.remote_ids)):
            if each not in HOST_IDS:
                raise ValueError(f"a host id from 1 to 127 expected, {each} came")
