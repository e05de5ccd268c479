"""A part of a cycle in a file of its own gives back what was laid, or says that it does not."""

from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, QueueDamaged
from cqrepl.spark.jobs.laidparts import LaidPart, laid_batches, lay_part
from tests.spark.queues import FIRST

PAYLOADS = [b"%d" % number * (number % 9 + 1) for number in range(2000)]


@pytest.fixture
def laid(tmp_path: Path) -> LaidPart:
    batches = [ExcerptBatch.of(FIRST + at, PAYLOADS[at : at + 300]) for at in range(0, 2000, 300)]
    return lay_part(tmp_path, batches)


def read(laid: LaidPart) -> list[tuple[int, bytes]]:
    return [(index, bytes(data)) for batch in laid_batches(laid) for index, data in batch]


def test_what_was_laid_comes_back(laid: LaidPart) -> None:
    assert read(laid) == [(FIRST + nth, data) for nth, data in enumerate(PAYLOADS)]
    assert (laid.index_first, laid.index_last) == (FIRST, FIRST + len(PAYLOADS) - 1)
    assert Path(laid.file).stat().st_size == laid.size


@pytest.mark.parametrize("position", [0, 4, 3000])
def test_a_byte_that_is_another_one(laid: LaidPart, position: int) -> None:
    path = Path(laid.file)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(QueueDamaged, match="in a part of a cycle, found"):
        read(laid)


def test_a_file_that_was_cut(laid: LaidPart) -> None:
    path = Path(laid.file)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(QueueDamaged, match=f"expected {laid.size} bytes"):
        read(laid)
