"""The errors of a grid. Each says what was expected, what came, and where."""

from cqrepl.net.errors import Refused


class GridError(Exception):
    """An error of a grid."""


class GridRefused(GridError, Refused):
    """A request, a value or a setting that a grid does not take."""


class NotServing(GridRefused):
    """This host does not serve a partition now, and nothing was done; another one may."""


class Conflict(GridError):
    """An entry is another one than a transaction has read, or than it expects: nothing of the
    transaction was written.

    Attributes:
        map: name of the map.
        key: as the grid keeps it.
    """

    def __init__(self, message: str, *, map_name: str = "", key: bytes = b"") -> None:
        super().__init__(message)
        self.map = map_name
        self.key = key


class CrossPartition(GridRefused):
    """A transaction has met a second partition."""


class LockTimeout(GridError):
    """An entry was locked by another transaction for longer than is waited for. A deadlock ends so,
    too."""


class GridFull(GridRefused):
    """A map set has no room for what a transaction would add; nothing of it was written."""


class LoaderError(GridError):
    """A loader has failed; its cause is that of this error."""


class OutcomeUnknown(GridError):
    """It is not known whether a transaction is committed: its record may be on its way.

    Attributes:
        token: a reader that waits for it learns which: it sees the transaction, or gets
            `TokenLost`. None where the record may not have been written.
    """

    def __init__(self, message: str, token: object = None) -> None:
        super().__init__(message)
        self.token = token


class TokenLost(GridError):
    """The record of a token is in the log of no leader: its transaction is not committed, and
    never will be."""


class TokenTimeout(GridError):
    """A copy was not as far as a token says within the time that was given."""
