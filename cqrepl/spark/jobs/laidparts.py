"""A part of a cycle as it will stand in the cycle's store file, in a file of its own. Knows nothing
of Spark.

Theory of operation. A store file is made by one process, by appending: where an excerpt stands
follows from the lengths of all before it, and index pages stand in between. But what an excerpt
looks like there (header word, bytes, zeros up to the next multiple of 4) depends on nothing else.
So what takes long, reading and checking, is done by a task for each part of a cycle, which lays
its excerpts into a file of its own. One task then joins the files of a cycle: it finds the excerpts
in them and appends them, which makes the pages as for everybody.

Tasks that wrote to the store file itself would need the lengths of all before them first; and one
that Spark has given up, which may still be running, would write into a file that others trust. A
file of a part is known by the answer of the attempt that counts, and no other attempt has its name.

What is joined is what was laid: with the name of a file comes its size, and the chain over its
excerpts (`kernel.chain`) where there is a library for that.

The files of a cycle go as soon as it is joined, since they take as much of the disk once more. So
what is joined gets a name that all attempts of the join know, and only when it is whole: the
attempt that comes after a kill, or beside another one, takes what has that name.
"""

import errno
import itertools
import mmap
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from cqrepl.kernel.batch import find_excerpts, lay_excerpts
from cqrepl.kernel.chain import CHAIN_START, extend_chain, has_chains
from cqrepl.queue import ExcerptBatch, QueueDamaged, QueueLayout
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.storeimage import TAIL_ZEROS
from cqrepl.spark.jobs.cyclebuilder import build_cycle, making
from wire.header import HEADER_BYTES

_NO_MARKS: Final = 1 << 30  # a spacing: the index is made by the join
_FOUND_MAX: Final = 65_536  # excerpts in a batch that is read back


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidPart:
    """Consecutive excerpts of one cycle, at least one, in a file of so many bytes.

    Args:
        chain: over the excerpts, in hexadecimal digits; None without a library for it.
    """

    file: str
    index_first: int
    index_last: int
    size: int
    chain: str | None


def lay_part(folder: Path, batches: Iterable[ExcerptBatch]) -> LaidPart:
    """Lays consecutive excerpts of one cycle, at least one, into a new file of a folder.

    Raises:
        OSError: no space, then nothing is left; or the folder has gone.
    """
    path = folder / f"{uuid4().hex}.laid"
    chain, size = CHAIN_START, 0
    ends: tuple[int, int] | None = None
    with making(path), path.open("xb") as out:
        for batch in batches:
            assert ends is None or ends[1] + 1 == batch.index_first
            ends = batch.index_first if ends is None else ends[0], batch.index_last
            chain = _extended(chain, batch, batch.index_first - ends[0])
            size += out.write(_laid(batch))
    assert ends is not None
    return LaidPart(
        file=str(path),
        index_first=ends[0],
        index_last=ends[1],
        size=size,
        chain=chain.hex() if has_chains() else None,
    )


def laid_batches(part: LaidPart) -> Iterator[ExcerptBatch]:
    """The excerpts of a part.

    Raises:
        QueueDamaged: it does not hold what was laid; raised behind the last batch that could be
            read.
        OSError: it cannot be opened.
    """
    path = Path(part.file)
    with path.open("rb") as file:
        if file.seek(0, 2) != part.size:
            raise _damaged(part, f"{part.size} bytes", f"{file.tell()}")
        # it is unmapped when the last batch goes
        data = memoryview(mmap.mmap(file.fileno(), part.size, access=mmap.ACCESS_READ))
    index, position, chain = part.index_first, 0, CHAIN_START
    while position < part.size:
        found = find_excerpts(data, position, part.size, count_max=_FOUND_MAX)
        if not found.offsets:
            raise _damaged(part, "an excerpt", f"none at {position}")
        batch = ExcerptBatch(Index(index), data, found.offsets, found.lengths)
        chain = _extended(chain, batch, index - part.index_first)
        yield batch
        index, position = batch.index_last + 1, found.position
    if index != part.index_last + 1:
        raise _damaged(part, f"{part.index_last:#x} as its last", f"{index - 1:#x}")
    if part.chain is not None and chain.hex() != part.chain:
        raise _damaged(part, "the excerpts that were laid", "other ones")


def join_parts(
    place: Path, layout: QueueLayout, parts: Sequence[LaidPart], *, is_closed: bool
) -> Path:
    """The store file of a cycle that was laid in these parts, in a directory of its own; the parts
    go. Another attempt of the same gives the same file.

    Args:
        place: the directory, which no other cycle and no other run has.

    Raises:
        QueueDamaged: as `laid_batches`.
        OSError: no space, then nothing is left but the parts; or a part has gone.
    """
    if not place.is_dir():
        try:
            batches = itertools.chain.from_iterable(map(laid_batches, parts))
            file = build_cycle(place.parent, layout, batches, is_closed=is_closed)
            _give_name(file.parent, place)
        except FileNotFoundError:
            if not place.is_dir():  # else another attempt has joined them meanwhile
                raise
    for part in parts:
        Path(part.file).unlink(missing_ok=True)
    return next(place.glob("*.cq4"))


def _give_name(made: Path, place: Path) -> None:
    """Gives a directory a name, or removes it where another one has that."""
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        shutil.rmtree(made, ignore_errors=True)


def _extended(chain: bytes, batch: ExcerptBatch, sequence: int) -> bytes:
    if not has_chains():
        return chain
    return extend_chain(batch.data, batch.offsets, batch.lengths, sequence, chain)


def _laid(batch: ExcerptBatch) -> memoryview:
    """The bytes of a batch in a store file, all of its header words set."""
    buffer = bytearray(batch.laid_bytes + len(TAIL_ZEROS))
    laid = lay_excerpts(
        batch.data, batch.offsets, batch.lengths, 0, len(batch),
        memoryview(buffer), 0, 1, _NO_MARKS,
    )  # fmt: skip
    buffer[:HEADER_BYTES] = laid.first_word.to_bytes(HEADER_BYTES, "little")
    return memoryview(buffer)[: laid.position_end]


def _damaged(part: LaidPart, expected: str, found: str) -> QueueDamaged:
    return QueueDamaged(
        f"expected {expected} in a part of a cycle, found {found}", path=Path(part.file)
    )
