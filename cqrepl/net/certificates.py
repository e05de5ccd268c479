"""Certificates of peers, as the standard library decodes them once it has verified them.

A host's certificate names its id, a guest's its name, in a URI among the alternative names of its
subject: `cqrepl-host:3`, `cqrepl-guest:reports`.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

HOST_SCHEME: Final = "cqrepl-host:"
GUEST_SCHEME: Final = "cqrepl-guest:"
_SHOWN: Final = 80  # characters of what a certificate says


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that was verified.

    Args:
        subject: for people, such as `CN=host 3`.
        hosts: ids of the hosts that it is of.
        guests: names of the guests that it is of.
        ends: when it does, in seconds since 1970.
        der: the whole of it.
    """

    subject: str
    hosts: frozenset[int]
    guests: frozenset[str]
    ends: float
    der: bytes = b""

    def problem_as_host(self, host_id: int) -> str | None:
        """The reason that it is not the one of this host; None where it is."""
        if host_id in self.hosts:
            return None
        return f"expected a certificate of host {host_id} ({HOST_SCHEME}{host_id}), got {self}"

    def problem_as_guest(self) -> str | None:
        """The reason that it is no guest's; None where it is: a host's certificate will do."""
        if self.guests or self.hosts:
            return None
        return f"expected a certificate of a guest ({GUEST_SCHEME}NAME), got {self}"

    def __str__(self) -> str:
        names = [f"{HOST_SCHEME}{each}" for each in sorted(self.hosts)]
        names += [f"{GUEST_SCHEME}{each}" for each in sorted(self.guests)]
        return f"{self.subject} ({', '.join(names) or 'of no host and no guest'})"


def decoded(fields: Mapping[str, Any], der: bytes = b"") -> Certificate:
    """The certificate that `ssl.SSLObject.getpeercert` gives."""
    hosts, guests = set[int](), set[str]()
    for kind, text in fields.get("subjectAltName", ()):
        if kind != "URI":
            continue
        host_id = text.removeprefix(HOST_SCHEME)
        if host_id != text and host_id.isascii() and host_id.isdecimal() and len(host_id) < 4:
            hosts.add(int(host_id))
        elif text.startswith(GUEST_SCHEME):
            guests.add(shown(text.removeprefix(GUEST_SCHEME)))
    subject = ", ".join(
        f"{_SHORT.get(name, name)}={shown(value)}"
        for names in fields.get("subject", ())
        for name, value in names
    )
    return Certificate(
        subject=subject or "a certificate without a subject",
        hosts=frozenset(hosts),
        guests=frozenset(guests),
        ends=float(ssl.cert_time_to_seconds(fields["notAfter"])),
        der=der,
    )


_SHORT: Final = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}


def shown(text: str) -> str:
    """A text of a certificate on one line of a log."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return text if text.isprintable() else ascii(text)[1:-1]
