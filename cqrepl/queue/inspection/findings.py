"""Findings: each is a fault that an inspection finds in a queue, with its repair if it has one."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from cqrepl.queue.format.index import format_index


class FindingKind(Enum):
    """The kind of a finding: how bad it is, and what it disturbs."""

    DAMAGE = "damage"  # bytes break the format, or contradict each other
    UNREADABLE = "unreadable"  # this process may not read the file: nothing is known of it
    UNSUPPORTED = "not supported"  # of a version, form or name that this program does not read
    HINT = "hint"  # a mark lags or is missing: right excerpts, found by walking
    END = "end"  # a cycle is not closed, though a later one has excerpts: readers wait there
    UNFINISHED = "unfinished"  # what a writer left that died over it, or is busy with
    LISTING = "listing"  # the table store and the directory disagree
    LOCK = "lock"  # held by a dead process


UNKNOWN_CONTENT: Final = (FindingKind.UNREADABLE, FindingKind.UNSUPPORTED)  # the file was not read


class FilePart(Enum):
    """The part of a queue that a finding is in."""

    DOCUMENTS = "documents"  # excerpts and their headers, up to the end
    HEADER = "store header"  # the first document of a store file
    PAGE = "index page"
    TABLE = "table store"
    DIRECTORY = "directory"  # names of files, files that are not there
    SIDE_FILE = "side file"  # what replication has noted beside the store files


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One change of one file: bytes stored in place, or another name for the file.

    Args:
        found: what stands there now; nothing is stored where something else does.
        written: what will stand there; never over an excerpt, nor over a header on the way to one.
        renamed_to: the new name instead.
        reason: why.
    """

    path: Path
    position: int
    found: bytes
    written: bytes
    reason: str
    renamed_to: str | None = None

    def __str__(self) -> str:
        if self.renamed_to is not None:
            return f"{self.path}: rename to {self.renamed_to}: {self.reason}"
        was, will = _shown(self.found), _shown(self.written)
        return f"{self.path}: at position {self.position} store {will} for {was}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be, and where.

    Args:
        index: the first excerpt concerned, where that can be told.
        repair: what would put it right; None where nothing can be done in place.
        remedy: what helps then, in half a sentence; empty where it depends.
    """

    kind: FindingKind
    path: Path
    position: int | None
    index: int | None
    text: str
    repair: Repair | None = None
    remedy: str = ""
    part: FilePart = FilePart.DOCUMENTS

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        which = "" if self.index is None else f", index {format_index(self.index)}"
        return f"{self.path}: {self.kind.value}: {self.text}{where}{which}"


def _shown(data: bytes) -> str:
    """Bytes for people: hexadecimal; of many, the first."""
    text = data[:16].hex(" ", 8)
    return text if len(data) <= 16 else f"{text} ... ({len(data)} bytes)"
