"""What is known to fail, by name: the schedule of a change leaves it out.

Each entry has a run that must fail, with that check: a test runs it, so an entry whose fault was
mended has to go.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.testing.plan import Fault, Kind, RunPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One fault of the product.

    Args:
        kind: what is left out because of it.
        check: the check that finds it.
        plan: of a run that shows it.
        story: what happens.
    """

    name: str
    kind: Kind
    check: str
    plan: RunPlan
    story: str


KNOWN: Final[tuple[Known, ...]] = (
    Known(
        name="a limit that a host is told to keep by a reload",
        kind=Kind.LIMIT,
        check="moving",
        plan=RunPlan(
            seed=118,
            seconds=10.0,
            hosts=3,
            roll_cycle="TEST4_DAILY",
            rate=10.0,
            faults=(
                Fault(5.742, Kind.LIMIT, 1, 0, 3.0, nth=5),
                Fault(5.944, Kind.KILL_AT_CALL, 2, 0, 8.0, nth=20),
                Fault(6.863, Kind.KILL_AT_CALL, 3, 0, 1.0, nth=8),
            ),
            changing=True,
        ),
        story="There are tokens for what is live, and only what has much to catch up with is there,"
        " for which there are none: the writer looks again at once, until some have come.",
    ),
)
LEFT_OUT: Final = frozenset(known.kind for known in KNOWN)
