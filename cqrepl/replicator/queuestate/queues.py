"""The parts that the queues of a source and of a sink have in common.

These are their names on the wire, of which only those that the user gave are ever used; the layout
that a queue tells its peer; and the waits of a task for what other tasks bring about.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Final, Protocol

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.net.errors import Refused
from cqrepl.net.link import Session
from cqrepl.protocol import QueueShape
from cqrepl.protocol.queuelife import Reason, ReasonKind
from cqrepl.queue import QueueError, QueueLayout
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.replicator.agreement.firstindex import CLOCKS_DIFFER
from cqrepl.replicator.queuestate.wirenames import check_name

# a queue that the peer does not name may still be named; shorter than the longest pause, else what
# is tried again and again in vain gets further for a moment just before this is over, each time
STUCK_SECONDS: Final = 4.5
ANEW: Final = "what it had lost is there again"
PAUSED: Final = "paused by operator"  # what peers are told
REMOVED: Final = "removed by operator"
BY_HAND: Final = Reason(kind=ReasonKind.BY_HAND, message=PAUSED)
TURNS: Final = "host {leader} is to lead it in epoch {epoch}"
# a pause of one of these kinds an operator has asked for: no fault
MEANT: Final = frozenset({ReasonKind.BY_HAND, ReasonKind.TURNS})
_TURNS: Final = re.compile(TURNS.format(leader=r"\d+", epoch=r"\d+") + "$")
# another host leads from now on, or this one in a later epoch: also where no turn was announced
_LEAD_MOVES: Final = re.compile(
    r"host \d+ (is to lead|leads) it in epoch \d+$"
    r"|it is to lead in epoch \d+, which begins anew$"
    r"|it gave up the lead, in epoch \d+"
)
IS_REMOVED: Final = Reason(kind=ReasonKind.REMOVED, message=REMOVED)


def turning(leader: int, epoch: int) -> Reason:
    """The reason of a queue that another host is to lead."""
    return Reason(kind=ReasonKind.TURNS, message=TURNS.format(leader=leader, epoch=epoch))


def kind_of_said(message: str) -> ReasonKind:
    """The kind of a reason that a peer gives for letting go of a queue. On the wire there is only
    the sentence: hosts of all releases know no other field of that message."""
    if message.endswith(PAUSED):
        return ReasonKind.BY_HAND
    if message.endswith(CLOCKS_DIFFER):
        return ReasonKind.CLOCK
    return ReasonKind.TURNS if _TURNS.search(message) else ReasonKind.PEER


def is_meant(message: str) -> bool:
    """True for the reason of a pause that is no fault: an operator, or a change of the leader, has
    brought it about."""
    return kind_of_said(message) in MEANT or _LEAD_MOVES.search(message) is not None


def named(queues: Mapping[str, Path | str] | Iterable[Path | str]) -> dict[str, Path]:
    """Name and directory of each queue; a directory without a name gives its own.

    Raises:
        ValueError: a name that cannot be used, one that stands twice, or no queue at all.
    """
    if isinstance(queues, Mapping):
        pairs = [(name, Path(path)) for name, path in queues.items()]
    else:
        if isinstance(queues, str):
            raise ValueError("a list of queue directories expected, a single text came")
        pairs = [(Path(path).absolute().name, Path(path)) for path in queues]
    if not pairs:
        raise ValueError("at least one queue expected, none came")
    names: dict[str, Path] = {}
    for name, path in pairs:
        check_name(name)
        if name in names:
            raise ValueError(f"two queues are named {name!r}: give one another name")
        names[name] = path
    return names


def check_apart(
    sources: Mapping[str, Path], sinks: Mapping[str, Path], logs: Mapping[str, Path]
) -> None:
    """A directory is for one thing: one queue, or a log.

    Args:
        logs: the directory of each, by what it is, for people.

    Raises:
        Refused: one is for two. Nothing was opened.
    """
    used: dict[Path, str] = {}
    uses = [(f"queue {name!r}", "is streamed from it", path) for name, path in sources.items()]
    uses += [(f"queue {name!r}", "is taken into it", path) for name, path in sinks.items()]
    uses += [(what, "is written to it", path) for what, path in logs.items()]
    for what, how, path in uses:
        place = path.resolve()
        if place in used:
            raise Refused(f"{what} cannot be kept in {path}: {used[place]}")
        used[place] = f"{what} {how}"


def shape_of(layout: QueueLayout) -> QueueShape:
    """The layout as it goes over the wire, so that both sides hold the same indexes."""
    return QueueShape(
        roll_cycle=layout.roll_cycle.name,
        epoch=layout.epoch,
        index_count=layout.index_count,
        index_spacing=layout.index_spacing,
    )


class QueueSession(Session, Protocol):
    """A connection's work, as one of its queues knows it."""

    def stop(self, name: str, error: QueueError) -> None:
        """This queue goes no further on the connection: its own storage has failed."""

    def catch_up(self, only: str | None = None) -> None:
        """As any session's; with a name of that queue alone: each asks often for itself."""


class TakingSession(QueueSession, Protocol):
    """Takes a queue in."""

    def stop(self, name: str, error: QueueError | OSError) -> None:
        """As any session's; a queue pauses over what may pass."""

    def streams(self, name: str) -> bool:
        """True while its stream is on, behind all that was to be compared or given back first."""

    def keep_back(self, name: str, why: Mapping[AckLevel, str]) -> None:
        """Tells the source of a queue that streams why a level beyond appended rises no further
        here: a reason for each level, "" for none."""

    def tell_audited(self, name: str, places: list[tuple[Index, bytes]]) -> None:
        """Its files were read behind the stream, as far as this."""

    def tell_level(self, name: str, level: AckLevel, index: int) -> None:
        """A level beyond appended is true of it up to this index."""

    def say_level(self, name: str, level: AckLevel, index: int) -> bool:
        """The same in any thread, where a live pump has the queue; false where none has."""


# is told what the closed cycles of a damaged queue held, as far as that is known
TellDamage = Callable[[Mapping[Cycle, ClosedCycle]], None]


class Signal:
    """Wakes all tasks that wait, each time."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()
        self._event = trio.Event()

    def wait(self) -> Awaitable[None]:
        return self._event.wait()


async def until_stuck(untaken: Callable[[], Set[str] | None], changed: Signal) -> None:
    """Waits until nothing gets any further; see `Source.wait_stuck`.

    Args:
        untaken: names of queues that a peer does not know, which it may still name; None while
            anything goes on.
    """
    while True:
        await until(lambda: untaken() is not None, changed)
        if not untaken():
            return
        with trio.move_on_after(STUCK_SECONDS) as patience:
            await until(lambda: not untaken(), changed)
        if patience.cancelled_caught and untaken():  # `changed` may not tell that it goes on
            return


async def until(predicate: Callable[[], bool], changed: Signal) -> None:
    """Waits until something is true, looking each time that `changed` says so."""
    while not predicate():
        await changed.wait()
