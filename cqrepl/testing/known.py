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


def _drawn(seed: int, kind: Kind) -> RunPlan:
    """What a seed stands for, for 30 s, with the faults of one kind alone."""
    plan = RunPlan.of(seed, 30.0)
    return plan.only(fault for fault in plan.faults if fault.kind is kind)


KNOWN: Final[tuple[Known, ...]] = (
    Known(
        name="copies-differ-after-a-power-cut",
        kind=Kind.POWER_CUT,
        check="equal",
        plan=_drawn(8, Kind.POWER_CUT),
        story="The power of the source's host is cut. Its queue has lost its end, and the"
        " application appends before a sink has connected: other excerpts stand at the same"
        " indexes, on both sides for ever, and both say that all is well.",
    ),
    Known(
        name="a-source-counts-as-acknowledged-what-it-has-lost",
        kind=Kind.POWER_CUT,
        check="marks",
        plan=_drawn(29, Kind.POWER_CUT),
        story="The power of the source's host is cut. A sink that has more connects, and its mark"
        " lies beyond the end of the source, where other excerpts are going to be.",
    ),
    Known(
        name="a-torn-excerpt-stays-in-a-copy",
        kind=Kind.POWER_CUT,
        check="altered",
        plan=RunPlan(
            seed=90,
            seconds=20.0,
            hosts=2,
            roll_cycle="FAST_DAILY",
            rate=20.0,
            faults=(Fault(10.0, Kind.POWER_CUT, 2, 0, 0.3),),
        ),
        story="The power of a sink's host is cut, and takes a page in the middle of an excerpt that"
        " was acknowledged. Its header is there, so it counts as whole: its middle is zeros, for"
        " ever, and replication goes on behind it.",
    ),
    Known(
        name="a-source-made-anew-takes-what-its-sinks-had",
        kind=Kind.ANEW,
        check="altered",
        plan=_drawn(27, Kind.ANEW),
        story="The queue of a source is removed and made anew. Its sinks have more excerpts than"
        " it: what they had before is appended behind the new ones, in the source.",
    ),
    Known(
        name="a-sink-at-another-queue-gives-it-to-the-source",
        kind=Kind.FOREIGN,
        check="altered",
        plan=_drawn(35, Kind.FOREIGN),
        story="A sink is started in the directory of another queue, which is longer: its excerpts"
        " are appended to the source.",
    ),
)
LEFT_OUT: Final = frozenset(known.kind for known in KNOWN)
