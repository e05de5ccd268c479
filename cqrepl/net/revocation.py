"""Looks which peers of connections that there are other credentials do not take any more."""

from typing import Any, Final

from cqrepl.net.certificates import Certificate
from cqrepl.net.tlscredentials import Credentials

_RENEWED: Final = "other certificates are taken from now on, and were read again"


class Reviewer:
    """Looks at certificates that were verified by older credentials, by newer ones.

    OpenSSL verifies only in a handshake, so the library of the extra `tls` looks at signature and
    list here. Without it, or where a certificate has come by way of another one, a connection whose
    CA or list is another one now ends, and the next handshake tells.
    """

    def __init__(self, old: Credentials, new: Credentials) -> None:
        self._new = new
        self._is_same = old.trusted == new.trusted
        self._revoked: set[int] = set()
        self._cas: list[Any] = []
        self._x509: Any = None  # the library, where it can tell
        self._wrong: tuple[type[Exception], ...] = ()
        if self._is_same:
            return
        try:
            from cryptography import x509
            from cryptography.exceptions import InvalidSignature
        except ImportError:
            return
        self._wrong = (InvalidSignature, ValueError, TypeError)
        try:
            self._cas = [*x509.load_pem_x509_certificates(new.trusted[0])]
            if new.trusted[1]:
                revoked = x509.load_pem_x509_crl(new.trusted[1])
                self._revoked = {each.serial_number for each in revoked}
        except ValueError:
            return
        self._x509 = x509

    def problem(self, peer: Certificate) -> str:
        """The reason that a peer is taken no more; empty where it is."""
        if self._is_same:
            return ""
        if self._x509 is None:
            return _RENEWED
        leaf = self._x509.load_der_x509_certificate(peer.der)
        if leaf.serial_number in self._revoked:
            return f"the certificate of {peer} is revoked by {self._new.settings.crl}"
        if any(self._signs(each, leaf) for each in self._cas):
            return ""
        return f"the certificate of {peer} is not taken by {self._new.settings.ca} any more"

    def _signs(self, ca: Any, leaf: Any) -> bool:
        try:
            leaf.verify_directly_issued_by(ca)
        except self._wrong:
            return False
        return True
