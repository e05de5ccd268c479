"""The words of a task board, in its log and to its clients: a name, and fields with values."""

from typing import Final

from cqrepl.service.fieldwords import FieldKinds, FieldWords, Value, decode_words

__all__ = ["DATA_MAX", "MESSAGE_MAX", "NO_BOARD", "TEXT_MAX", "TaskWords", "Value", "decode"]
TEXT_MAX: Final = 1024  # characters of a name, a key or a reason
DATA_MAX: Final = 1 << 20  # bytes of a payload or a result
NO_BOARD: Final = "no board"  # the outcome of what is asked of a board that a host does not have
MESSAGE_MAX: Final = 2 * DATA_MAX + (1 << 16)

# every field there is, and the kind of its values
_KINDS: Final[FieldKinds] = {
    "ask": int,  # number of a request; a leader finds by it what became of a record
    "attempt": int,
    "attempts": int,  # as many at most
    "backoff": int,  # ms before the second attempt
    "count": int,
    "deadline": int,  # ms since 1970; 0 for none
    "due": int,
    "ended": int,
    "epoch": int,
    "holds": str,  # task:attempt, with blanks between
    "host": int,
    "keep": int,
    "key": str,
    "leader": int,
    "now": int,  # ms since 1970, by the clock of the host that led
    "outcome": str,
    "payload": bytes,
    "result": bytes,
    "seen": int,
    "slots": int,
    "status": str,
    "submitted": int,
    "task": int,
    "type": str,
    "types": str,  # with blanks between
    "where": str,  # HOST:PORT, with commas between
    "why": str,
    "worker": str,
}


TaskWords = FieldWords  # a record, or a message


def decode(data: bytes | memoryview) -> TaskWords:
    """The words that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    return decode_words(data, _KINDS)
