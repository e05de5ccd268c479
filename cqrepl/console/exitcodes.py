"""Exit codes of all commands, and the error for arguments that do not fit together."""

from typing import Final

OK: Final = 0
STOPPED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DAMAGED: Final = 4
REFUSED: Final = 5
DISK_FULL: Final = 6
INTERRUPTED: Final = 130


class BadArguments(Exception):
    """The user's arguments do not fit together; the message is one line for people."""
