"""Names of queues on the wire: only those that the user gave are ever used."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def named(queues: Mapping[str, Path | str] | Iterable[Path | str]) -> dict[str, Path]:
    """Name and directory of each queue; a directory without a name gives its own.

    Raises:
        ValueError: a name that cannot be used, one that stands twice, or no queue at all.
    """
    if isinstance(queues, Mapping):
        pairs = [(name, Path(path)) for name, path in queues.items()]
    else:
        if isinstance(queues, str):
            raise ValueError("a list of queue directories expected, a single text came")
        pairs = [(Path(path).absolute().name, Path(path)) for path in queues]
    if not pairs:
        raise ValueError("at least one queue expected, none came")
    names: dict[str, Path] = {}
    for name, path in pairs:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a queue name of letters, digits, '.', '_' and '-' (at most 128) expected, "
                f"{name!r} came"
            )
        if name in names:
            raise ValueError(f"two queues are named {name!r}: give one another name")
        names[name] = path
    return names
