"""`cqrepl tasks`: submits tasks to a board, looks at them, and works."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cqrepl.cli.options import TIME, guest_tls, guest_tls_options, json_option

Command = TypeVar("Command", bound=Callable[..., Any])
_STATES: Final = ("waiting", "running", "done", "failed")


def _board_options(command: Command) -> Command:
    """Adds what all of them have in common."""
    at = click.option(
        "--at",
        "hosts",
        metavar="HOST:PORT[,...]",
        required=True,
        envvar="CQREPL_TASKS_AT",
        show_envvar=True,
        help="Some hosts of the cluster, with commas between; one that leads is found.",
    )
    board = click.option("--board", default="tasks", show_default=True, help="Name of the board.")
    wait = click.option(
        "--wait",
        "wait_ms",
        type=TIME,
        default="30s",
        show_default=True,
        metavar="TIME",
        help="How long a host that serves the board is looked for.",
    )
    return at(board(wait(guest_tls_options(command))))


@click.group()
def tasks() -> None:
    """Submit tasks to a board of a cluster, look at them, and work.

    A board keeps tasks until they are done, whichever host leads it. `cqrepl: tasks:` in the file
    of the cluster makes one.

    Exit codes: 0; 2 usage; 3 no host serves the board; 5 the board refuses.
    """


@tasks.command()
@_board_options
@click.option("--type", "type_", required=True, metavar="TYPE", help="Which workers may do it.")
@click.option("--key", help="Of two submits with one key the second is the same task.")
@click.option("--attempts", type=click.IntRange(1, 1000), help="That of the board if not given.")
@click.option("--deadline", type=TIME, metavar="TIME", help="It fails once this is over.")
@click.argument("payload", required=False)
@json_option
def submit(
    hosts: str,
    board: str,
    wait_ms: int,
    type_: str,
    key: str | None,
    attempts: int | None,
    deadline: int | None,
    payload: str | None,
    as_json: bool,
) -> None:
    """Submit a task with this PAYLOAD, or what standard input has; print its id.

    It is there, as safe as the board's group wants it, when the id is printed.
    """
    from cqrepl.commands import tasks as work

    limits = {"attempts": attempts} if attempts is not None else {}
    sys.exit(
        work.submit(
            work.BoardPlace(hosts, board, wait_ms / 1000, as_json=as_json, tls=guest_tls()),
            type_,
            payload,
            key,
            limits,
            deadline,
        )
    )


@tasks.command("list")
@_board_options
@click.option("--status", type=click.Choice(_STATES), help="Only those.")
@click.option("--type", "type_", default="", metavar="TYPE", help="Only those.")
@click.option("--count", type=click.IntRange(1, 1000), default=100, show_default=True)
@json_option
def list_tasks(
    hosts: str,
    board: str,
    wait_ms: int,
    status: str | None,
    type_: str,
    count: int,
    as_json: bool,
) -> None:
    """Print tasks, the newest first."""
    from cqrepl.commands import tasks as work

    place = work.BoardPlace(hosts, board, wait_ms / 1000, as_json=as_json, tls=guest_tls())
    sys.exit(work.show_tasks(place, status or "", type_, count))


@tasks.command()
@_board_options
@click.argument("task", metavar="ID")
@json_option
def show(hosts: str, board: str, wait_ms: int, task: str, as_json: bool) -> None:
    """Print one task, with its payload and its result."""
    from cqrepl.commands import tasks as work

    sys.exit(
        work.show_task(
            work.BoardPlace(hosts, board, wait_ms / 1000, as_json=as_json, tls=guest_tls()), task
        )
    )


@tasks.command()
@_board_options
@json_option
def workers(hosts: str, board: str, wait_ms: int, as_json: bool) -> None:
    """Print the workers that the board knows."""
    from cqrepl.commands import tasks as work

    sys.exit(
        work.show_workers(
            work.BoardPlace(hosts, board, wait_ms / 1000, as_json=as_json, tls=guest_tls())
        )
    )


@tasks.command()
@_board_options
@click.option("--type", "types", required=True, multiple=True, metavar="TYPE", help="What it does.")
@click.option(
    "--exec",
    "command",
    required=True,
    metavar="CMD",
    help="A command, without a shell, that is run for each task: the payload is its standard "
    "input, its output the result; exit code 0 finishes the task.",
)
@click.option("--slots", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--name", "worker", help="Its name; one by chance if not given.")
@click.option("--once", type=click.IntRange(1), metavar="N", help="End after so many tasks.")
def work(
    hosts: str,
    board: str,
    wait_ms: int,
    types: tuple[str, ...],
    command: str,
    slots: int,
    worker: str | None,
    once: int | None,
) -> None:
    """Work: run a command for each task of these types, until it is told to end."""
    from cqrepl.commands import tasks as working

    place = working.BoardPlace(hosts, board, wait_ms / 1000, tls=guest_tls())
    sys.exit(working.work(place, types, command, slots, worker, once))
