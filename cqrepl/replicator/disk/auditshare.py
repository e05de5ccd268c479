"""The share of a core that may go into reading again, behind the streams, what was stored.

Theory of operation. The queues of a host are read in rounds, with a rest behind each. While no
closed cycle is left as a whole, a round is short, and rounds are far apart. A round that ran longer
than it was given has a longer rest. Once a closed cycle is left, readers take ten times as much, so
that they do not fall behind for ever. But nothing is to be held up by that. A round that had to
wait itself, for a core, for the interpreter or for the disk, was in the way of other work: its rest
is as long as if nothing were left.

Looks read closed store files that are new, where no round has (`diskend.LOOK_READ_SECONDS` each),
and reckon their SHA-256 (`queueaudit.DIGEST_SECONDS`): a tenth of a core. All of it together is at
most 15 % of a core, and half a core where a closed cycle is left.

A queue that nothing comes to any more is read to its end at once, outside of the rounds.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

SHARE: Final = 0.05  # of a core
BEHIND_SHARE: Final = 0.4  # where a closed cycle is left as a whole
RAN_LEAST: Final = 0.75  # of the time that a round took: with less, others wanted the core as well
REST_SECONDS: Final = 0.01  # at least


class Reading(NamedTuple):
    """The time that it took to read of a queue, or of several in one round, and what is left.

    Args:
        took_s: seconds from its beginning to its end.
        ran_s: of these, the seconds that its thread had a core.
        cycles_left: the number of closed cycles that are left as a whole.
    """

    took_s: float = 0.0
    ran_s: float = 0.0
    cycles_left: int = 0

    @classmethod
    def of_round(cls, readings: "Iterable[Reading]") -> Self:
        """All of them; what is left is that of the queue with most."""
        each = list(readings)
        return cls(
            sum(one.took_s for one in each),
            sum(one.ran_s for one in each),
            max((one.cycles_left for one in each), default=0),
        )


def rest_seconds(done: Reading, usual_s: float) -> float:
    """The seconds to rest after a round.

    Args:
        usual_s: the least, where little is left.
    """
    if done.cycles_left and done.ran_s >= RAN_LEAST * done.took_s:
        return max(_rest(done.ran_s, BEHIND_SHARE), REST_SECONDS)
    return max(_rest(done.ran_s, SHARE), usual_s)


def _rest(ran_s: float, share: float) -> float:
    return ran_s * (1 / share - 1)
