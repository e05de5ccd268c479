"""Verbs for a host that runs: `cqrepl reload`, `pause`, `resume`, `quarantine`, `forget`,
`promote` with its plan, and those of `cqrepl cluster`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cqrepl.cli.options import json_option, run_dir_option

Command = TypeVar("Command", bound=Callable[..., Any])
HOST_ID: Final = click.IntRange(1, 127)


def _told_options(command: Command) -> Command:
    """Adds what all of them have in common."""
    host_option = click.option(
        "--host-id",
        type=HOST_ID,
        envvar="CQREPL_HOST_ID",
        show_envvar=True,
        help="Which host; may be left out where only one runs here.",
    )
    return host_option(run_dir_option(json_option(command)))


def _tell(
    verb: str, host_id: int | None, run_dir: Path | None, as_json: bool, **what: object
) -> None:
    from cqrepl.commands import outcome
    from cqrepl.commands.control import tell_host

    name = f"cqrepl {verb}"

    def work() -> int:
        return tell_host(name, run_dir, host_id, {"do": verb} | what, as_json=as_json)

    sys.exit(outcome.guarded(name, work))


@click.command()
@_told_options
def reload(host_id: int | None, run_dir: Path | None, as_json: bool) -> None:
    """Have a running host read its file again, and print what has changed. SIGHUP does so too.

    The host adds queues that are new, removes those that are gone, and takes on limits. It hands
    a queue over whose masterId has changed; reload the hosts in whatever order. It names what needs
    a restart, which stays as it is. If the file is wrong, or a new queue cannot be opened, all
    stays as it is.

    Exit codes: 0; 1 something needs a restart; 2 the file is wrong, or a queue cannot be opened;
    3 no host answers; 4 a new queue is damaged; 5 refused, as a hand-over to a host that is away.
    """
    _tell("reload", host_id, run_dir, as_json)


@click.command()
@click.argument("queue")
@_told_options
def pause(queue: str, host_id: int | None, run_dir: Path | None, as_json: bool) -> None:
    """Stop one queue of a running host, until `cqrepl resume` or the host's end.

    All others go on. Its peers are told. A queue that is taken in stays locked for other writers.

    Exit codes: 0; 2 no such queue; 3 no host answers; 5 it has stopped by itself.
    """
    _tell("pause", host_id, run_dir, as_json, queue=queue)


@click.command()
@click.argument("queue")
@_told_options
def resume(queue: str, host_id: int | None, run_dir: Path | None, as_json: bool) -> None:
    """Have a queue of a running host go on that was paused, or has stopped.

    One that has stopped is compared with its peer again from the start, as after a restart of the
    host. Tell the host that has stopped it: the other one only heard of it.

    Exit codes: 0; 2 no such queue; 3 no host answers.
    """
    _tell("resume", host_id, run_dir, as_json, queue=queue)


@click.command()
@click.argument("queue")
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without, only say what.")
@_told_options
def quarantine(
    queue: str, is_applied: bool, host_id: int | None, run_dir: Path | None, as_json: bool
) -> None:
    """Put aside what a copy holds otherwise than its source, and take that from there.

    For a queue that a running host takes in, and that has stopped as diverged at a known index. The
    tail is kept below its directory, in quarantine/, as a queue with a report.

    Exit codes: 0; 2 no such queue; 3 no host answers; 5 it has not diverged, is streamed from this
    host, or another process has it open.
    """
    _tell("quarantine", host_id, run_dir, as_json, queue=queue, apply=is_applied)


@click.command()
@click.argument("forgotten", metavar="HOST", type=HOST_ID)
@_told_options
def forget(forgotten: int, host_id: int | None, run_dir: Path | None, as_json: bool) -> None:
    """Forget a sink that is not to come again: no store file is kept for it any more.

    It is known again when it connects.

    Exit codes: 0; 2 no queue knows it; 3 no host answers; 5 it is connected.
    """
    _tell("forget", host_id, run_dir, as_json, forgotten=forgotten)


@click.command()
@click.argument("queue")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Also where too few copies answer: what was safe on others may go to quarantine there, or"
    " another host lead in the same epoch.",
)
@click.option(
    "--to", type=HOST_ID, metavar="HOST", help="Who is to lead: the host that is told, --host-id."
)
@_told_options
def promote(
    queue: str,
    accept_loss: bool,
    to: int | None,
    host_id: int | None,
    run_dir: Path | None,
    as_json: bool,
) -> None:
    """Make the running host the leader of a queue that it takes in, as `cqrepl plan promote` says.

    All copies that answer take it from no other host any more, an old leader that is there steps
    down, what the longest of them has and this one lacks comes first, and then the queue is
    streamed from here. Who is away follows when it comes; what only it has goes to quarantine.

    Exit codes: 0; 2 no such queue; 3 no host answers; 5 refused: it leads already, or too few
    copies answer.
    """
    if to is not None and host_id not in (None, to):
        raise click.UsageError(
            f"expected --host-id {to}, the host that is to lead (--to), got {host_id}"
        )
    _tell("promote", to or host_id, run_dir, as_json, queue=queue, accept_loss=accept_loss)


@click.group()
def plan() -> None:
    """Print what a command would do, and change nothing."""


@plan.command("promote")
@click.argument("queue")
@click.option("--to", type=HOST_ID, required=True, metavar="HOST", help="Who is to lead.")
@_told_options
def plan_promote(
    queue: str, to: int, host_id: int | None, run_dir: Path | None, as_json: bool
) -> None:
    """Print what it would take for a host to lead a queue, as the copies say now.

    What comes over to it from the longest copy, what goes to quarantine on others, who has to be
    fenced, who is not reached, and whether anything that was safe may be lost.

    Exit codes: 0; 2 no such queue or host; 3 no host answers; 5 it would be refused.
    """
    _tell("plan promote", host_id, run_dir, as_json, queue=queue, to=to)


@click.group()
def cluster() -> None:
    """Ask and tell a running host about who leads its queues."""


@cluster.command("epochs")
@click.argument("queue")
@_told_options
def cluster_epochs(queue: str, host_id: int | None, run_dir: Path | None, as_json: bool) -> None:
    """Print the epochs of a queue that this host's copy holds, and which host led in each.

    Exit codes: 0; 2 no such queue; 3 no host answers; 5 the queue is not open.
    """
    _tell("epochs", host_id, run_dir, as_json, queue=queue)


@cluster.command("step-down")
@click.argument("queue")
@click.option("--to", type=HOST_ID, metavar="HOST", help="The host that is to lead instead.")
@_told_options
def cluster_step_down(
    queue: str, to: int | None, host_id: int | None, run_dir: Path | None, as_json: bool
) -> None:
    """Have a running host give up the lead of a queue.

    With --to that host leads once it has all of the queue. Without, the other members elect one;
    where nothing is elected, the queue has no leader until `cqrepl promote`.

    Exit codes: 0; 2 no such queue or host; 3 no host answers; 5 this host does not lead it, or the
    other one is not promoted.
    """
    _tell("step down", host_id, run_dir, as_json, queue=queue, to=to)
