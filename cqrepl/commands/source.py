"""Serves queues as a source until the command is over."""

from collections.abc import Mapping
from pathlib import Path

from cqrepl.commands import replication
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.source import Source, serve_source


class SourceOptions(replication.ReplicationOptions):
    """The options that the user chose."""

    no_ack: bool
    until_caught_up: bool
    ack_log: Path | None
    pauser: str
    accept_returns: frozenset[int] | None
    return_excerpts: int
    return_seconds: int
    wait_for: frozenset[int] | None
    wait_for_seconds: int
    tailers: str


def run_source(queues: Mapping[str, Path], options: SourceOptions) -> int:
    """Streams the queues, each under its name; the exit code."""
    until_caught_up = options["until_caught_up"]
    return replication.run_command(
        "cqrepl source",
        lambda: serve_source(
            replication.directories(queues),
            **replication.host_options(options, gives_up=until_caught_up, pauser=options["pauser"]),
            acknowledge=not options["no_ack"],
            ack_log=options["ack_log"],
            accept_returns=options["accept_returns"],
            return_excerpts_max=options["return_excerpts"],
            return_seconds_max=options["return_seconds"],
            wait_for=options["wait_for"],
            wait_for_seconds=options["wait_for_seconds"],
            all_tailers=options["tailers"] == "all",
        ),
        _caught_up if until_caught_up else None,
        replication.log_choice(options),
    )


async def _caught_up(source: Source) -> list[Stop]:
    await source.wait_caught_up()
    # some sink has all: what stopped with others is theirs, but for what is wrong with our own
    return [stop for stop in source.stops if stop.is_own_damage]
