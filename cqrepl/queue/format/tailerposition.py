"""The position of a named tailer, as a queue keeps it and passes it on to its copies."""

from dataclasses import dataclass
from typing import Final

from wire.strings import kept_name

REPLICATED: Final = "replicated:"  # how the names begin that belong to a queue and its copies
TAILER_NAME_MAX: Final = 256  # bytes; a table store has 64 KiB for all keys
VERSION_NONE: Final = -1  # of a name that was never moved
LOCK_SUFFIX: Final = ".lock"
LOCK_START_SUFFIX: Final = ".lock.start"  # ours
VERSION_SUFFIX: Final = ".version"
_COMPANIONS: Final = (LOCK_SUFFIX, VERSION_SUFFIX, LOCK_START_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailerPosition:
    """One name and where its reader goes on.

    Args:
        index: the next index to read; 0: the start.
        version: how often it was moved, from -1 on; None for a name that counts no moves.
    """

    name: str
    index: int
    version: int | None = None


def is_replicated(name: str) -> bool:
    """True for a name whose moves are counted, and which belongs to the source of a queue."""
    return name.startswith(REPLICATED)


def is_companion(name: str) -> bool:
    """True for what is no name, but the lock or the version of one."""
    return is_replicated(name) and name.endswith(_COMPANIONS)


def is_tailer_name(name: str) -> bool:
    """True for what a tailer may be named, as a queue keeps it."""
    is_kept = kept_name(name) == name
    return is_kept and 0 < len(name.encode()) <= TAILER_NAME_MAX and not is_companion(name)
