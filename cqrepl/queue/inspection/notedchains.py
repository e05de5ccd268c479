"""Chains that replication has noted beside a store file: its excerpts must lead to the same ones.

Theory of operation. A source or sink reads each excerpt once after it was appended, and notes the
chain at places of the store file (`files.chainfile`), and once more what a closed cycle held
(`files.closedcycles`). So of two copies that differ, the one that contradicts its own notes was
altered; and one copy alone can be found altered.

A side file is of one store file: where it names another one, as in a copy of the directory, it says
nothing. `closed.cqmanifest` is of a queue, and goes with a copy of it.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cqrepl.kernel.chain import has_chains
from cqrepl.queue.files.chainfile import (
    CHAIN_SUFFIX,
    ChainFile,
    Point,
    StoreState,
    load_chain_file,
)
from cqrepl.queue.files.closedcycles import (
    RECORD_BYTES,
    UNKNOWN_CHAIN,
    ClosedCycle,
    ClosedCycles,
)
from cqrepl.queue.files.sidefile import read_side_file
from cqrepl.queue.format.index import Cycle, Sequence
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind


class Noted(NamedTuple):
    """A place of a cycle, the chain over all before it, and the file that says so."""

    sequence: Sequence
    chain: bytes
    path: Path


class QueueNotes:
    """The chains and records that are noted beside the store files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._closed = ClosedCycles(directory)
        self._records: Mapping[Cycle, ClosedCycle] = {}
        self.findings: list[Finding] = []
        try:
            self._records = self._closed.load()
            damaged = damaged_record(self._closed.path)
        except OSError:
            return  # an inspection tells
        if damaged is not None:
            self._note(self._closed.path, damaged, "a record of a closed cycle is damaged")

    def of(self, store: Path, cycle: Cycle) -> list[Noted]:
        """The places of a store file, by rising sequence; none where nothing can be compared."""
        if not has_chains():
            return []
        places = [Noted(*point, self.side_file(store)) for point in self.points(store, cycle)]
        record = self._records.get(cycle)
        if record is not None and record.chain != UNKNOWN_CHAIN:
            places.append(Noted(Sequence(record.excerpts), record.chain, self._closed.path))
        return sorted(place for place in places if place.sequence > 0)

    def points(self, store: Path, cycle: Cycle) -> list[Point]:
        """The points that the side file has for the store file that is there."""
        found = self._chain_file(store, cycle)
        return [] if found is None else list(found.points)

    def is_unchanged(self, store: Path, cycle: Cycle) -> bool:
        """True when nothing was written into the store file since its side file was."""
        found = self._chain_file(store, cycle)
        return found is not None and found.store == StoreState.of(store)

    def _chain_file(self, store: Path, cycle: Cycle) -> ChainFile | None:
        path = self.side_file(store)
        try:
            state = StoreState.of(store)
        except OSError:
            return None  # reading it tells
        try:
            found = load_chain_file(path)
        except OSError as error:
            self._note(path, None, f"cannot be read: {error.strerror}")
            return None
        if found is None and path.exists():
            self._note(path, 0, "it is damaged, and says nothing: it will be made anew")
        if found is None or state is None:
            return None
        is_of_it = (found.cycle, found.store.number) == (cycle, state.number)
        return found if is_of_it else None

    @staticmethod
    def side_file(store: Path) -> Path:
        """The path of the side file with the chains of a store file."""
        return store.with_suffix(CHAIN_SUFFIX)

    def _note(self, path: Path, position: int | None, text: str) -> None:
        finding = Finding(
            kind=FindingKind.HINT, path=path, position=position, index=None, text=text,
            part=FilePart.SIDE_FILE,
        )  # fmt: skip
        if finding not in self.findings:
            self.findings.append(finding)


def damaged_record(path: Path) -> int | None:
    """The position of the first record that is not what was written; None: there is none.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        data = read_side_file(path)
    except FileNotFoundError:
        return None
    for position in range(0, len(data), RECORD_BYTES):
        record = data[position : position + RECORD_BYTES]
        if int.from_bytes(record[-8:], "little") != zlib.crc32(record[:-8]):
            return position
    return None
