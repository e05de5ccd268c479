"""The settings by which a host reaches its peers: every key with its unit and limits."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cqrepl.kernel.live import Pausing
from cqrepl.net.address import Address
from cqrepl.net.limits import USUAL, LimitSettings
from cqrepl.net.rights import ALL_USUAL, Rights
from cqrepl.net.tlssettings import NO_TLS, TlsMode, TlsSettings, is_local

LIMIT_MAX: Final = 1 << 40  # bytes of excerpts a second
CORES_BUSY: Final = 2  # one that spins, and one for all other threads


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings:
    """Exactly one of `listen` and `connect` is given, or `peers`, then with `listen` or without.

    Args:
        also_listen: further addresses to listen on, beside `listen`.
        peers: addresses of hosts that are dialled, by their ids; each is dialled for ever.
        gives_up: a dialler stops after 30 s without success, one that listens 30 s after its last
            peer has gone.
        pausing: how a source waits for the next excerpt.
        guests_max: peers that are no members, at a time; 0 lets in none.
        guest_bytes_per_s: what each of them may send.
        limits: how many bytes of excerpts a second hosts are sent, by their ids; 0 for any number.
        limit_bytes_per_s: the same of every other host.
        tls: which connections are encrypted, and by which certificates.
        rights: what peers may do with which queues.
        cost: how much of what peers cost this host is taken.

    Raises:
        ValueError: keys that do not fit together, or a number beyond its limit.
    """

    listen: Address | None = None
    also_listen: tuple[Address, ...] = ()
    connect: Address | None = None
    peers: Mapping[int, Address] = field(default_factory=dict)
    gives_up: bool = False
    pausing: Pausing = Pausing.BALANCED
    guests_max: int = 64
    guest_bytes_per_s: int = 16 * 1024 * 1024
    limits: Mapping[int, int] = field(default_factory=dict)
    limit_bytes_per_s: int = 0
    tls: TlsSettings = NO_TLS
    rights: Rights = ALL_USUAL
    cost: LimitSettings = USUAL

    def __post_init__(self) -> None:
        has_peers = bool(self.peers) and self.connect is None
        if not has_peers and (self.listen is None) == (self.connect is None):
            came = "none" if self.listen is None else "both"
            raise ValueError(
                "an address to listen on (listen) or one to connect to (connect) expected,"
                f" {came} came"
            )
        if self.also_listen and self.listen is None:
            raise ValueError("a first address to listen on (listen) expected, further ones came")
        if self.guests_max < 0 or self.guest_bytes_per_s < 1:
            raise ValueError(
                f"a number of guests from 0 and a rate from 1 byte/s expected, "
                f"{self.guests_max} and {self.guest_bytes_per_s} came"
            )
        for each in (self.limit_bytes_per_s, *self.limits.values()):
            if not 0 <= each <= LIMIT_MAX:
                raise ValueError(f"a limit from 0 to {LIMIT_MAX} bytes/s expected, {each} came")
        if self.tls.mode is TlsMode.REQUIRED:
            for host_id, address in self.peers.items():
                if self.tls.meets_plain(host_id) and not is_local(address):
                    raise ValueError(
                        f"tls: expected TLS with 'mode: required', host {host_id} at {address} is"
                        " one of 'plain'"
                    )

    @property
    def listens(self) -> tuple[Address, ...]:
        """All addresses to listen on."""
        return () if self.listen is None else (self.listen, *self.also_listen)

    def limit_of(self, host_id: int) -> int:
        """The most bytes of excerpts that a host is sent a second; 0 for any number."""
        return self.limits.get(host_id, self.limit_bytes_per_s)


def pausing_named(pauser: str) -> Pausing:
    """The way of waiting that a user names.

    Raises:
        ValueError: there is none of this name, or too few cores for it.
    """
    words = [each.name.lower() for each in Pausing if each is not Pausing.STEP]
    if pauser not in words:
        raise ValueError(f"a pauser out of {', '.join(words)} expected, {pauser!r} came")
    pausing = Pausing[pauser.upper()]
    if pausing is Pausing.BUSY and len(os.sched_getaffinity(0)) < CORES_BUSY:
        raise ValueError("the pauser 'busy' keeps one core: at least two expected, there is one")
    return pausing
