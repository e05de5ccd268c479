"""The outcomes of a comparison of copies of a queue, by kind and place."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cqrepl.queue.format.index import Cycle, format_index
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.findings import UNKNOWN_CONTENT, Finding, FindingKind


class DifferenceKind(Enum):
    """The kind of a difference between copies."""

    EXCERPT = "excerpt"  # other bytes in an excerpt of the same length
    LENGTH = "length"  # an excerpt is longer or shorter
    TORN = "torn"  # sectors of zeros where another copy has bytes: a power cut leaves that
    DROPPED = "dropped"  # one copy lacks excerpts; what follows them stands at lower indexes
    INSERTED = "inserted"  # one copy has more; what follows stands at higher indexes
    EXCHANGED = "exchanged"  # two excerpts stand in each other's place
    MISSING = "missing"  # one copy ends before
    FILE_MISSING = "file-missing"  # one copy has no store file of this cycle
    FILE_EXCHANGED = "file-exchanged"  # a store file holds what another cycle's does elsewhere
    CHAIN = "chain"  # somewhere in the range, as side files say: nothing was read
    END = "end"  # the cycle is closed in one copy and open in another


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySide:
    """The bytes that one copy has at the place of a difference.

    Args:
        path: the store file.
        position: of the excerpt's header; where there is no excerpt, of the end of the documents.
        length: of the excerpt, in bytes; None where there is no excerpt.
        part: a few bytes of the excerpt, those around the first that differs.
        part_first: the offset of the first byte of `part` in the excerpt.
    """

    path: Path
    position: int
    length: int | None
    part: bytes = b""
    part_first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SameRange:
    """Consecutive indexes whose excerpts all copies hold alike."""

    index_first: int
    index_last: int
    is_same: bool = True

    def __str__(self) -> str:
        return f"{_range(self.index_first, self.index_last)}: same"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDifference:
    """Consecutive indexes that differ in one way.

    Args:
        present: which of the copies have them, in the order of the paths.
        sides: what each copy has at the first of them; None: no store file that can be read.
        byte_first: the offset of the first byte that differs in the first excerpt; the shorter
            one's length where it is the beginning of the longer one.
        text: the same for people, without the place.
        is_note: nothing is lost or altered; worth to be known.
    """

    kind: DifferenceKind
    cycle: Cycle
    index_first: int
    index_last: int
    present: tuple[bool, ...]
    sides: tuple[CopySide | None, ...] = ()
    byte_first: int | None = None
    text: str = ""
    is_note: bool = False

    @property
    def is_same(self) -> bool:
        """True when no excerpt is concerned."""
        return self.is_note

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """Of the first excerpt in each copy; None where it has none."""
        return tuple(None if side is None else side.length for side in self.sides)

    def __str__(self) -> str:
        return f"{_range(self.index_first, self.index_last)}: {self.kind.value}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDigests:
    """A cycle that was compared: what each copy holds of it, None where it has no store file.

    `digests` are the chains over the excerpts, as replication compares them, where they were made.
    """

    cycle: Cycle
    counts: tuple[int | None, ...]
    digests: tuple[str | None, ...]
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutsDiffer:
    """The copies give other indexes to the same excerpts: nothing can be compared."""

    layouts: tuple[QueueLayout, ...]
    is_same: bool = False

    def __str__(self) -> str:
        return f"layouts: {'; '.join(map(str, self.layouts))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFile:
    """Two paths name one and the same file or directory: to compare it with itself proves
    nothing."""

    paths: tuple[Path, ...]
    is_same: bool = False

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.paths))}: one and the same, compared with itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something wrong within one copy, whatever the others hold."""

    copy: int
    finding: Finding

    @property
    def is_same(self) -> bool:
        """False when it is damage, or nothing is known of a file: not for marks that lag."""
        return self.finding.kind not in (FindingKind.DAMAGE, *UNKNOWN_CONTENT)

    def __str__(self) -> str:
        return str(self.finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """Excerpts that a quick comparison says nothing of."""

    cycle: Cycle
    index_first: int
    index_last: int
    text: str
    is_same: bool = True

    def __str__(self) -> str:
        return f"{_range(self.index_first, self.index_last)}: not read: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingCompared:
    """No excerpt was compared. Copies that all are empty are the same; else nothing is proved."""

    text: str
    is_same: bool = False

    def __str__(self) -> str:
        return self.text


Outcome = (
    SameRange
    | NamedDifference
    | CycleDigests
    | LayoutsDiffer
    | OneFile
    | Flaw
    | NotRead
    | NothingCompared
)


def _range(first: int, last: int) -> str:
    return (
        format_index(first) if first == last else f"{format_index(first)} .. {format_index(last)}"
    )
