"""A certificate authority in a directory, for trials and small clusters.

    ca.pem, ca.key          certificate and key of the CA
    crl.pem                 the list of what is revoked
    host-3.pem, .key        certificate and key of host 3
    guest-NAME.pem, .key    the same of a guest

Keys are on the curve P-256, and can be read by their owner only. What there is already is never
written over: a file of another key would lock out hosts that run.
"""

import datetime
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cqrepl.console.exitcodes import BadArguments
from cqrepl.net.certificates import GUEST_SCHEME, HOST_SCHEME

CA_DAYS: Final = 3650
DAYS: Final = 397
_BEFORE: Final = datetime.timedelta(minutes=5)  # clocks of hosts differ a little
_GUEST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644


class Authority:
    """The CA in a directory that has one.

    Raises:
        BadArguments: there is none, or a file of it is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._certificate = load_certificate(directory / "ca.pem")
        self._key = _load_key(directory / "ca.key")

    @classmethod
    def make(cls, directory: Path, *, name: str = "cqrepl", days: int = CA_DAYS) -> "Authority":
        """Makes a CA, with an empty list of what is revoked.

        Raises:
            BadArguments: the directory has a CA.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"{name} CA")
        uses = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            _builder(subject, key, _now() - _BEFORE, _now() + datetime.timedelta(days=days))
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(uses, critical=True)
            .sign(key, hashes.SHA256())
        )
        _store_key(directory / "ca.key", key)
        _store(directory / "ca.pem", made.public_bytes(serialization.Encoding.PEM), _PUBLIC)
        authority = cls(directory)
        authority.list_revoked((), days=days)
        return authority

    def host(self, host_id: int, *, days: float = DAYS, begins: float = 0.0) -> Path:
        """Makes a certificate of a host, and its key; the path of the certificate.

        Args:
            begins: in so many days.

        Raises:
            BadArguments: there is one.
        """
        uri = f"{HOST_SCHEME}{host_id}"
        return self._issue(f"host-{host_id}", f"host {host_id}", uri, days, begins)

    def guest(self, name: str, *, days: float = DAYS) -> Path:
        """The same of a guest, as a tool or a task.

        Raises:
            BadArguments: there is one, or its name is none.
        """
        if not _GUEST.fullmatch(name):
            raise BadArguments(
                f"expected a name of letters, digits, '.', '_' and '-', got {name!r}"
            )
        return self._issue(f"guest-{name}", f"guest {name}", f"{GUEST_SCHEME}{name}", days, 0.0)

    def revoke(self, paths: Iterable[Path], *, days: float = CA_DAYS) -> Path:
        """Adds certificates to the list of what is revoked; its path.

        Raises:
            BadArguments: one is none, or not of this CA.
        """
        found = []
        for path in paths:
            certificate = load_certificate(path)
            try:
                certificate.verify_directly_issued_by(self._certificate)
            except (InvalidSignature, ValueError, TypeError):
                why = f"{path}: expected a certificate of {self.directory / 'ca.pem'}, got another"
                raise BadArguments(why) from None
            found.append(certificate.serial_number)
        return self.list_revoked(found, days=days)

    def list_revoked(self, serials: Iterable[int], *, days: float) -> Path:
        """Writes the list anew, with these certificates beside those that it has."""
        path, now = self.directory / "crl.pem", _now()
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(now - _BEFORE)
        builder = builder.next_update(now + datetime.timedelta(days=days))
        known = set(serials)
        if path.exists():
            try:
                known |= {each.serial_number for each in x509.load_pem_x509_crl(path.read_bytes())}
            except ValueError as error:
                raise BadArguments(
                    f"{path}: expected a list of revoked certificates: {error}"
                ) from None
        for serial in sorted(known):
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        data = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        new = path.with_name("crl.pem.new")
        new.unlink(missing_ok=True)
        _store(new, data, _PUBLIC)
        os.replace(new, path)
        return path

    def _issue(self, file: str, name: str, uri: str, days: float, begins: float) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        start = _now() - _BEFORE + datetime.timedelta(days=begins)
        end = _now() + datetime.timedelta(days=begins + days)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            _builder(_subject(name), key, min(start, end - _BEFORE), end)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        path = self.directory / f"{file}.pem"
        if path.exists():
            raise BadArguments(f"{path}: expected no such file yet, there is one")
        _store_key(path.with_suffix(".key"), key)
        _store(path, made.public_bytes(serialization.Encoding.PEM), _PUBLIC)
        return path


def load_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a file.

    Raises:
        BadArguments: it has none.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise BadArguments(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadArguments(f"{path}: expected a certificate (PEM), got something else") from None


def uris_of(certificate: x509.Certificate) -> list[str]:
    """The URIs among the alternative names of its subject."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def load_list(path: Path) -> x509.CertificateRevocationList:
    """The list of revoked certificates of a file.

    Raises:
        BadArguments: it has none.
    """
    try:
        return x509.load_pem_x509_crl(path.read_bytes())
    except OSError as error:
        raise BadArguments(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadArguments(f"{path}: expected a list of revoked certificates (PEM)") from None


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadArguments(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadArguments(f"{path}: expected a key (PEM) without a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadArguments(f"{path}: expected a key on an elliptic curve, got another")
    return key


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _store_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _store(path, data, _SECRET)


def _store(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        raise BadArguments(f"{path}: expected no such file yet, there is one") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
