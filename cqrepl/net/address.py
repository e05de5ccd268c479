"""Addresses as people write them: `HOST:PORT`, with an IPv6 host in brackets."""

from dataclasses import dataclass
from ipaddress import IPv4Address

_PORT_MAX = 65535
_EVERY = IPv4Address(0)


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or number, and a TCP port; port 0 lets the system choose when listening."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address that `HOST:PORT` spells.

        Raises:
            ValueError: with what was expected, in one sentence.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit():
            raise ValueError(f"HOST:PORT expected, {text!r} came")
        if int(port) > _PORT_MAX:
            raise ValueError(f"a port from 0 to {_PORT_MAX} expected, {port} came")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"[HOST]:PORT expected for an IPv6 address, {text!r} came")
        return cls(host, int(port))

    @classmethod
    def listening(cls, text: str) -> "Address":
        """The same, for a side that listens: `:PORT` is every IPv4 address of this host.

        Raises:
            ValueError: with what was expected, in one sentence.
        """
        return cls.parse(f"{_EVERY}{text}" if text.startswith(":") else text)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
