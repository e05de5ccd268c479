"""Values on the command line: times, sizes, indexes, and what several commands have in common."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from cqrepl.commands.spot import parse_dumped, parse_place, parse_spot
from cqrepl.console.units import format_size, parse_hosts, parse_size, parse_time_ms, since_1970_ns
from cqrepl.typed.paths import parse_paths

if TYPE_CHECKING:
    from cqrepl.net.address import Address
    from cqrepl.net.tlssettings import TlsSettings

Value = TypeVar("Value")
Command = TypeVar("Command", bound=Callable[..., Any])

ALTERNATIVES: Final = ({"form"}, {"verbose", "quiet"})  # names of parameters


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


class Number(click.FloatRange):
    """A number within limits that are told; what is spelled like a number and is none, as `nan`, or
    has no end, as `inf`, is refused like one outside."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(cast("float", value), param, ctx))  # it takes texts too
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class OneOfEach(click.Command):
    """A command that takes one option at most of those that say the same thing otherwise."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = {
            param.opts[0]: param.name for param in self.make_parser(ctx).parse_args([*args])[2]
        }
        for names in ALTERNATIVES:
            options = [option for option, name in given.items() if name in names]
            if len(options) > 1:
                raise click.UsageError(f"one of {', '.join(options)} expected, all came", ctx)
        return super().parse_args(ctx, args)


def size_to(most: int) -> Callable[[str], int]:
    """A function that turns a text into a size of at most so many bytes. It raises ValueError for
    any other text."""

    def convert(text: str) -> int:
        size = parse_size(text)
        if size > most:
            raise ValueError(f"a size of at most {format_size(most)} expected, {text!r} came")
        return size

    return convert


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression expected: {error}") from error


def _moment_ms(text: str) -> int:
    try:
        return since_1970_ns(datetime.fromisoformat(text)) // 1_000_000
    except ValueError as error:
        raise ValueError(f"a time as 2026-11-21T10:00Z expected, {text!r} came") from error


def _zone(text: str) -> tzinfo:
    if text in ("UTC", "Z"):
        return UTC
    if text == "local":
        local = datetime.now().astimezone().tzinfo
        return UTC if local is None else local
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"a zone as UTC, local or Europe/Paris expected, {text!r} came") from error


def _hosts_or(everything: str, value: frozenset[int] | None) -> "Converted[frozenset[int] | None]":
    """Host ids, or one of two words: `none`, and the one for those that count by themselves."""
    words: dict[str, frozenset[int] | None] = {
        everything: value,
        "none": frozenset() if value is None else None,
    }
    return Converted("hosts", lambda text: parse_hosts(text, words))


def _address(text: str) -> "Address":
    from cqrepl.net.address import Address

    return Address.parse(text)


TIME: Final = Converted("time", parse_time_ms)
SIZE: Final = Converted("size", size_to(1 << 50))
COUNT_MAX: Final = 10**12  # excerpts that a command makes
parse_excerpt_size: Final = size_to(1 << 30)
EXCERPT_SIZE: Final = Converted("size", parse_excerpt_size)
SPOT: Final = Converted("index", parse_spot)
INDEX: Final = Converted("index", parse_place)
DUMPED_INDEX: Final = Converted("index", parse_dumped)
RETURNS: Final = _hosts_or("known", frozenset())
ADDRESS: Final = Converted("address", _address)
HOSTS: Final = _hosts_or("all", None)
PATTERN: Final = Converted("re", _pattern)
PATHS: Final = Converted("names", parse_paths)
MOMENT: Final = Converted("time", _moment_ms)
ZONE: Final = Converted("zone", _zone)
QUEUE_DIR: Final = click.Path(path_type=Path)
_TLS_FILES: Final = {
    "ca": "File of the certificates (PEM) that sign those of peers. With it, --tls-cert and "
    "--tls-key, TLS 1.3 is spoken.",
    "cert": "File of the certificate that peers are shown.",
    "key": "File of its private key, which only its owner can read.",
    "crl": "File of the list of revoked certificates.",
}


def queue_argument(command: Command) -> Command:
    """Adds the argument of a command about one queue."""
    return click.argument("path", metavar="QUEUE_DIR", type=QUEUE_DIR)(command)


def config_argument(command: Command) -> Command:
    """Adds the argument of a command about a configuration."""
    return click.argument("path", metavar="FILE", type=QUEUE_DIR)(command)


def run_dir_option(command: Command) -> Command:
    """Adds the option for where a host can be asked."""
    return click.option(
        "--run-dir",
        type=QUEUE_DIR,
        metavar="DIR",
        envvar="CQREPL_RUN_DIR",
        show_envvar=True,
        help="Where `cqrepl status` asks hosts. By default the directory of the service or login, "
        "$RUNTIME_DIRECTORY or $XDG_RUNTIME_DIR/cqrepl.",
    )(command)


def cluster_options(command: Command) -> Command:
    """Adds what a process may say beside the file of its cluster."""
    options = (
        click.option(
            "--host-id",
            type=click.IntRange(1, 127),
            envvar="CQREPL_HOST_ID",
            show_envvar=True,
            help="Which of the hosts in the file this one is.",
        ),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help="Listen there, where that is not the host's connectUri.",
        ),
        click.option(
            "--address",
            "addresses",
            metavar="NAME=HOST:PORT",
            multiple=True,
            help="What a connectUri that is only a name stands for; may be given again.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def log_options(command: Command) -> Command:
    """Adds what of its log a command shows that runs on."""
    options = (
        click.option(
            "--verbose",
            "-v",
            is_flag=True,
            help="Show all of the log, with time, level and place; errors with their traces.",
        ),
        click.option("--quiet", "-q", is_flag=True, help="Show warnings and errors only."),
        click.option(
            "--log-json",
            is_flag=True,
            help="Show the log as JSON, one object a line, also on a terminal.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def tls_options(command: Command, *, kept: bool = False) -> Command:
    """Adds what a command that meets peers shows them, and takes of theirs.

    Args:
        kept: not handed to the command, which asks `guest_tls`.
    """
    for name, says in reversed(_TLS_FILES.items()):
        command = click.option(
            f"--tls-{name}",
            f"tls_{name}",
            type=QUEUE_DIR,
            metavar="FILE",
            envvar=f"CQREPL_TLS_{name.upper()}",
            show_envvar=True,
            expose_value=not kept,
            callback=_keep if kept else None,
            help=says,
        )(command)
    return command


def guest_tls_options(command: Command) -> Command:
    """Adds the same to a command that is a guest of hosts."""
    return tls_options(command, kept=True)


def guest_tls() -> "TlsSettings":
    """The TLS that such a command was given.

    Raises:
        UsageError: a file that others need is missing.
    """
    from cqrepl.commands.tlsfiles import tls_of
    from cqrepl.console.exitcodes import BadArguments

    try:
        return tls_of(click.get_current_context().meta)
    except BadArguments as error:
        raise click.UsageError(str(error)) from None


def _keep(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    assert param.name is not None
    ctx.meta[param.name] = path
    return path


def json_option(command: Command) -> Command:
    """Adds the option for output that programs read."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")(
        command
    )
