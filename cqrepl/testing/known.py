"""What is known to fail, by name: the schedule of a change leaves it out.

Each entry has a run that must fail, with that check: a test runs it, so an entry whose fault was
mended has to go.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.testing.cluster import RATE
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan


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


def _plan(
    *faults: Fault,
    seed: int = 0,
    hosts: int = 2,
    roll_cycle: str = "FAST_DAILY",
    rate: float = RATE,
    seconds: float = 20.0,
) -> RunPlan:
    return RunPlan(
        seed=seed, seconds=seconds, hosts=hosts, roll_cycle=roll_cycle, rate=rate, faults=faults
    )


KNOWN: Final[tuple[Known, ...]] = (
    Known(
        name="a-missing-file-is-passed-over",
        kind=Kind.FILE_GONE,
        check="lost",
        plan=_plan(Fault(12.0, Kind.FILE_GONE, SOURCE, 0, 0.05), roll_cycle="TEST_SECONDLY"),
        story="A store file in the middle of the source's queue is removed. Nobody says so.",
    ),
    Known(
        name="a-missing-file-of-a-copy-is-passed-over",
        kind=Kind.FILE_GONE,
        check="equal",
        plan=_plan(Fault(12.0, Kind.FILE_GONE, 2, 0, 0.05), roll_cycle="TEST_SECONDLY"),
        story="A store file in the middle of a copy is removed. Nobody says so.",
    ),
    Known(
        name="an-older-file-is-passed-over",
        kind=Kind.FILE_OLD,
        check="lost",
        plan=_plan(Fault(12.3, Kind.FILE_OLD, SOURCE, 0, 0.05), roll_cycle="TEST_SECONDLY"),
        story="A closed store file of the source becomes what it was while it was written, with "
        "fewer excerpts. Nobody says so.",
    ),
    Known(
        name="an-older-file-of-a-copy-is-passed-over",
        kind=Kind.FILE_OLD,
        check="equal",
        plan=_plan(Fault(12.3, Kind.FILE_OLD, 2, 0, 0.05), roll_cycle="TEST_SECONDLY"),
        story="The same with a closed store file of a copy.",
    ),
)
LEFT_OUT: Final = frozenset(known.kind for known in KNOWN)
