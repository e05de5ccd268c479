"""What is known to fail, by name: the schedule of a change leaves it out.

Each entry has a seed that must fail, with that check: a test runs it, so an entry whose fault was
mended has to go.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.testing.plan import Kind, RunPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One fault of the product.

    Args:
        kind: what is left out because of it.
        check: the check that finds it.
        seed: of a run that shows it, of so many seconds, with no kind left out.
        story: what happens.
    """

    name: str
    kind: Kind
    check: str
    seed: int
    seconds: float
    story: str

    @property
    def plan(self) -> RunPlan:
        """The run that shows it, with faults of its kind alone."""
        plan = RunPlan.of(self.seed, self.seconds)
        return plan.only(fault for fault in plan.faults if fault.kind is self.kind)


KNOWN: Final[tuple[Known, ...]] = (
    Known(
        name="copies-differ-after-a-power-cut",
        kind=Kind.POWER_CUT,
        check="equal",
        seed=8,
        seconds=30.0,
        story="The power of the source's host is cut. Its queue has lost its end, and the"
        " application appends before a sink has connected: other excerpts stand at the same"
        " indexes, on both sides for ever, and both say that all is well.",
    ),
    Known(
        name="a-source-counts-as-acknowledged-what-it-has-lost",
        kind=Kind.POWER_CUT,
        check="marks",
        seed=7,
        seconds=30.0,
        story="The power of the source's host is cut. A sink that has more connects, and its mark"
        " lies beyond the end of the source, where other excerpts are going to be.",
    ),
    Known(
        name="a-torn-excerpt-stays-in-the-source",
        kind=Kind.POWER_CUT,
        check="altered",
        seed=279,
        seconds=30.0,
        story="The power of the source's host is cut, and takes the page that an excerpt ends in."
        " Its header is there, so it counts as whole: its end is zeros, for ever.",
    ),
    Known(
        name="a-source-made-anew-takes-what-its-sinks-had",
        kind=Kind.ANEW,
        check="altered",
        seed=27,
        seconds=30.0,
        story="The queue of a source is removed and made anew. Its sinks have more excerpts than"
        " it: what they had before is appended behind the new ones, in the source.",
    ),
    Known(
        name="a-sink-at-another-queue-gives-it-to-the-source",
        kind=Kind.FOREIGN,
        check="altered",
        seed=35,
        seconds=30.0,
        story="A sink is started in the directory of another queue, which is longer: its excerpts"
        " are appended to the source.",
    ),
)
LEFT_OUT: Final = frozenset(known.kind for known in KNOWN)
