"""The settings by which a host tells its operators how it does."""

from dataclasses import dataclass
from pathlib import Path

from cqrepl.net.address import Address
from cqrepl.net.tlssettings import TlsSettings, is_local


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSettings:
    """The thresholds of alarms, and the command that hears of them.

    Args:
        lag_seconds: a sink that lacked something for so long.
        disk_free: part of the disk of a queue that is free, from 0 to 1.
        certificate_days: until a certificate ends.
        command: with its arguments; it gets RAISED|CLEARED, the alarm, its subject and a sentence.
    """

    lag_seconds: float = 10.0
    disk_free: float = 0.1
    certificate_days: float = 30.0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """The place where pages and metrics are given.

    Args:
        listen: None: nowhere.
        token: file with the token that readers show; beyond this machine there has to be one.
        tls: the certificate and key by which it is encrypted, beyond this machine.

    Raises:
        ValueError: it would be reached from other machines without TLS or a token.
    """

    listen: Address | None = None
    token: Path | None = None
    tls: TlsSettings

    def __post_init__(self) -> None:
        if self.listen is None or is_local(self.listen):
            return
        if self.token is None or not self.tls.is_on:
            lacks = "a 'token'" if self.token is None else "TLS ('tls: {mode: on}')"
            raise ValueError(f"page: expected {lacks} for {self.listen}, beyond this machine")

    @property
    def is_encrypted(self) -> bool:
        """True where it is reached by TLS."""
        return self.tls.is_on and self.listen is not None and not is_local(self.listen)
