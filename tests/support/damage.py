"""Queues to damage, and the ways to damage them.

A sample knows where each of its excerpts stands, by a walk written from the format alone. A
`Mutation` says what is done to which bytes; `changed` are the files as they are then. The place is
drawn in one of four areas, so that no part of a queue is damaged more often for being large:

    headers   the store header, and the header word of every document
    index     the arrays of index pages and of the page of pages, as far as they are used
    table     the documents of the table store
    payload   the bytes of the excerpts
"""

import random
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.goldens import unpack
from tests.support.samples import fill

PAGE = 4096
_DRAWS = 50
AREAS = ("headers", "index", "table", "payload")
KINDS = {
    "headers": ("flip", "cut", "zero page", "swap pages", "repeat page", "swap files", "zero word"),
    "index": ("flip", "zero page", "swap pages", "repeat page", "absurd", "zero word"),
    "table": ("flip", "cut", "zero page", "roll cycle", "roll cycle", "roll cycle", "absurd"),
    "payload": ("flip", "cut", "zero page", "swap pages", "repeat page", "zero word"),
}
TABLE = "metadata.cq4t"
META, NOT_COMPLETE, EOF = 0x40000000, 0x80000000, 0xC0000000
ABSURD = (
    1, 3, 4, 200, 0x10000, 1 << 20, (1 << 31) - 4, 1 << 32, (1 << 47) + 8,
    (1 << 62) - 4, (1 << 63) - 1, (1 << 63), (1 << 64) - 1, (1 << 64) - 4,
)  # fmt: skip
FORMATS = ("yyyyMMdd'F'", "yyyyMMdd-HH'F'", "yyyyMMdd-HHmmss'T4'", "yyyyMMdd'T2'", "yyyy", "")


@dataclass(frozen=True)
class Document:
    """One document of a store file."""

    position: int
    word: int

    @property
    def length(self) -> int:
        return self.word & (META - 1)

    @property
    def is_excerpt(self) -> bool:
        return not self.word & META

    @property
    def end(self) -> int:
        return self.position + 4 + self.length


def documents(data: bytes) -> list[Document]:
    """The documents of a store file, walked by the letter of the format."""
    found = []
    position = 0
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        if word == 0 or word & NOT_COMPLETE or position + 4 + (word & (META - 1)) > len(data):
            break
        found.append(Document(position, word))
        position = (found[-1].end + 3) & ~3
    return found


@dataclass
class Sample:
    """A queue as it was before the damage."""

    name: str
    files: dict[str, bytes]
    sequence_mask: int = (1 << 32) - 1
    walked: dict[str, list[Document]] = field(default_factory=dict)
    places: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.walked = {n: documents(d) for n, d in self.files.items() if n.endswith(".cq4")}
        self.places = {area: [] for area in AREAS}
        for name, walked in self.walked.items():
            for document in walked:
                self._place(name, document)
        table = documents(self.files[TABLE]) if TABLE in self.files else []
        self.places["table"] = [(TABLE, each.position, each.end) for each in table]

    @property
    def stores(self) -> list[str]:
        return sorted(self.walked)

    def excerpts(self, name: str) -> list[Document]:
        return [each for each in self.walked[name] if each.is_excerpt]

    def data_start(self, name: str) -> int:
        """The position where a file's first index page ends."""
        return self.walked[name][2].end

    def _place(self, name: str, document: Document) -> None:
        data, begin, end = self.files[name], document.position, document.end
        if begin == 0:
            self.places["headers"].append((name, 0, end))
            return
        self.places["headers"].append((name, begin, begin + 4))
        if document.is_excerpt:
            self.places["payload"].append((name, begin + 4, end))
            return
        at = data.find(b"\x8d", begin + 4, end) + 1
        if b"index" in data[begin + 4 : begin + 12] and at:
            capacity, used = struct.unpack_from("<qq", data, at)
            last = at + 16 + 8 * min(capacity, used + 1)
            self.places["index"].append((name, begin + 4, last))


@dataclass(frozen=True)
class Mutation:
    """A damage to a sample: the area and the kind, and a seed for the place and the rest."""

    area: str
    kind: str
    seed: int

    def apply(self, sample: Sample) -> dict[str, bytes]:
        """The files after the damage; drawn again where it changes nothing."""
        chance = random.Random(self.seed)
        files = sample.files
        for _ in range(_DRAWS):
            files = self._draw(sample, chance)
            if files != sample.files:
                break
        return files

    def _draw(self, sample: Sample, chance: random.Random) -> dict[str, bytes]:
        places = sample.places[self.area]
        name, begin, end = chance.choice(places)
        position = chance.randrange(begin, end)
        files = dict(sample.files)
        if self.kind == "swap files":
            other = chance.choice(sample.stores)
            files[name], files[other] = files[other], files[name]
            return files
        data = bytearray(files[name])
        if self.kind == "roll cycle":
            _damage_layout(data, chance)
        elif self.kind == "cut":
            del data[position:]
        elif self.kind == "flip":
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                data[position] ^= 1 << chance.randrange(8)
                position = chance.randrange(begin, end)
        elif self.kind == "absurd":
            at = position & ~7
            data[at : at + 8] = chance.choice(ABSURD).to_bytes(8, "little")
        elif self.kind == "zero word":
            at = position & ~3
            data[at : at + 4] = bytes(4)
        else:
            _damage_page(data, self.kind, position & ~(PAGE - 1), chance)
        files[name] = bytes(data)
        return files


def _damage_page(data: bytearray, kind: str, page: int, chance: random.Random) -> None:
    used = max(len(bytes(data).rstrip(b"\0")), 1)
    other = chance.randrange((used + PAGE - 1) // PAGE) * PAGE
    mine, theirs = data[page : page + PAGE], data[other : other + PAGE]
    if kind == "zero page":
        data[page : page + PAGE] = bytes(len(mine))
        return
    size = min(len(mine), len(theirs))
    data[page : page + size] = theirs[:size]
    if kind == "swap pages":
        data[other : other + size] = mine[:size]


def _damage_layout(data: bytearray, chance: random.Random) -> None:
    """Another pattern, length or epoch, in a header that stays well-formed."""
    field = chance.choice((b"format", b"length", b"epoch"))
    at = data.index(field) + len(field)
    if field == b"format":
        length = data[at] - 0xE0
        new = chance.choice(FORMATS).encode()[:length].ljust(length, b"'")
        data[at + 1 : at + 1 + length] = new
    else:
        data[at + 1] ^= chance.randrange(1, 256)


def samples(folder: Path) -> list[Sample]:
    """The queues that are damaged: Java's own, and one of ours with several index pages."""
    found = []
    for name in ("test4_secondly_overflow", "metadata_docs", "fast_hourly_gaps", "two_writers"):
        found.append(_sample(name, unpack(name, folder)))
    path = folder / "ours"
    fill(path, "TEST4_SECONDLY", {0: 300, 1: 5, 3: 140})
    found.append(_sample("ours", path))
    path = folder / "small"
    fill(path, "TEST2_DAILY", {0: 60, 2: 40, 3: 1})
    found.append(_sample("small", path))
    return found


def _sample(name: str, path: Path) -> Sample:
    """The files of a queue, no longer than one page behind what is used of them."""
    files = {}
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        used = (len(data.rstrip(b"\0")) + 2 * PAGE) & ~(PAGE - 1)
        files[file.name] = data if file.name == TABLE else data[:used].ljust(used, b"\0")
    return Sample(name, files)


def removed(path: Path) -> None:
    """As `rm -r`, said again where a host has just made a file of its own there."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)
