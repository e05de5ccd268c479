"""The command line: parse, build, run; nothing else.

Modules that cost start-up time are imported inside the commands.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cqrepl._version import VERSION
from cqrepl.cli.options import SIZE, TIME, Command
from cqrepl.cli.queuecommands import QUEUE_COMMANDS
from cqrepl.cli.spark import spark
from cqrepl.console.exitcodes import INTERRUPTED


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from cqrepl.kernel import choose

        click.echo(f"cqrepl {VERSION} (kernel: {choose.NAME})")
        ctx.exit()


class Commands(click.Group):
    """A group whose commands can be interrupted before they have started to take signals."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and the kernel in use.",
)
def cli() -> None:
    """Replicates memory-mapped Chronicle queues over TCP, index for index; reads and writes them.

    Exit codes: 0 done; 1 every queue stopped (diverged, gap) or a check failed; 2 usage, or not a
    queue; 3 port in use or peer unreachable; 4 damaged; 5 refused (host ids, roll cycle, locks);
    6 disk full; 130 interrupted.
    """


def _shared(default_id: int, default_remote: int) -> Callable[[Command], Command]:
    """The options that a source and a sink have in common."""
    options = [
        click.argument("queues", metavar="[NAME=]QUEUE_DIR...", nargs=-1, required=True),
        click.option(
            "--listen", metavar="HOST:PORT", help="Listen; port 0 lets the system choose."
        ),
        click.option("--connect", metavar="HOST:PORT", help="Dial, again and again."),
        click.option(
            "--host-id",
            type=int,
            default=default_id,
            show_default=True,
            help="This host's id, 1 to 127; every host has its own.",
        ),
        click.option(
            "--remote-id",
            "remote_ids",
            type=int,
            multiple=True,
            help="A host id to accept; may be given again. Without it a listening side takes any "
            f"but its own, and a dialling one expects {default_remote}.",
        ),
        click.option(
            "--heartbeat-interval",
            type=TIME,
            default="20s",
            show_default=True,
            help="Time between heartbeats, at least 500ms. The dialler's numbers rule both sides.",
        ),
        click.option(
            "--heartbeat-timeout",
            type=TIME,
            default="40s",
            show_default=True,
            help="Silence that ends a connection; at least 1s and more than the interval.",
        ),
        click.option(
            "--max-excerpt",
            type=SIZE,
            default="16MiB",
            show_default=True,
            help="Longest excerpt; a queue that holds a longer one stops there.",
        ),
        click.option(
            "--wire-shape",
            type=click.Choice(["network", "seed"]),
            default="network",
            show_default=True,
            help="Layout of the set-up messages that are written; both are read.",
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@cli.command()
@_shared(default_id=1, default_remote=2)
@click.option("--no-ack", is_flag=True, help="Do not ask sinks for acknowledgements.")
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End once one sink has acknowledged everything that was there at the start.",
)
@click.option(
    "--ack-log",
    type=click.Path(path_type=Path),
    help="Log each acknowledgement into a queue in this directory (with several queues: one each, "
    "below it).",
)
@click.option(
    "--pauser",
    type=click.Choice(["busy", "balanced", "sleepy"]),
    default="balanced",
    show_default=True,
    help="How to wait for the next excerpt: busy never sleeps and keeps a core for each sink, "
    "sleepy sleeps milliseconds.",
)
def source(
    queues: tuple[str, ...],
    no_ack: bool,
    until_caught_up: bool,
    ack_log: Path | None,
    pauser: str,
    **shared: Any,
) -> None:
    """Stream queues to sinks.

    An acknowledged excerpt is in the sink's mapped file: it survives kill -9 on either host, and a
    power cut on one of them.
    """
    from cqrepl.commands import replication
    from cqrepl.replicator.source import Source, serve_source

    if no_ack and until_caught_up:
        raise click.UsageError("--until-caught-up needs acknowledgements: it excludes --no-ack")
    arguments = _arguments(queues, shared)
    sys.exit(
        replication.run_command(
            "cqrepl source",
            lambda: serve_source(
                **arguments,
                acknowledge=not no_ack,
                ack_log=ack_log,
                gives_up=until_caught_up,
                pauser=pauser,
            ),
            Source.wait_caught_up if until_caught_up else None,
            shared["listen"],
        )
    )


@cli.command()
@_shared(default_id=2, default_remote=1)
@click.option(
    "--roll-cycle",
    default="FAST_DAILY",
    show_default=True,
    help="Of a new queue whose source does not say its own, as Java's do not.",
)
@click.option(
    "--once",
    is_flag=True,
    help="End when a source ends in order. A Java source cannot say so: from it, the end of the "
    "stream between two messages is taken as orderly.",
)
@click.option(
    "--touch-ahead",
    type=SIZE,
    metavar="SIZE",
    help="Bytes of each queue's file that are brought into memory ahead of what is written; 0: "
    "none. By default 8MiB where there are three processors. Takes the native kernel.",
)
@click.option(
    "--append-log",
    type=click.Path(path_type=Path),
    help="Log when excerpts were appended into a queue in this directory (with several queues: one "
    "each, below it).",
)
def sink(
    queues: tuple[str, ...],
    roll_cycle: str,
    once: bool,
    touch_ahead: int | None,
    append_log: Path | None,
    **shared: Any,
) -> None:
    """Take queues in from sources.

    Only the names given here are accepted from the network. A queue that is not there is made like
    the source's. The sink holds each queue's append lock as long as it runs.
    """
    from cqrepl.commands import replication
    from cqrepl.replicator.sink import Sink, serve_sink

    arguments = _arguments(queues, shared)
    sys.exit(
        replication.run_command(
            "cqrepl sink",
            lambda: serve_sink(
                **arguments,
                roll_cycle=roll_cycle,
                gives_up=once,
                touch_ahead_bytes=touch_ahead,
                append_log=append_log,
            ),
            Sink.wait_ended if once else None,
            shared["listen"],
        )
    )


@cli.command()
@click.option("--count", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--size", type=SIZE, default="256", show_default=True, help="Bytes of an excerpt.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep both queues in DIR, which must be empty or not there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def demo(count: int, size: int, keep: Path | None, as_json: bool) -> None:
    """Make a queue, replicate it through a cut, compare the copy.

    Starts a real source and a real sink on loopback, cuts their connection once on the way, and
    compares the two queues index by index. Exits 1 unless they are identical.
    """
    from cqrepl import demo as demonstration
    from cqrepl.commands import outcome
    from cqrepl.console import exitcodes

    def work() -> int:
        same = demonstration.run(count, size, keep, as_json=as_json)
        return exitcodes.OK if same else exitcodes.STOPPED

    sys.exit(outcome.guarded("cqrepl demo", work))


for command in (*QUEUE_COMMANDS, spark):
    cli.add_command(command)


def _arguments(queues: tuple[str, ...], shared: dict[str, Any]) -> dict[str, Any]:
    """What both `serve_` functions take, from the options that both commands have."""
    from cqrepl.protocol import WireShape
    from cqrepl.replicator.queuenames import named

    pairs: list[tuple[str, Path]] = []
    try:
        for text in queues:
            name, equals, directory = text.partition("=")
            if equals and not directory:
                raise ValueError(f"NAME=QUEUE_DIR expected, {text!r} came")
            path = Path(directory if equals else text)
            pairs.append((name if equals else path.absolute().name, path))
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("two queues have the same name: give one another, NAME=QUEUE_DIR")
        names = named(dict(pairs))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return {
        "queues": names,
        "listen": shared["listen"],
        "connect": shared["connect"],
        "host_id": shared["host_id"],
        "remote_ids": shared["remote_ids"],
        "heartbeat_interval_ms": shared["heartbeat_interval"],
        "heartbeat_timeout_ms": shared["heartbeat_timeout"],
        "payload_max": shared["max_excerpt"],
        "wire_shape": WireShape(shared["wire_shape"]),
    }
