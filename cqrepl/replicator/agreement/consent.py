"""The rules by which a sink may write into its source's queue what that lacks, and how much.

Any peer that reaches the port of a source can say that it has more. So only two kinds of hosts are
taken at their word: one that this queue was streamed to before, and that has proved that it holds
what the queue holds; and one that the operator has named. Of the first nothing is taken either
where the queue is known to have lost nothing: some program has appended to that host's copy, and no
leader has sent those excerpts. Neither may go on without end, as writers are kept out meanwhile.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue import QueueError
from cqrepl.queue.format.index import format_index

RETURN_EXCERPTS_MAX: Final = 1_000_000
RETURN_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnSettings:
    """The hosts that a source takes a back copy from, and the limits of one.

    Args:
        hosts: ids of hosts that are taken though the queue does not know them, or though they
            cannot prove what they hold. None: no host's is taken, not even of those it knows.
        excerpts_max: so many in one back copy.
        seconds_max: so long writers of the queue are kept out by one.

    Raises:
        ValueError: a limit below one, or an id that is no host's.
    """

    hosts: frozenset[int] | None = frozenset()
    excerpts_max: int = RETURN_EXCERPTS_MAX
    seconds_max: float = RETURN_SECONDS_MAX

    def __post_init__(self) -> None:
        if self.excerpts_max < 1 or not self.seconds_max > 0:
            raise ValueError(
                "limits of at least one excerpt and more than no time expected for what is"
                f" returned, {self.excerpts_max} and {self.seconds_max} s came"
            )
        for host_id in self.hosts or ():
            if not 1 <= host_id <= 127:
                raise ValueError(f"a host id from 1 to 127 expected, {host_id} came")


class ReturnRefused(QueueError):
    """The source takes nothing, or nothing more, of what a sink wants to give back."""


def check_return(
    settings: ReturnSettings,
    host_id: int,
    ends: tuple[int, int],
    path: Path,
    *,
    is_known: bool,
    is_proved: bool,
    has_all: bool,
) -> None:
    """Decides whether a back copy may begin.

    Args:
        ends: the next index of this queue, and of the sink's copy.
        path: of this queue.
        is_known: the queue has marks of this host.
        is_proved: the sink has proved that it holds what this queue does, up to the shorter end.
        has_all: this queue is known to have lost nothing.

    Raises:
        ReturnRefused: it may not.
    """
    if settings.hosts is not None and (
        host_id in settings.hosts or (is_known and is_proved and not has_all)
    ):
        return
    here, there = (format_index(end) for end in ends)
    if settings.hosts is None:
        why = "no host may give back (--accept-returns none)"
    elif is_known and is_proved:
        raise ReturnRefused(
            f"host {host_id} is longer than its leader (next index {there}, here {here}), which has"
            f" lost nothing: --accept-returns {host_id} takes what it has more, or it is promoted",
            path=path,
        )
    else:
        lacks = "was never streamed to it" if not is_known else "cannot compare what both hold"
        why = f"this queue {lacks}; --accept-returns {host_id} takes it from there"
    raise ReturnRefused(
        f"host {host_id} has more than this queue (next index {there}, here {here}): {why}",
        path=path,
    )
