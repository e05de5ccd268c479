"""The faults that are known, by name: the schedule of a change leaves out what meets them.

Each entry has a run that must fail, with that check. A test runs it, so an entry whose fault was
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
        plan: of a run that shows it.
        story: what happens.
    """

    name: str
    kind: Kind
    check: str
    plan: RunPlan
    story: str


KNOWN: Final[tuple[Known, ...]] = ()  # nothing at present
LEFT_OUT: Final = frozenset(known.kind for known in KNOWN)
