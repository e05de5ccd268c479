"""The reports of tails that were taken off a queue, for a reader that may have read one of them.

Theory of operation. A tail goes to a folder of its own below `quarantine/` (`queue.quarantine`),
with a report that is written before any store file moves. Of the lowest file, what stays is in a
new file of the old name; all others go whole. So a reader that is in a file of the tail finds its
own file in such a folder, and the report says from which index on that folder holds what went.
"""

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

from cqrepl.queue.files.mapping import identity_in
from cqrepl.queue.format.index import Index, parse_index

FOLDER_NAME: Final = "quarantine"
REPORT_NAME: Final = "report.json"


def cut_folders(queue: Path) -> frozenset[str]:
    """The names of the folders with tails of a queue; empty where it has none."""
    try:
        return frozenset(each.name for each in (queue / FOLDER_NAME).iterdir())
    except OSError:
        return frozenset()


def first_cut(queue: Path, known: Set[str]) -> Index | None:
    """The lowest index that went with a tail in a folder that is not known yet; None where no tail
    did."""
    found = (_first(queue / FOLDER_NAME / name) for name in cut_folders(queue) - known)
    return min((each for each in found if each is not None), default=None)


def cut_of(queue: Path, store_name: str, identity: tuple[int, int]) -> Index | None:
    """The first index of the tail that a store file went with; None where no tail has it.

    Args:
        identity: device and number of the file that a reader has open.
    """
    for name in sorted(cut_folders(queue)):
        folder = queue / FOLDER_NAME / name
        try:
            held = identity_in((folder / store_name).stat())
        except OSError:
            continue
        if held == identity:
            return _first(folder)
    return None


def _first(folder: Path) -> Index | None:
    """Of the tail in a folder; None where it has no report."""
    try:
        return min(_firsts(folder), default=None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _firsts(folder: Path) -> Iterator[Index]:
    report = json.loads((folder / REPORT_NAME).read_bytes())
    for each in report["cycles"]:
        yield Index(parse_index(each["first"]))
