"""The queues that a host streams, and those that it takes in, when it starts.

The file of a cluster names a master for each, which is only the first choice: where a copy has
promised an epoch, that epoch says which host leads.
"""

import logging
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from cqrepl.net.errors import Refused
from cqrepl.net.program import Program
from cqrepl.queue import QueueDamaged
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import named_logs
from cqrepl.replicator.queuestate.queues import check_apart, named
from cqrepl.replicator.settings import NO_HOST, HostSettings, SinkSettings

SHOWN_MAX: Final = 10  # names of queues, of an error
_logger: Final = logging.getLogger(__name__)


def directions(
    settings: HostSettings, programs: Sequence[Program]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """Names and directories of the queues that are streamed, and of those that are taken in.

    Raises:
        Refused, ValueError: they do not fit together.
    """
    relays = relays_of(settings)
    both = sorted((settings.sources.keys() & settings.sinks.keys()) - relays)
    if both:
        raise ValueError(f"a queue goes one way: {', '.join(map(repr, both))} is to go both")
    paths = {**settings.sources, **settings.sinks}
    if paths and settings.protocol.guest:
        raise ValueError("a guest has no queues, only handlers of its programs")
    if not paths and not programs:
        raise ValueError("at least one queue or a program expected, none came")
    names = named(paths) if paths else {}
    from_here = {each: names[each] for each in settings.sources if each not in relays}
    to_here = {each: names[each] for each in settings.sinks}
    logs = named_logs(settings.source.ack_log, from_here, settings.sink.append_log, to_here)
    check_apart(from_here, to_here, logs)
    return from_here, to_here


def relays_of(settings: HostSettings) -> frozenset[str]:
    """The queues that are taken in and passed on: those that go both ways in one directory, and
    come from a host that is named."""
    both = settings.sources.keys() & settings.sinks.keys() & settings.sink.masters.keys()
    return frozenset(n for n in both if Path(settings.sources[n]) == Path(settings.sinks[n]))


def check_known(name: object, queues: Set[str]) -> str:
    """Looks whether a host has a queue of this name, and returns it.

    Raises:
        ValueError: it has not.
    """
    if isinstance(name, str) and name in queues:
        return name
    known = sorted(queues)
    shown = ", ".join(known[:SHOWN_MAX]) + (", ..." if len(known) > SHOWN_MAX else "")
    raise ValueError(f"expected one of the queues {shown or '(none)'}, got {name!r}")


def check_logs_stay(counts: Mapping[Path | None, tuple[int, int]]) -> None:
    """Looks whether each log stays where it is with other queues than before.

    Args:
        counts: of each log the number of its queues, now and then.

    Raises:
        Refused: one would not.
    """
    for log, (now, then) in counts.items():
        if log is not None and 1 in (now, then) and now != then:
            raise Refused(f"{log}: a log has another place with one queue than with several")


def by_epochs(
    from_here: Mapping[str, Path],
    to_here: Mapping[str, Path],
    known: Mapping[str, KeptEpochs],
    settings: HostSettings,
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The same queues, by what their copies have promised. Each stays in its directory. One whose
    epochs cannot be read now, or are damaged, stays as it is: it is not opened before they can be
    read. All stay as they are on a host that is none of a cluster, or that awaits a leader.

    Args:
        known: the epochs of each.
    """
    streamed, taken = dict(from_here), dict(to_here)
    if not settings.sink.masters or settings.awaits_leader:
        return streamed, taken
    host_id = settings.protocol.host_id
    for name, path in {**from_here, **to_here}.items():
        try:
            epochs = known[name].now
        except (OSError, QueueDamaged):
            continue
        if epochs.promised:
            leads = epochs.may_lead(host_id)
            (taken if leads else streamed).pop(name, None)
            (streamed if leads else taken)[name] = path
    return streamed, taken


def log_other_leaders(settings: SinkSettings, known: Mapping[str, KeptEpochs]) -> None:
    """Logs each queue that the file gives another master than leads it by its epochs. Those that
    cannot be read now are passed by, and so are queues with routes, which have no epochs.

    Args:
        known: the epochs of each.
    """
    for name in sorted(known.keys() & settings.masters.keys() - settings.routes.keys()):
        with suppress(OSError, QueueDamaged):
            master, epochs = settings.masters[name], known[name].now
            if epochs.promised and master not in (NO_HOST, epochs.promised_to):
                _logger.info(
                    "queue %r: the file's masterId is %d, and epoch %d is promised to host %d:"
                    " the epoch counts",
                    name,
                    master,
                    epochs.promised,
                    epochs.promised_to,
                )


def check_no_epoch(name: str, kept: KeptEpochs) -> None:
    """Does nothing where the file of the cluster says who leads a queue.

    Raises:
        Refused: it has had a promotion.
        OSError, QueueDamaged: that cannot be read.
    """
    epochs = kept.now
    if epochs.promised:
        raise Refused(
            f"queue {name!r} stays with host {epochs.promised_to}, which leads it in epoch"
            f" {epochs.promised}: cqrepl promote, there where it is to go"
        )


def check_no_routes(settings: HostSettings) -> None:
    """Does nothing where no queue that has had a promotion has a way by another host: the ways of
    the file lead to its master, and another host leads such a queue. Epochs that cannot be read now
    are passed by.

    Raises:
        Refused: one has.
    """
    paths = {**settings.sources, **settings.sinks}
    for name in sorted(paths.keys() & settings.sink.routes.keys()):
        with suppress(OSError, QueueDamaged):
            epochs, ways = load_epochs(Path(paths[name])), settings.sink.routes[name]
            if epochs.promised and ways:
                taker, giver = min(ways.items())
                raise Refused(
                    f"queue {name!r}: host {taker} is to take it from host {giver} by 'routes', and"
                    f" epoch {epochs.promised} is promised to host {epochs.promised_to}: a queue"
                    f" that has had a promotion takes no routes: take {name!r} out of 'routes'"
                )
