"""The settings by which the connections of a host are encrypted, and both ends are known."""

import ipaddress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from cqrepl.net.address import Address

LOCAL_NAME: Final = "localhost"


class TlsMode(Enum):
    """Which connections are encrypted."""

    OFF = "off"
    ON = "on"
    """All but those of `plain`."""
    REQUIRED = "required"
    """The same; `plain` stays on the loopback interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSettings:
    """Hosts that are met without TLS, as Java's are.

    Args:
        listen: where they are waited for; None: they are only dialled.
        networks: those that dial come from one of these (CIDR).
        hosts: their ids.

    Raises:
        ValueError: no host is named, or a network is none; one sentence says which.
    """

    listen: Address | None = None
    networks: tuple[str, ...] = ()
    hosts: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError(
                "plain: expected the ids of 'hosts' that are met without TLS, got none"
            )
        if self.listen is not None and not self.networks:
            raise ValueError("plain: expected networks in 'from', for those that dial, got none")
        for each in self.networks:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                raise ValueError(
                    f"plain: expected a network such as 10.0.0.0/8 in 'from': {error}"
                ) from None

    def __str__(self) -> str:
        said = [] if self.listen is None else [f"listen={self.listen}"]
        said += [f"from={'+'.join(self.networks)}"] if self.networks else []
        return ", ".join([*said, f"hosts={'+'.join(map(str, sorted(self.hosts)))}"])

    def takes(self, machine: str) -> bool:
        """True for a machine, a number such as `10.0.0.7`, in one of the networks."""
        try:
            number = ipaddress.ip_address(machine.strip("[]").partition("%")[0])
        except ValueError:
            return False
        if isinstance(number, ipaddress.IPv6Address) and number.ipv4_mapped is not None:
            number = number.ipv4_mapped
        return any(number in ipaddress.ip_network(each) for each in self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS 1.3, with certificates at both ends.

    Args:
        ca: file of the certificates that sign those of peers (PEM).
        cert: file of the certificate of this side, and of those between it and the CA.
        key: file of its private key, which only its owner can read.
        crl: file of the list of certificates that are revoked; None: there is none.
        plain: who is met without TLS all the same.

    Raises:
        ValueError: a file is missing, or plain bytes would leave this machine though TLS is
            required; one sentence says which.
    """

    mode: TlsMode = TlsMode.OFF
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    crl: Path | None = None
    plain: PlainSettings | None = None

    def __post_init__(self) -> None:
        if not self.is_on:
            if self.plain is not None:
                raise ValueError("tls: expected 'plain' beside 'mode: on' or 'required', it is off")
            return
        for name in ("ca", "cert", "key"):
            if getattr(self, name) is None:
                raise ValueError(f"tls: expected a file for {name!r}, got none")
        listen = None if self.plain is None else self.plain.listen
        if self.mode is TlsMode.REQUIRED and listen is not None and not is_local(listen):
            raise ValueError(
                "tls: expected a 'plain' address of this machine with 'mode: required', got"
                f" {listen}"
            )

    @property
    def is_on(self) -> bool:
        return self.mode is not TlsMode.OFF

    def meets_plain(self, host_id: int) -> bool:
        """True for a host that is dialled without TLS."""
        return not self.is_on or (self.plain is not None and host_id in self.plain.hosts)


NO_TLS: Final = TlsSettings()


def is_local_name(text: str) -> bool:
    """The same, of an address as a log has it."""
    try:
        return is_local(Address.parse(text))
    except ValueError:
        return False  # the peer is gone


def is_local(address: Address) -> bool:
    """True for an address that no other machine reaches."""
    try:
        number = ipaddress.ip_address(address.host)
        mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
        return (mapped or number).is_loopback
    except ValueError:
        return address.host == LOCAL_NAME
