"""Runs as messages: the grammar and the reader take and refuse the same."""

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.protocol.messages.runs import (
    RUN_BYTES_MAX,
    RUN_EXCERPTS_MAX,
    RUN_HEAD_BYTES,
    read_run,
    write_run_head,
)
from tests.property.test_runs_agree import as_run
from tests.strategies import INT64_MAX, THOROUGH, corrupted, int64s
from wire import Reader, Splitter, WireError
from wire.grammar import structures

LONGEST = 1 << 20
payloads = st.lists(st.binary(min_size=1, max_size=12), min_size=2, max_size=6)
indexes = st.integers(0, INT64_MAX - 100)


def document(payloads: list[bytes], index: int, ns: int, count: int | None = None) -> bytes:
    run = as_run(payloads)
    return write_run_head(index, len(payloads) if count is None else count, ns, len(run)) + run


def read(data: bytes) -> tuple[int, list[bytes], int]:
    """First index, payloads and nano time of a document."""
    splitter = Splitter(2 * LONGEST)
    splitter.feed(data)
    found = splitter.next_document()
    if found is None or found.is_metadata or splitter.pending_bytes:
        raise WireError("one data document expected")
    reader = Reader(found.body)
    if reader.read_name() != "run":
        raise WireError("a run expected")
    batch, ns, problem = read_run(reader, LONGEST)
    if problem is not None:
        raise WireError(problem)
    assert batch is not None
    return batch.index_first, [bytes(payload) for _, payload in batch], ns


@THOROUGH
@given(payloads, indexes, int64s)
def test_what_is_written_is_read(contents: list[bytes], index: int, ns: int) -> None:
    data = document(contents, index, ns)
    judged = structures.Run.parse(data)
    assert read(data) == (index, contents, ns)
    assert (judged.index, list(judged.excerpts), judged.ns) == (index, contents, ns)
    assert structures.Run.build(judged) == data


@THOROUGH
@given(payloads, st.data())
def test_the_judge_and_the_reader_refuse_the_same(
    contents: list[bytes], data: st.DataObject
) -> None:
    changed = document(contents, 7, 1 << 40, len(contents) + data.draw(st.integers(-1, 1)))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(
            st.integers(RUN_HEAD_BYTES, len(changed) - 1) | st.integers(0, len(changed) - 1)
        )
        changed = corrupted(changed, at, data.draw(st.integers(0, 255)))
    try:
        judged = structures.Run.parse(changed)
        whole = structures.Run.build(judged) == changed and judged.index >= 0
    except ConstructError:
        whole = False
    try:
        read(changed)
    except WireError:
        assert not whole
    else:
        assert whole


@pytest.mark.parametrize(
    ("count", "length"), [(1, 4), (RUN_EXCERPTS_MAX + 1, 4), (2, RUN_BYTES_MAX // 2 - 1)]
)
def test_beyond_the_limits(count: int, length: int) -> None:
    with pytest.raises(WireError, match="expected"):
        read(document([b"x" * length] * count, 7, 8))


def test_at_the_limits() -> None:
    index, found, ns = read(document([b"x" * 60] * RUN_EXCERPTS_MAX, 7, 8))
    assert (index, len(found), ns) == (7, RUN_EXCERPTS_MAX, 8)
    _, found, _ = read(document([b"x" * (RUN_BYTES_MAX // 2 - 4)] * 2, 7, 8))
    assert len(found) == 2


def test_the_last_index_that_there_can_be() -> None:
    with pytest.raises(WireError, match="index"):
        read(document([b"x", b"y"], INT64_MAX - 1, 8))
    with pytest.raises(WireError, match="index"):
        read(document([b"x", b"y"], -1, 8))
