"""Values on the command line: times, sizes, indexes, and what several commands have in common."""

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click

from cqrepl.console.units import parse_size, parse_time_ms, since_1970_ns

Value = TypeVar("Value")
Command = TypeVar("Command", bound=Callable[..., Any])
# that of `queue.index`, which would load all of `queue` for a mere --help
_INDEX_MAX: Final = (1 << 63) - 1


class Converted(click.ParamType[Value], Generic[Value]):
    """A parameter whose text a function of ours turns into a value."""

    def __init__(self, name: str, convert: Callable[[str], Value]) -> None:
        self.name = name
        self._convert = convert

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        try:
            return self._convert(str(value))  # defaults are written as users would write them
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Spot(NamedTuple):
    """A place in a queue as people name it: an index, or a number of excerpts from an end.

    `counted` is None for an index in `at`; else the place is so many excerpts before the last
    (0: the last itself). `first` is index 0. `time_ns` is set for a time, since 1970 in UTC.
    """

    at: int = 0
    counted: int | None = None
    time_ns: int | None = None


def parse_spot(text: str) -> Spot:
    """The place that a text names: 0x451600000004, a decimal index, first, last, -10, or a time.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    if text == "first":
        return Spot()
    if text == "last":
        return Spot(counted=0)
    if match := re.fullmatch(r"-([1-9][0-9]{0,17})", text):
        return Spot(counted=int(match[1]) - 1)
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}", text):
        index = int(text, 0) if text[:2] in ("0x", "0X") else int(text)
        if index <= _INDEX_MAX:
            return Spot(at=index)
    if match := re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", text):
        return Spot(time_ns=_time_ns(text))
    raise ValueError(
        "an index such as 0x451600000004, first, last, -10 or a time such as 2026-11-21T10:00Z"
        f" expected, {text!r} came"
    )


def _time_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"a time such as 2026-11-21T10:00Z expected, {text!r} came") from error
    return since_1970_ns(moment)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression expected: {error}") from error


TIME: Final = Converted("time", parse_time_ms)
SIZE: Final = Converted("size", parse_size)
SPOT: Final = Converted("index", parse_spot)
PATTERN: Final = Converted("re", _pattern)
QUEUE_DIR: Final = click.Path(path_type=Path)


def queue_argument(command: Command) -> Command:
    """Adds the argument of a command about one queue."""
    return click.argument("path", metavar="QUEUE_DIR", type=QUEUE_DIR)(command)


def json_option(command: Command) -> Command:
    """Adds the option for output that programs read."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")(
        command
    )
