"""The TLS of a command, from the files that its options name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cqrepl.console.exitcodes import BadArguments
from cqrepl.net.tlssettings import NO_TLS, TlsMode, TlsSettings

_NAMES: Final = ("ca", "cert", "key", "crl")


def tls_of(options: Mapping[str, object]) -> TlsSettings:
    """The settings that `--tls-ca`, `--tls-cert`, `--tls-key` and `--tls-crl` make.

    Raises:
        BadArguments: some of them are there, and one that they need is not.
    """
    files: dict[str, Path | None] = {}
    for name in _NAMES:
        path = options.get(f"tls_{name}")
        assert isinstance(path, Path | None)
        files[name] = path
    given = [name for name, path in files.items() if path is not None]
    if not given:
        return NO_TLS
    missing = [name for name in _NAMES[:3] if files[name] is None]
    if missing:
        raise BadArguments(
            f"--tls-{given[0]} came: expected --tls-{missing[0]} beside it, got none"
        )
    return TlsSettings(
        mode=TlsMode.ON,
        ca=files["ca"],
        cert=files["cert"],
        key=files["key"],
        crl=files["crl"],
    )
