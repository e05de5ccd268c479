"""The work behind `cqrepl certs`."""

import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import plural
from cqrepl.net.tlscredentials import WARN_DAYS

NEEDS: Final = "expected the library 'cryptography', got none: pip install 'cqrepl[tls]'"
_LIST: Final = b"-----BEGIN X509 CRL-----"
_SHOWN: Final = "%Y-%m-%d %H:%M:%SZ"


def with_library(do: "Callable[[CertificateWork], int]") -> int:
    """The exit code of some work.

    Raises:
        BadArguments: what it takes is not installed; or a file is not what it has to be.
    """
    try:
        from cqrepl.commands import authority
    except ImportError as error:
        raise BadArguments(NEEDS) from error
    return do(CertificateWork(authority))


class CertificateWork:
    """The commands.

    Args:
        library: the module that makes certificates, which takes the extra.
    """

    def __init__(self, library: ModuleType) -> None:
        self._library: Any = library

    def make_ca(self, directory: Path, name: str) -> int:
        """Makes a CA; the exit code, as of all these."""
        self._library.Authority.make(directory, name=name)
        return _say([directory / each for each in ("ca.pem", "ca.key", "crl.pem")])

    def make_hosts(self, directory: Path, ids: Iterable[int], days: int) -> int:
        """Makes a certificate of each host."""
        made = self._library.Authority(directory)
        return _say([made.host(each, days=days) for each in ids])

    def make_guest(self, directory: Path, name: str, days: int) -> int:
        """Makes a certificate of a guest."""
        return _say([self._library.Authority(directory).guest(name, days=days)])

    def revoke(self, directory: Path, files: Sequence[Path]) -> int:
        """Adds certificates to the list."""
        return _say([self._library.Authority(directory).revoke(files)])

    def show(self, files: Sequence[Path], *, as_json: bool) -> int:
        """Prints a line for each; 1 where one has ended or is about to."""
        code, now = exitcodes.OK, datetime.datetime.now(datetime.UTC)
        for path in files:
            of, ends = self._of(path)
            days = (ends - now).days
            state = "good" if days >= WARN_DAYS else "ends soon" if days >= 0 else "has ended"
            code = code if days >= WARN_DAYS else exitcodes.STOPPED
            when = ends.strftime(_SHOWN)
            fields = {"v": 1, "file": str(path), "of": of, "state": state, "ends": when}
            text = f"{path}: {of}: {state}, {when}, in {days:,} days\n"
            output.write_text(output.json_line(fields | {"days": days}) if as_json else text)
        output.flush()
        return code

    def _of(self, path: Path) -> tuple[str, datetime.datetime]:
        """The subject of a certificate, and when it ends; the same of a list."""
        try:
            is_list = _LIST in path.read_bytes()
        except OSError as error:
            raise BadArguments(f"{path}: cannot be read: {error.strerror}") from None
        if is_list:
            found = self._library.load_list(path)
            ends = found.next_update_utc or datetime.datetime.max.replace(tzinfo=datetime.UTC)
            return f"a list of {plural(len(found), 'revoked certificate')}", ends
        certificate = self._library.load_certificate(path)
        names = self._library.uris_of(certificate)
        subject = certificate.subject.rfc4514_string()
        of = f"{subject} ({', '.join(names)})" if names else subject
        return of, certificate.not_valid_after_utc


def _say(paths: Sequence[Path]) -> int:
    for path in paths:
        output.write_text(f"{path}\n")
    output.flush()
    return exitcodes.OK
