"""The golden queues that Java wrote (tests/vectors/queues), and what their manifests say."""

import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

GOLDEN: Final = Path(__file__).resolve().parents[1] / "vectors" / "queues"
Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of a golden queue; tests/vectors/queues/README.md names the fields."""

    name: str
    roll_cycle_name: str
    epoch: int
    block_size: int
    index_count: int
    index_spacing: int
    has_metadata: bool
    files: list[Line]
    excerpts: list[Line]  # all of them, with what else is said of each
    java_reads: int  # how many of them Java's tailer reaches
    reads_to_end: bool  # whether these are all

    @property
    def digests(self) -> list[tuple[int, str]]:
        return [(int(each["index"], 16), each["sha256"]) for each in self.excerpts]

    @property
    def indexes(self) -> list[int]:
        return [int(each["index"], 16) for each in self.excerpts]

    def dumped(self, count: int | None = None) -> list[Line]:
        return [
            {key: each[key] for key in ("index", "length", "sha256")}
            for each in self.excerpts[:count]
        ]


@cache
def manifest(name: str) -> Manifest:
    raw = json.loads((GOLDEN / f"{name}.json").read_text())
    return Manifest(
        name=name,
        roll_cycle_name=raw["rollCycle"],
        epoch=raw["epoch"],
        block_size=raw["blockSize"],
        index_count=raw["indexCount"],
        index_spacing=raw["indexSpacing"],
        has_metadata=raw["hasMetadataFile"],
        files=raw["files"],
        excerpts=raw["excerpts"],
        java_reads=raw["javaTailer"]["reads"],
        reads_to_end=raw["javaTailer"]["readsAll"],
    )


# rollcycles.json is no queue
NAMES: Final = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "rollcycles")
READABLE: Final = [name for name in NAMES if name != "weekly"]  # that roll cycle is refused
# Chronicle Queue 5.17 wrote them: without aligned headers, so they are read and not appended to
OLD: Final = ("old_daily", "old_index_pages")
WRITABLE: Final = [name for name in READABLE if name not in OLD]
LOST_END: Final = "eof_in_last"  # its newer file was removed
READ_TO_END: Final = [name for name in NAMES if manifest(name).reads_to_end]
READ_IN_PART: Final = [name for name in READABLE if name not in READ_TO_END]


def unpack(name: str, into: Path) -> Path:
    """A copy of a golden queue."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as tar:
        tar.extractall(into, filter="data")
    return into / name
