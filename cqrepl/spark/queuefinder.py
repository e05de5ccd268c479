"""From the paths of a reader to queues, each with a name that stays the same.

A path without a pattern is one queue, and its last part is its name. A pattern (`*`, `?`, `[...]`)
stands for all queues that match it now; the name of each is what follows the part of the pattern
that is fixed, so that `data/*/orders` finds `eu/orders` and `us/orders`. A name leads back to its
path without a look at the directories, because streams keep names in their checkpoints.
"""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from cqrepl.queue.files.storefile import SUFFIX
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.spark.tableoptions import OptionError, QueueChoice


class Finder:
    """The queues that some paths and patterns stand for."""

    def __init__(self, finding: QueueChoice) -> None:
        self._paths: dict[str, Path] = {}
        self._patterns: list[tuple[Path, str]] = []  # the part that is fixed, and the whole
        for text in finding.paths:
            pattern = os.path.abspath(text)
            if glob.has_magic(text):
                self._patterns.append((_fixed_part(pattern), pattern))
            else:
                self._add(finding.name or Path(pattern).name, Path(pattern), self._paths)
        if finding.name is not None and self._patterns:
            raise OptionError("name", "one queue", f"a pattern, {finding.paths[0]!r}")

    def find(self) -> dict[str, Path]:
        """The queues there are now by name; those without a pattern whether they are there or not.

        Raises:
            OptionError: two of them have one name.
        """
        found = dict(self._paths)
        for fixed, pattern in self._patterns:
            for path in _queues(pattern):
                self._add(str(path.relative_to(fixed)), path, found)
        return dict(sorted(found.items()))

    def path_of(self, name: str) -> Path | None:
        """The path where the queue of a name is, or would be; None when no path stands for it."""
        if name in self._paths:
            return self._paths[name]
        for fixed, pattern in self._patterns:
            path = fixed / name
            if Path(name).parts and _matches(path, Path(pattern)):
                return path
        return None

    def _add(self, name: str, path: Path, found: dict[str, Path]) -> None:
        if found.setdefault(name, path) != path:
            raise OptionError(
                "path", "queues of different names", f"{name!r} at {found[name]} and at {path}"
            )


def _queues(pattern: str) -> Iterator[Path]:
    for path in map(Path, sorted(glob.glob(pattern))):
        if looks_like_queue(path):
            yield path


def looks_like_queue(path: Path) -> bool:
    """True where a directory has a table store, or store files."""
    return (path / FILE_NAME).exists() or (path.is_dir() and any(path.glob("*" + SUFFIX)))


def _fixed_part(pattern: str) -> Path:
    """The directory above the first part that is a pattern."""
    path = Path(pattern)
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def _matches(path: Path, pattern: Path) -> bool:
    return len(path.parts) == len(pattern.parts) and path.match(str(pattern))
