"""Runs: many excerpts in one document, with the bytes of the store file as they stand.

    <cid document> | word | C3 'run' | 82 u32 | AF index8 | A6 count4 | A7 nanos8 | 82 u32 | bytes

Nothing of that may be written otherwise: a native pump knows this form alone. What the bytes are is
told in `cqrepl.kernel.plainruns`. Only peers that have announced it get runs.
"""

import struct
from typing import Final, NamedTuple

from cqrepl.kernel.batch import RunFault, find_excerpts, run_length, split_run
from cqrepl.protocol.messages.names import RUN
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import INDEX_MAX, Index
from wire import Reader, WireError
from wire.codes import Code
from wire.header import HEADER_BYTES

RUN_EXCERPTS_MIN: Final = 2  # a single one is framed
RUN_EXCERPTS_MAX: Final = 16_384
RUN_BYTES_MAX: Final = 1024 * 1024  # from the first header to the end of the last payload
_NAME: Final = bytes([Code.FIELD_NAME0 + len(RUN)]) + RUN.encode()
# word, name, block, index, count, nano time, bytes
_HEAD: Final = struct.Struct("<I4sBIBqBiBqBI")
_BEHIND_NAME: Final = struct.Struct("<BIBqBiBqBI")
_IN_BLOCK: Final = _BEHIND_NAME.size - struct.calcsize("<BI")
_CODES: Final = (
    Code.BYTES_LENGTH32,
    Code.INT64_0X,
    Code.INT32,
    Code.INT64,
    Code.BYTES_LENGTH32,
)
RUN_HEAD_BYTES: Final = _HEAD.size
_FAULTS: Final = {
    RunFault.ENDED: "it ends before its last excerpt",
    RunFault.LONGER: "bytes stand behind its last excerpt",
    RunFault.CUT: "it ends within an excerpt",
    RunFault.META: "meta-data stand in it",
    RunFault.WORKING: "an excerpt in it is not complete",
    RunFault.EMPTY: "a header in it is 0",
    RunFault.GAP: "a gap in it is not empty",
}


def write_run_head(index: int, count: int, ns: int, size: int) -> bytes:
    """The head that stands before the bytes of a run, without the cid document.

    Args:
        index: of the first excerpt.
        size: how many bytes follow.
    """
    body = _HEAD.size - HEADER_BYTES + size
    block, length = Code.BYTES_LENGTH32, _IN_BLOCK + size
    numbers = (Code.INT64_0X, index, Code.INT32, count, Code.INT64, ns)
    return _HEAD.pack(body, _NAME, block, length, *numbers, block, size)


class RunRead(NamedTuple):
    """The content of a run.

    Args:
        batch: its excerpts; where one is too long, those before it, None for none.
        problem: says that an excerpt is too long; None where none is.
    """

    batch: ExcerptBatch | None
    ns: int
    problem: str | None = None


def read_run(reader: Reader, payload_max: int) -> RunRead:
    """A run whose name was read.

    Args:
        payload_max: most bytes of an excerpt.

    Raises:
        WireError: it is none, or beyond the limits.
    """
    start = reader.position + _BEHIND_NAME.size
    if start > reader.end:
        raise WireError("the head of a run expected, less came")
    head = _BEHIND_NAME.unpack_from(reader.data, reader.position)
    codes, (block, index, count, ns, size) = head[::2], head[1::2]
    if codes != _CODES or block != _IN_BLOCK + size or start + size != reader.end:
        raise WireError("the head of a run expected, something else came")
    if not RUN_EXCERPTS_MIN <= count <= RUN_EXCERPTS_MAX:
        what = f"{RUN_EXCERPTS_MIN} to {RUN_EXCERPTS_MAX} excerpts in a run expected, {count} came"
        raise WireError(what)
    if size > RUN_BYTES_MAX:
        raise WireError(f"a run of at most {RUN_BYTES_MAX} bytes expected, {size} came")
    if not 0 <= index <= INDEX_MAX - count:
        raise WireError(f"a run from an index on expected, {index} came")
    data = memoryview(reader.data)
    fault, offsets, lengths = split_run(data, start, reader.end, count, payload_max)
    if fault is RunFault.TOO_LONG:
        before = _before_too_long(data[start : reader.end], index, payload_max)
        what = f"a run of excerpts of at most {payload_max} bytes expected, a longer one came"
        return RunRead(before, ns, what)
    if fault is not RunFault.WHOLE:
        raise WireError(f"a run of {count} excerpts expected: {_FAULTS[fault]}")
    return RunRead(ExcerptBatch(Index(index), data, offsets, lengths), ns)


def _before_too_long(run: memoryview, index: int, payload_max: int) -> ExcerptBatch | None:
    found = find_excerpts(run, 0, len(run), payload_max=payload_max)
    batch = run, found.offsets, found.lengths
    count = run_length(*batch, 0, count_max=RUN_EXCERPTS_MAX, bytes_max=RUN_BYTES_MAX)
    return ExcerptBatch(Index(index), *batch).part(0, count) if count else None
