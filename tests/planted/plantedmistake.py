"""A mistake that is planted: where it is put, and the tests that are to find it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("cqrepl", "wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One mistake.

    Args:
        name: of the row, for the command line.
        room: the part of the product that it is in.
        file: name of the module.
        text: stands there exactly once.
        wrong: stands there instead, in the copy.
        tests: paths of tests that are expected to find it.
    """

    name: str
    room: str
    file: str
    text: str
    wrong: str
    tests: tuple[str, ...]

    def path(self, root: Path = ROOT) -> Path:
        """The module, in a tree.

        Raises:
            LookupError: there is none of this name, or there are several.
        """
        found = [path for each in PACKAGES for path in (root / each).rglob(self.file)]
        if len(found) != 1:
            raise LookupError(f"{self.name}: expected one {self.file}, found {len(found)}")
        return found[0]
