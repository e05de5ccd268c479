"""Names what happened where two copies of a queue begin to differ.

Theory of operation. Where the first excerpt differs, as many of those that follow as it takes are
read again from both files, and laid against each other: at the same indexes, shifted, or exchanged.
The narrowest explanation counts. It is no more than an explanation: two copies alone cannot tell
which of them has the right excerpts. The bytes do differ there, whatever name that gets.
"""

import hashlib
from typing import Final, NamedTuple

from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.storefile import Place
from cqrepl.queue.format.index import SEQUENCE_FIRST, Position, Sequence
from cqrepl.queue.inspection.copyreader import CopyPart, are_equal, first_byte
from cqrepl.queue.inspection.differences import CopySide, DifferenceKind
from cqrepl.queue.inspection.documentwalk import DocumentWalk
from cqrepl.queue.read.tornsectors import is_torn
from wire.header import HEADER_BYTES

_WINDOW: Final = 64  # excerpts that are looked at
_WINDOW_CHUNK_BYTES: Final = 1 << 16
_PART_BYTES: Final = 16
_PART_BEFORE: Final = 4  # of which so many stand before the first that differs
_EXAMINED_BYTES_MAX: Final = 1 << 24  # a longer excerpt is not examined for torn sectors


class Diagnosis(NamedTuple):
    """The kind of a difference, as seen from the first of two copies.

    Args:
        many: how many excerpts were dropped or inserted; how far apart two were exchanged.
    """

    kind: DifferenceKind
    many: int = 1


def diagnose(one: CopyPart, other: CopyPart) -> Diagnosis:
    """Tells how the second copy differs from the first at one excerpt; each part begins with it."""
    mine, theirs = _digests(one), _digests(other)
    for shift in range(1, _WINDOW):
        kept = _WINDOW - shift
        if mine[shift:] and mine[shift:] == theirs[:kept]:
            return Diagnosis(DifferenceKind.DROPPED, shift)
        if theirs[shift:] and theirs[shift:] == mine[:kept]:
            return Diagnosis(DifferenceKind.INSERTED, shift)
    for apart in range(1, min(len(mine), len(theirs))):
        is_exchanged = mine[0] == theirs[apart] and mine[apart] == theirs[0]
        if is_exchanged and mine[1:apart] == theirs[1:apart]:
            return Diagnosis(DifferenceKind.EXCHANGED, apart)
    return diagnose_alone(one, other)


def diagnose_alone(one: CopyPart, other: CopyPart) -> Diagnosis:
    """The same, without a look at the excerpts that follow: for one difference among very many."""
    if one.lengths != other.lengths:
        return Diagnosis(DifferenceKind.LENGTH)
    if is_torn_of(one, other) or is_torn_of(other, one):
        return Diagnosis(DifferenceKind.TORN)
    return Diagnosis(DifferenceKind.EXCERPT)


def is_torn_of(one: CopyPart, other: CopyPart) -> bool:
    """True when a power cut can have made the second of the first."""
    if other.lengths[0] > _EXAMINED_BYTES_MAX:
        return False
    whole, found = b"".join(one.pieces()), memoryview(b"".join(other.pieces()))
    return is_torn(found, whole, other.place(0).position + HEADER_BYTES)


def side_of(part: CopyPart, byte: int | None) -> CopySide:
    """The bytes that a copy has at a difference; the part is of one excerpt.

    Args:
        byte: the offset of the first byte that differs.
    """
    first = max(0, (byte or 0) - _PART_BEFORE)
    position, length = part.place(0).position, part.lengths[0]
    file = part.stretch.file
    data = file.read(position + HEADER_BYTES + first, min(_PART_BYTES, length - first))
    return CopySide(path=file.path, position=position, length=length, part=data, part_first=first)


def least_byte(parts: list[CopyPart]) -> int | None:
    """The least offset at which one of several parts of one excerpt differs from the first."""
    found = [first_byte(parts[0], other) for other in parts[1:]]
    return min((offset for offset in found if offset is not None), default=None)


def hold_the_same(one: FileBytes, other: FileBytes) -> bool:
    """True when two store files hold the same excerpts, and some, by reading them."""
    walks = DocumentWalk(one).stretches(), DocumentWalk(other).stretches()
    parts: list[CopyPart | None] = [None, None]
    sequence = 0
    while True:
        for nth, walk in enumerate(walks):
            if parts[nth] is None and (stretch := next(walk, None)) is not None:
                parts[nth] = CopyPart(stretch, 0, len(stretch))
        mine, theirs = parts
        if mine is None or theirs is None:
            return mine is None and theirs is None and sequence > 0
        count = min(mine.count, theirs.count)
        if not are_equal(mine.cut(0, count), theirs.cut(0, count)):
            return False
        sequence += count
        parts = [
            each.cut(count, each.count - count) if each.count > count else None
            for each in (mine, theirs)
        ]


def _digests(part: CopyPart) -> list[bytes]:
    """A digest of the excerpt, and of each that follows it in its file, at most so many."""
    digests: list[bytes] = []
    file, position = part.stretch.file, part.place(0).position
    walk = DocumentWalk(
        file, Place(Sequence(SEQUENCE_FIRST), Position(position)), chunk_bytes=_WINDOW_CHUNK_BYTES
    )
    for stretch in walk.stretches():
        for nth in range(min(len(stretch), _WINDOW - len(digests))):
            digest = hashlib.blake2b(digest_size=16)
            for piece in CopyPart(stretch, nth, 1).pieces():
                digest.update(piece)
            digests.append(digest.digest())
        if len(digests) == _WINDOW:
            break
    return digests
