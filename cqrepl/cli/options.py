"""Values on the command line: times, sizes, indexes, and what several commands have in common."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import click

from cqrepl.commands.spot import Spot, parse_spot
from cqrepl.console.units import parse_size, parse_time_ms

Value = TypeVar("Value")
Command = TypeVar("Command", bound=Callable[..., Any])


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


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression expected: {error}") from error


def _returns(text: str) -> frozenset[int] | None:
    if text in ("known", "none"):
        return frozenset() if text == "known" else None
    try:
        return frozenset(int(each) for each in text.split(","))
    except ValueError:
        raise ValueError(f"known, none or host ids such as 2,3 expected, {text!r} came") from None


TIME: Final = Converted("time", parse_time_ms)
SIZE: Final = Converted("size", parse_size)
SPOT: Final = Converted("index", parse_spot)
RETURNS: Final = Converted("returns", _returns)
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


def only_index(spot: Spot | None) -> int | None:
    """The index of a place, for commands that take no place of another kind."""
    if spot is None:
        return None
    if spot.counted is not None or spot.time_ns is not None:
        raise click.UsageError("an index such as 0x451600000004 was expected")
    return spot.at
