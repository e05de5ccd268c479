"""The keys of TLS, and the settings that they make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cqrepl.config.valuekinds import HOST_ID_SIGN, Unfit, ValueKind, hosts_of
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import PlainSettings, TlsMode, TlsSettings

_SHOWN: Final = 60
_FILES: Final = ("ca", "cert", "key", "crl")


def _plain(text: str) -> PlainSettings:
    said: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = each.partition("=")
        if not equals or name in said or name not in ("listen", "from", "hosts"):
            raise Unfit(
                f"expected listen, from and hosts of 'plain', each once, got {name[:_SHOWN]!r}"
            )
        said[name] = value
    try:
        return PlainSettings(
            listen=Address.listening(said["listen"]) if "listen" in said else None,
            networks=tuple(said["from"].split("+")) if "from" in said else (),
            hosts=hosts_of(said["hosts"]) if "hosts" in said else frozenset(),
        )
    except ValueError as error:
        raise Unfit(str(error) or f"plain: expected host ids, got {said['hosts']!r}") from None


PLAIN: Final = ValueKind(
    wanted="hosts without TLS, such as {listen: ':9010', from: [10.0.0.0/8], hosts: [7]},",
    parse=_plain,
    schema={
        "type": "object",
        "properties": {
            "listen": {"type": "string"},
            "from": {"type": "array", "items": {"type": "string"}},
            "hosts": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1, "maximum": 127},
            },
        },
        "required": ["hosts"],
        "additionalProperties": False,
    },
    takes_list=True,
    takes_mapping=True,
)


def tls_settings(values: Mapping[str, object], host_id: int) -> TlsSettings:
    """The TLS of a host, from the keys of its process.

    Raises:
        ValueError: they do not fit together; one sentence says how.
    """
    files: dict[str, Path | None] = {}
    for name in _FILES:
        path = values[f"tls.{name}"]
        assert isinstance(path, Path | None)
        of_host = None if path is None else Path(str(path).replace(HOST_ID_SIGN, str(host_id)))
        files[name] = of_host
    plain = values["tls.plain"]
    assert isinstance(plain, PlainSettings | None)
    return TlsSettings(
        mode=TlsMode(str(values["tls.mode"])),
        ca=files["ca"],
        cert=files["cert"],
        key=files["key"],
        crl=files["crl"],
        plain=plain,
    )
