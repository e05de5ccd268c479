"""Notes on the files of rows that were imported into a queue: `imports.json` in its directory.

Theory of operation. A file is known by its SHA-256, whatever its name. Rows are appended in blocks.
Before a block its first row and the queue's next index are noted, synced; behind it, nothing: the
next block's note says that this one is in. An import that was killed finds the last note, and looks
behind that index for the excerpts of the block: those that are there, one behind the other, are in.
Other writers may have appended meanwhile, between blocks.

    {"v": 1, "files": {"<sha256>": {"name": "orders.csv", "rows": 4096, "next_index": 8498...,
                                    "is_whole": false}}}
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cqrepl.queue import Queue
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.typed.exportmanifest import PART_SUFFIX, rename_synced

NAME: Final = "imports.json"
VERSION: Final = 1


@dataclass(slots=True)
class ImportNote:
    """The note of one file.

    Attributes:
        rows: all before are in the queue; those behind may be.
        next_index: of the queue, when the row after them was about to be appended.
        is_whole: all rows are in.
    """

    folder: Path
    digest: str
    name: str
    rows: int = 0
    next_index: int | None = None
    is_whole: bool = False

    @classmethod
    def of(cls, folder: Path, digest: str, name: str) -> "ImportNote":
        """The note of a file, as it was left.

        Raises:
            QueueDamaged: the notes cannot be read.
        """
        given = _read(folder).get(digest, {})
        rows, next_index = given.get("rows", 0), given.get("next_index")
        return cls(folder, digest, name, rows, next_index, given.get("is_whole", False))

    def write(self) -> None:
        """Writes it, synced."""
        files = _read(self.folder)
        files[self.digest] = {
            "name": self.name,
            "rows": self.rows,
            "next_index": self.next_index,
            "is_whole": self.is_whole,
        }
        written = self.folder / f"{NAME}{PART_SUFFIX}"
        text = json.dumps({"v": VERSION, "files": files}, indent=1) + "\n"
        written.write_text(text, encoding="utf-8")
        rename_synced(written, self.folder / NAME)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        if given["v"] != VERSION:
            raise ValueError(f"version {given['v']}")
        return dict(given["files"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise QueueDamaged(f"expected notes of imports ({error})", path=path) from error


def found_behind(queue: Queue, index: int, payloads: list[bytes]) -> int:
    """The number of these payloads that stand in the queue from `index` on, from the first one on,
    one behind the other."""
    if not payloads:
        return 0
    found = 0
    for excerpt in queue.tailer(index):
        if bytes(excerpt) == payloads[found]:
            found += 1
            if found == len(payloads):
                break
        elif found:
            break
    return found
