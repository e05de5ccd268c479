"""Certificates for tests: a CA in a directory, and what hosts are started with."""

from pathlib import Path

from cqrepl.commands.authority import Authority
from cqrepl.net.tlssettings import TlsMode, TlsSettings


def tls_of(
    authority: Authority, path: Path, *, has_list: bool = False, ca: Path | None = None
) -> TlsSettings:
    """The settings of who has the certificate in a file."""
    return TlsSettings(
        mode=TlsMode.ON,
        ca=ca or authority.directory / "ca.pem",
        cert=path,
        key=path.with_suffix(".key"),
        crl=authority.directory / "crl.pem" if has_list else None,
    )


def host_tls(authority: Authority, host_id: int, *, has_list: bool = False) -> TlsSettings:
    """The settings of a host with a good certificate, which is made where there is none."""
    path = authority.directory / f"host-{host_id}.pem"
    if not path.exists():
        authority.host(host_id)
    return tls_of(authority, path, has_list=has_list)
