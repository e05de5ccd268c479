"""The limits of what peers may cost a host, and the pace of its guests."""

from dataclasses import dataclass
from typing import Final

from cqrepl.net.doorstep import UNGREETED_ALL_MAX, UNGREETED_MAX
from cqrepl.net.listener import CONNECTIONS_MAX

HANDSHAKE_SECONDS: Final = 5.0
GUEST_REQUESTS_PER_S: Final = 5_000
REQUEST_BYTES: Final = 16 * 1024  # taken from a guest at a time: some hundreds of requests


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The limits.

    Args:
        connections: to each address that is listened on.
        per_address: connections of one machine that have not said who they are.
        unauthenticated: the same of all machines.
        handshake_seconds: for one of TLS.
        guest_requests_per_s: requests and registrations of all guests together.
    """

    connections: int = CONNECTIONS_MAX
    per_address: int = UNGREETED_MAX
    unauthenticated: int = UNGREETED_ALL_MAX
    handshake_seconds: float = HANDSHAKE_SECONDS
    guest_requests_per_s: int = GUEST_REQUESTS_PER_S


USUAL: Final = LimitSettings()


class GuestPace:
    """The requests of all guests of a host, one after the other: none is read while those before it
    have taken up the time that is for guests. A host that leads has the rest for its followers.

    Args:
        per_s: so many; 0 for any number.
    """

    def __init__(self, per_s: int) -> None:
        self.per_s = per_s
        self._free_at = 0.0

    def wait(self, count: int, now: float) -> float:
        """In how many seconds the guest that has asked so many times is read from again."""
        if not self.per_s or not count:
            return 0.0
        self._free_at = max(self._free_at, now) + count / self.per_s
        return self._free_at - now
