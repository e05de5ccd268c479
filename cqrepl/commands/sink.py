"""Takes queues in as a sink until the command is over."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cqrepl.commands import replication
from cqrepl.console.units import plural
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import Sink, serve_sink

_logger: Final = logging.getLogger(__name__)


class SinkOptions(replication.ReplicationOptions):
    """The options that the user chose."""

    roll_cycle: str
    once: bool
    touch_ahead: int | None
    append_log: Path | None
    min_free: int
    any_cycle: bool
    on_divergence: str


def run_sink(queues: Mapping[str, Path], options: SinkOptions) -> int:
    """Takes the queues in, each under its name; the exit code."""
    once = options["once"]
    return replication.run_command(
        "cqrepl sink",
        lambda: serve_sink(
            replication.directories(queues),
            **replication.host_options(options, gives_up=once),
            roll_cycle=options["roll_cycle"],
            touch_ahead_bytes=options["touch_ahead"],
            append_log=options["append_log"],
            min_free_bytes=options["min_free"],
            any_cycle=options["any_cycle"],
            on_divergence=options["on_divergence"],
        ),
        _ended if once else None,
        replication.log_choice(options),
    )


async def _ended(sink: Sink) -> list[Stop]:
    try:
        await sink.wait_ended()
    finally:  # whatever ends it: a stop, or a signal, too
        _tell(sink)
    sink.give_up_paused()
    sink.give_up_unnamed()
    return sink.stops


def _tell(sink: Sink) -> None:
    """Says how much came of each queue, and where the copy ends."""
    for name, queue in sink.queues.items():
        last = queue.known_last
        end = "" if last is None or last < 0 else f", the copy ends at {format_index(last)}"
        came = queue.received_excerpts
        if came or end:
            _logger.info("queue %r: %s came%s", name, plural(came, "excerpt"), end)
