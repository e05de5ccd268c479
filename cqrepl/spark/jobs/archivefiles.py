"""The files of an archive: Parquet parts and a manifest. Knows nothing of Spark.

    ARCHIVE/
      _manifest.json                                       what is in it, and all digests
      _lock                                                the run that is busy with it
      day=2026-11-21/cycle=20778/part-0000512a00000000-1000-2bd806c97f0e00af.parquet

A part holds consecutive excerpts of one cycle from a block's start on, in the columns `index` and
`payload`. It is named by its first index, their number and the digest of what it holds, so it never
changes: what is archived anew has another name, and until the manifest says so the old part is
there. Day and cycle stand in the names of the folders, where readers of Parquet look for such
columns. The manifest is written last and replaces the old one at once: what it does not name is not
part of the archive.
"""

import errno
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cqrepl.queue import QueueDamaged, QueueError, QueueLayout, format_index
from cqrepl.queue.format.identity import Identity, parse_identity
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.inspection.storescan import PayloadDigest
from cqrepl.spark.jobs.archiveplace import MANIFEST, ArchivePlace
from cqrepl.spark.jobs.blocks import Piece, block_spans, digest_of_all

SCHEMA: Final = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
_VERSION: Final = 2
_VERSIONS: Final = (1, 2)  # that can be read; 1 has no states of store files
_NAMED_DIGEST: Final = 16  # hexadecimal digits in the name of a part
_NAMED: Final = re.compile(r"part-[0-9a-f]{16}-[0-9]+-[0-9a-f]{16}\.parquet")  # not of version 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePart:
    """One Parquet file: its path in the archive, what it holds, and the digest of each block."""

    path: str
    index_first: int
    index_last: int
    payload_bytes: int
    blocks: tuple[str, ...]

    def spans(self) -> Iterator[tuple[int, int, str]]:
        """First index, last index and digest of each block."""
        spans = block_spans(self.index_first, self.index_last)
        for (first, last), digest in zip(spans, self.blocks, strict=True):
            yield first, last, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedCycle:
    """One cycle in an archive; `file` is the name of its store file.

    Args:
        state: the number, the length in bytes and the last change in nanoseconds of the store file
            that was archived, when nothing of it had been read yet; None where it is not known.
    """

    cycle: int
    day: str
    file: str
    is_closed: bool
    parts: tuple[ArchivePart, ...]
    state: tuple[int, int, int] | None = None

    @property
    def index_first(self) -> int:
        """Index of its first excerpt."""
        return self.parts[0].index_first

    @property
    def index_last(self) -> int:
        """Index of its last excerpt."""
        return self.parts[-1].index_last

    @property
    def count(self) -> int:
        """The number of excerpts it holds."""
        return self.index_last - self.index_first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of an archive, and the identity of its queue; None: not bound yet."""

    layout: QueueLayout
    cycles: tuple[ArchivedCycle, ...]
    identity: Identity | None = None

    @property
    def count(self) -> int:
        """The number of excerpts it holds."""
        return sum(cycle.count for cycle in self.cycles)


def read_manifest(archive: ArchivePlace) -> Manifest:
    """The manifest of an archive.

    Raises:
        QueueError: there is none, or not one that can be read.
    """
    return read_version(archive)[0]


def read_version(archive: ArchivePlace) -> tuple[Manifest, str | None]:
    """The manifest of an archive, and what tells it from later ones.

    Raises:
        QueueError: as `read_manifest`.
    """
    data, version = archive.manifest()
    if version is None:
        raise QueueError(f"{archive.text}: expected an archive, found no {MANIFEST}")
    try:
        fields = json.loads(data)
        if fields["v"] not in _VERSIONS:
            raise QueueError(
                f"{archive.at(MANIFEST)}: expected version {_VERSION}, found {fields['v']}"
            )
        layout, cycles = _layout(fields["layout"]), tuple(_cycles(fields["cycles"]))
        bound = fields.get("identity")
        identity = None if bound is None else parse_identity(bound)
    except (ValueError, KeyError, TypeError) as error:
        raise QueueDamaged(f"{archive.at(MANIFEST)}: expected a manifest: {error!r}") from error
    return Manifest(layout=layout, cycles=cycles, identity=identity), version


def write_manifest(archive: ArchivePlace, manifest: Manifest, version: str | None) -> None:
    """Puts a manifest in the place of the one of this version; None: there was none.

    Raises:
        ArchiveChanged: another one is there meanwhile.
    """
    layout = asdict(manifest.layout) | {"roll_cycle": manifest.layout.roll_cycle.name}
    fields = {
        "v": _VERSION,
        "layout": layout,
        "identity": manifest.identity,
        "cycles": [asdict(cycle) for cycle in manifest.cycles],
    }
    archive.swap_manifest(f"{json.dumps(fields, indent=1)}\n".encode(), version)


def part_folder(layout: QueueLayout, cycle: int) -> str:
    """The folder within an archive that holds the parts of a cycle."""
    return f"day={day_of(layout, cycle)}/cycle={cycle}"


def part_name(index_first: int, index_last: int, blocks: Sequence[str]) -> str:
    """The name of a part of these excerpts, of which these are the digests of the blocks."""
    digest = digest_of_all(blocks)[:_NAMED_DIGEST]
    return f"part-{index_first:016x}-{index_last - index_first + 1}-{digest}.parquet"


def day_of(layout: QueueLayout, cycle: int) -> str:
    """The day on which a cycle begins, in UTC."""
    start = timedelta(milliseconds=cycle * layout.roll_cycle.length_ms + layout.epoch)
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + start:%Y-%m-%d}"


def write_part(path: Path, pieces: Iterable[Piece]) -> int:
    """Writes excerpts into a Parquet file of this machine; bytes of payload."""
    total = 0
    with pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=False,
        column_encoding={"index": "DELTA_BINARY_PACKED", "payload": "PLAIN"},
    ) as writer:  # fmt: skip
        for piece in pieces:
            writer.write_batch(_record_batch(piece))
            total += len(piece.payload)
    return total


def read_part(archive: ArchivePlace, part: ArchivePart) -> Iterator[Piece]:
    """The excerpts of a part.

    Raises:
        QueueDamaged: it is not what the manifest says, as far as indexes tell.
    """
    path = archive.at(part.path)
    index = part.index_first
    try:
        with archive.opened(part.path) as source, pq.ParquetFile(source) as file:
            columns = {each.name: each.type for each in file.schema_arrow}
            is_of_bytes = columns.get("payload") in (pa.binary(), pa.large_binary())
            if columns.get("index") != pa.int64() or not is_of_bytes:
                found = ", ".join(f"{name!a} of {kind}" for name, kind in columns.items())
                raise QueueDamaged(
                    f"{path}: expected a part of an archive, with columns index of int64 and"
                    f" payload of binary, found {found}"
                )
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    yield _piece(batch, index, path)
                    index += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise  # pyarrow raises one without a number for bytes that it cannot read
        text = " ".join(str(error).split())
        raise QueueDamaged(f"{path}: expected a part of an archive: {text}") from error
    if index != part.index_last + 1:
        wanted = format_index(part.index_last)
        raise QueueDamaged(f"{path}: expected {wanted} as its last, found {index - 1:#x}")


def checked_pieces(archive: ArchivePlace, part: ArchivePart) -> Iterator[Piece]:
    """The excerpts of a part.

    Raises:
        QueueDamaged: they are not those that were archived; raised behind the block.
    """
    digests = {last: (first, digest) for first, last, digest in part.spans()}
    digest: PayloadDigest | None = None
    for piece in read_part(archive, part):
        digest = digest or PayloadDigest(Index(piece.index_first))
        digest.take(piece.lengths, piece.payload)
        yield piece
        if piece.index_last in digests:
            first, wanted = digests[piece.index_last]
            if digest.text() != wanted:
                raise QueueDamaged(
                    f"{archive.at(part.path)}: expected digest {wanted} of {first:#x} to"
                    f" {piece.index_last:#x}, found {digest.text()}"
                )
            digest = None


def check_name(archive: ArchivePlace, part: ArchivePart) -> None:
    """Does nothing when a part is named by what the manifest says of it.

    Raises:
        QueueDamaged: it is not, so one of the two is another run's.
    """
    name = PurePosixPath(part.path).name
    wanted = part_name(part.index_first, part.index_last, part.blocks)
    if _NAMED.fullmatch(name) and name != wanted:
        path = archive.at(part.path)
        raise QueueDamaged(f"{path}: expected a part named {wanted} by its digests")


def check_cycle(archive: ArchivePlace, cycle: ArchivedCycle) -> None:
    """Does nothing when the parts of a cycle follow each other from its first excerpt on.

    Raises:
        QueueDamaged: they do not.
    """
    expected = cycle.index_first
    for part in cycle.parts:
        if part.index_first != expected:
            wanted = f"expected a part from {expected:#x} on in cycle {cycle.cycle}"
            raise QueueDamaged(f"{archive.at(MANIFEST)}: {wanted}, found {part.path}")
        expected = part.index_last + 1


def _record_batch(piece: Piece) -> "pa.RecordBatch":
    count = len(piece.lengths)
    offsets = array("q", accumulate(piece.lengths, initial=0))
    payload = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(piece.payload)]
    )
    index = pa.array(range(piece.index_first, piece.index_first + count), pa.int64())
    return pa.record_batch([index, payload], schema=SCHEMA)


def _piece(batch: "pa.RecordBatch", index: int, path: str) -> Piece:
    found = batch.column("index")[0].as_py()
    if found != index:
        raise QueueDamaged(f"{path}: expected index {index:#x}, found {found:#x}")
    column = batch.column("payload").cast(pa.large_binary())
    lengths = array("q")
    lengths.frombytes(memoryview(pc.binary_length(column).buffers()[1])[: 8 * len(column)])
    offsets = memoryview(column.buffers()[1]).cast("q")
    first, last = offsets[column.offset], offsets[column.offset + len(column)]
    payload = bytes(memoryview(column.buffers()[2] or b"")[first:last])
    return Piece(index_first=index, lengths=lengths, payload=payload)


def _layout(fields: dict[str, Any]) -> QueueLayout:
    return QueueLayout(**{**fields, "roll_cycle": by_name(fields["roll_cycle"])})


def _cycles(cycles: list[dict[str, Any]]) -> Iterator[ArchivedCycle]:
    for fields in cycles:
        parts = tuple(
            ArchivePart(**{**part, "blocks": tuple(part["blocks"])}) for part in fields["parts"]
        )
        state = fields.get("state")
        state = None if state is None else tuple(state)
        yield ArchivedCycle(**{**fields, "parts": parts, "state": state})
