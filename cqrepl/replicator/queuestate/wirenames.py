"""The names that a queue may have on the wire.

This module is apart from `queues`, so that a program that only reads a configuration loads no event
loop.
"""

import re
from typing import Final

_SHOWN: Final = 140  # characters of a name that cannot be used
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(name: str) -> None:
    """Looks whether a queue may have this name.

    Raises:
        ValueError: it may not; one sentence says which one may.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a queue name of letters, digits, '.', '_' and '-' (at most 128) expected, "
            f"{name[:_SHOWN]!r} came"
        )
