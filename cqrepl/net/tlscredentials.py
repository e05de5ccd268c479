"""The files by which a host is known, and knows its peers: read once, and checked.

Theory of operation. When they are read, this side shakes hands with itself in memory: so a key that
is not of its certificate, a certificate of another CA, or one of another host, are found at once,
and not by the first peer. A certificate that has ended, and a list of revoked ones that has, are no
mistakes of a file: the host starts, warns, and its connections are refused until there are others.
"""

import os
import ssl
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cqrepl.net.certificates import Certificate, decoded
from cqrepl.net.errors import Refused
from cqrepl.net.tlssettings import TlsSettings

WARN_DAYS: Final = 30
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which `ssl` has no name for
_DAY_SECONDS: Final = 86_400
_STEPS: Final = 4  # of a handshake in memory
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class BadCredentials(Refused):
    """A file of certificates or keys is not what it has to be; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Read once; a reload makes others.

    Args:
        server, client: for connections that are accepted, and that are dialled.
        own: the certificate of this side.
        stale: why all connections are refused for now, as one of the files has ended; or empty.
        trusted: the bytes of the files of the CA, and of the list of revoked certificates.
    """

    settings: TlsSettings
    server: ssl.SSLContext
    client: ssl.SSLContext
    own: Certificate
    stale: str = ""
    trusted: tuple[bytes, bytes] = (b"", b"")

    def warning(self, now: float) -> str:
        """A line on a certificate that has ended, or is about to; or an empty text.

        Args:
            now: seconds since 1970.
        """
        days = (self.own.ends - now) / _DAY_SECONDS
        if days >= WARN_DAYS:
            return self.stale
        when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self.own.ends))
        how = "has ended" if days < 0 else f"ends in {days:.0f} days"
        return f"{self.settings.cert}: the certificate of {self.own} {how}, {when}"


def load_credentials(settings: TlsSettings, host_id: int | None) -> Credentials:
    """The credentials in the files that these settings name.

    Args:
        host_id: that the certificate has to be of; None for a guest.

    Raises:
        BadCredentials: a file cannot be read or used, and which.
    """
    assert settings.cert is not None
    _check_key(settings)
    server = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    client = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    timeless = [_context(each.protocol, settings, timeless=True) for each in (server, client)]
    if host_id is None:  # it never is a server, and its certificate may not be for one
        timeless[1].verify_mode = ssl.CERT_NONE
    try:
        own = _shaken(*timeless)
    except ssl.SSLError as error:
        raise BadCredentials(f"{settings.cert}: {reason_of(error, settings)}") from None
    problem = own.problem_as_guest() if host_id is None else own.problem_as_host(host_id)
    if problem is not None:
        raise BadCredentials(f"{settings.cert}: {problem}")
    stale = ""
    try:
        _shaken(server, client if host_id is not None else timeless[1])
    except ssl.SSLError as error:
        stale = f"{settings.cert}: {reason_of(error, settings)}"
    assert settings.ca is not None
    crl = b"" if settings.crl is None else settings.crl.read_bytes()
    trusted = settings.ca.read_bytes(), crl
    return Credentials(
        settings=settings, server=server, client=client, own=own, stale=stale, trusted=trusted
    )


def reason_of(error: ssl.SSLError, settings: TlsSettings) -> str:
    """The reason that a handshake failed for, in plain words; with the file by which it did."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        file = settings.crl if "CRL" in why or "revoked" in why else settings.ca
        return f"the certificate is not taken by {file}: {why}"
    reason = error.reason or str(error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "expected a certificate, got none"
    if reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "UNKNOWN_PROTOCOL"):
        return "expected TLS 1.3, got an older one"
    before, alert, why = reason.partition("ALERT_")
    if alert and before in ("SSLV3_", "TLSV1_", "TLSV13_"):
        words = why.lower().replace("_", " ")
        return f"the peer was shown {settings.cert}, and does not go on: {words}"
    return f"expected a TLS handshake, got {reason.lower().replace('_', ' ')}"


def _context(
    protocol: "ssl._SSLMethod", settings: TlsSettings, *, timeless: bool = False
) -> ssl.SSLContext:
    """A context with all files of these settings.

    Raises:
        BadCredentials: one cannot be read or used.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the host id is checked in its place
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a session that is taken up again would pass by the list
    assert settings.ca is not None
    assert settings.cert is not None
    assert settings.key is not None
    _load(settings.ca, "certificates of a CA", lambda: context.load_verify_locations(settings.ca))
    _check_readable(settings.cert)
    what = f"a certificate, and in {settings.key} its key without a passphrase"
    _load(settings.cert, what, lambda: context.load_cert_chain(settings.cert, settings.key, b""))
    if settings.crl is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        crl = settings.crl
        _check_list(crl)
        _load(crl, "a list of revoked certificates", lambda: context.load_verify_locations(crl))
    if timeless:
        context.verify_flags |= _NO_CHECK_TIME
    return context


def _load(path: Path, what: str, load: Any) -> None:
    _check_readable(path)
    try:
        load()
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        why = str(reason).lower().replace("_", " ")
        raise BadCredentials(f"{path}: expected {what}, got {why}") from None
    except OSError as error:
        raise BadCredentials(f"{path}: cannot be read: {error.strerror}") from None


def _check_list(path: Path) -> None:
    """Does nothing unless a file has certificates where a list is to be: each would be a CA."""
    _check_readable(path)
    data = path.read_bytes()
    if b"-----BEGIN X509 CRL-----" not in data or b"-----BEGIN CERTIFICATE-----" in data:
        raise BadCredentials(f"{path}: expected a list of revoked certificates alone, got others")


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise BadCredentials(f"{path}: cannot be read: {error.strerror}") from None


def _check_key(settings: TlsSettings) -> None:
    assert settings.key is not None
    try:
        mode = os.stat(settings.key).st_mode
    except OSError as error:
        raise BadCredentials(f"{settings.key}: cannot be read: {error.strerror}") from None
    if mode & _OTHERS:
        raise BadCredentials(
            f"{settings.key}: expected a key that only its owner can read, got mode"
            f" {stat.S_IMODE(mode):04o}"
        )


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> Certificate:
    """The certificate that a server sees of a client which shakes hands with it, in memory.

    Raises:
        ssl.SSLError: one of them does not take the other's.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_side=False),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(_STEPS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return certificate_of(ends[1])


def certificate_of(end: ssl.SSLObject) -> Certificate:
    """The certificate of the peer of an object that has shaken hands."""
    return decoded(end.getpeercert() or {}, end.getpeercert(binary_form=True) or b"")
