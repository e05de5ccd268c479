"""Queues as Arrow tables, without a copy."""

from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, Queue
from tests.support.requirements import require
from tests.support.samples import fill, read

try:
    import pyarrow as pa

    import cqrepl.arrow
except ImportError:
    require("arrow", "pyarrow is not installed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "TEST4_DAILY", {0: 40, 3: 25})
    return tmp_path / "q"


def test_a_table_holds_every_excerpt(path: Path) -> None:
    with cqrepl.arrow.open_reader(path) as reader:
        assert reader.schema == cqrepl.arrow.SCHEMA
        table = reader.read_all()
    table.validate(full=True)
    expected = read(path)
    assert table["index"].to_pylist() == [index for index, _ in expected]
    assert table["payload"].to_pylist() == [payload for _, payload in expected]


def test_a_range_in_small_batches(path: Path) -> None:
    expected = read(path)[10:50]
    with Queue.open(path) as queue:
        batches = list(
            cqrepl.arrow.record_batches(queue, expected[0][0], expected[-1][0], max_rows=7)
        )
    assert all(batch.num_rows <= 7 for batch in batches)
    assert pa.Table.from_batches(batches)["index"].to_pylist() == [index for index, _ in expected]


def test_a_batch_shares_the_memory_of_the_columns(path: Path) -> None:
    with Queue.open(path) as queue:
        columns = queue.read_columns(0, 1 << 62)
    batch = cqrepl.arrow.record_batch(columns)
    address, _ = columns.offsets.buffer_info()
    assert batch["payload"].buffers()[1].address == address
    assert batch["payload"].buffers()[2].to_pybytes() == columns.payload


def test_no_queue(tmp_path: Path) -> None:
    with pytest.raises(NotAQueue):
        cqrepl.arrow.open_reader(tmp_path / "none")
