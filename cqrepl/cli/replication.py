"""The options that `cqrepl source` and `cqrepl sink` have in common."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from cqrepl.cli.options import SIZE, TIME, Command, log_options, tls_options

_LIMITS: Final = (
    click.option(
        "--max-excerpt",
        type=SIZE,
        default="16MiB",
        show_default=True,
        help="Longest excerpt; a queue that holds a longer one stops there.",
    ),
    click.option(
        "--scrub",
        type=SIZE,
        default="0",
        show_default=True,
        help="Bytes of store files that are read once more each second, round after "
        "round, and compared with what they held; 0: none.",
    ),
    click.option(
        "--limit-rate",
        type=SIZE,
        default="0",
        show_default=True,
        help="Bytes of excerpts that each peer is sent a second, what is live before what catches "
        "up; 0: any number.",
    ),
    click.option(
        "--wire-shape",
        type=click.Choice(["network", "seed"]),
        default="network",
        show_default=True,
        help="Layout of the set-up messages that are written; both are read.",
    ),
    click.option(
        "--runs/--frames",
        "runs",
        default=True,
        show_default=True,
        help="Send and take many excerpts in one document, as the store file has them, to and from "
        "peers that do the same; or each in a frame of its own.",
    ),
)


def replication_options(default_id: int, default_remote: int) -> Callable[[Command], Command]:
    """Adds the options that a source and a sink have in common."""
    options = [
        click.argument("queues", metavar="[NAME=]QUEUE_DIR...", nargs=-1, required=True),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            multiple=True,
            help="Listen; port 0 lets the system choose. May be given again.",
        ),
        click.option(
            "--connect",
            metavar="HOST:PORT",
            multiple=True,
            help="Dial, again and again. May be given again, for further peers; then with as many "
            "--remote-id, the ids of their hosts in the same order.",
        ),
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
        *_LIMITS,
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return log_options(tls_options(command))

    return add


def named_queues(texts: Sequence[str]) -> dict[str, Path]:
    """Name and directory of each queue, from the arguments [NAME=]QUEUE_DIR."""
    from cqrepl.replicator.queuestate.queues import named

    pairs: list[tuple[str, Path]] = []
    try:
        for text in texts:
            name, equals, directory = text.partition("=")
            if equals and not directory:
                raise ValueError(f"NAME=QUEUE_DIR expected, {text!r} came")
            path = Path(directory if equals else text)
            pairs.append((name if equals else path.absolute().name, path))
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("two queues have the same name: give one another, NAME=QUEUE_DIR")
        queues = named(dict(pairs))
        first: dict[str, str] = {}
        for name, path in queues.items():
            other = first.setdefault(os.path.realpath(path), name)
            if other != name:
                raise ValueError(
                    f"a directory of its own expected for queue {name!r}, {path} came, which queue"
                    f" {other!r} has"
                )
        return queues
    except ValueError as error:
        raise click.UsageError(str(error)) from error
