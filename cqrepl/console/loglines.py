"""The form of a command's log: lines for people, or JSON for programs.

A line of JSON has `v` (the version of its form), `time` (UTC), `level`, `logger` and `message`;
what it is about stands beside that, where it names it: `host` is the id of the host that logs,
`queue` a name, `index` a text as `0x4cdb00000000`, `peer` the id of another host.
"""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from wire.text.terminal import one_line

VERSION_OF_FORM: Final = 1
# how all lines of ours name what they are about
_QUEUE: Final = re.compile(r"queue '([A-Za-z0-9._-]+)'")
_INDEX: Final = re.compile(r"\b(0x[0-9a-f]{8,})\b")
_PEER: Final = re.compile(r"\bhost (\d+)\b")
LISTENING: Final = "listening on %s"  # the address, with the port that the system chose
_LISTENING_LINE: Final = re.compile(r"listening on .*:([0-9]+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """The choice of log lines to show, and their form.

    Args:
        verbosity: above 0: all there is, with time, level and place; below 0: warnings and errors.
        as_json: a line of JSON for each.
        host_id: of the host that logs; None if it is not known.
    """

    verbosity: int = 0
    as_json: bool = False
    host_id: int | None = None

    @property
    def level(self) -> int:
        """The lowest level that is shown."""
        if self.verbosity > 0:
            return logging.DEBUG
        return logging.WARNING if self.verbosity < 0 else logging.INFO

    def formatter(self, name: str) -> logging.Formatter:
        """Makes the lines of a command of this name."""
        if self.as_json:
            return JsonLines(self.host_id)
        return TextLines(name, self)


class JsonLines(logging.Formatter):
    """A line of JSON for each record."""

    def __init__(self, host_id: int | None) -> None:
        super().__init__()
        self._host_id = host_id

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "v": VERSION_OF_FORM,
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if self._host_id is not None:
            line["host"] = self._host_id
        message = record.getMessage()
        line |= _subjects(message)
        line["message"] = message
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


class TextLines(logging.Formatter):
    """A line of text for each record, with the name of the command."""

    def __init__(self, name: str, choice: LogChoice) -> None:
        super().__init__()
        self._name = name
        self._host = "" if choice.host_id is None else f" host {choice.host_id}"
        self._is_verbose = choice.verbosity > 0

    def format(self, record: logging.LogRecord) -> str:
        message = one_line(record.getMessage())  # it may name what a file or a peer says
        if not self._is_verbose:
            return f"{self._name}: {message}"
        level, place = record.levelname.lower(), record.name
        line = f"{self._name}:{self._host} {_time_of(record)} {level} {place}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def port_told(said: str) -> int | None:
    """The port that a command listens at, by what it has said so far; None until it has said it.

    Other lines may come first, as warnings of the interpreter do, and the last line may be cut off.
    """
    found = _LISTENING_LINE.search(said)
    return None if found is None else int(found[1])


def _subjects(message: str) -> Iterator[tuple[str, object]]:
    """The first of each kind that a line names."""
    for key, pattern in (("queue", _QUEUE), ("index", _INDEX), ("peer", _PEER)):
        found = pattern.search(message)
        if found is not None:
            yield key, int(found[1]) if key == "peer" else found[1]


def _time_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
