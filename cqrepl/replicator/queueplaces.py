"""The directories of a running host's queues and logs: each has one for itself."""

from collections.abc import Mapping
from pathlib import Path

from cqrepl.replicator.hostroles import check_logs_stay
from cqrepl.replicator.queuestate.logs import named_logs
from cqrepl.replicator.queuestate.queues import check_apart
from cqrepl.replicator.settings import HostSettings
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source


def place_queues(
    source: Source,
    sink: Sink,
    settings: HostSettings,
    names: Mapping[str, Path],
    sources: Mapping[str, Path],
    sinks: Mapping[str, Path],
) -> None:
    """Looks whether each queue and each log would have a directory for itself, and places logs.

    Args:
        names: the queues that stay.
        sources, sinks: those that are new.

    Raises:
        Refused: one would not, or a log would have another place than before.
    """
    taken = {**{each: names[each] for each in names if each in sink.queues}, **sinks}
    streamed = {**{each: names[each] for each in names if each not in taken}, **sources}
    own, own_log = settings.source.ack_log, settings.sink.append_log
    now = len(source.names - sink.queues.keys())
    check_logs_stay({own: (now, len(streamed)), own_log: (len(sink.queues), len(taken))})
    check_apart(streamed, taken, named_logs(own, streamed, own_log, taken))
    source.place_logs(streamed)
    sink.place_logs(taken)
