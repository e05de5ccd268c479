"""The comparison that `cqrepl demo` ends with."""

from pathlib import Path

import pytest

from cqrepl import demo
from cqrepl.queue import ExcerptBatch, Queue, format_index
from tests.support.samples import fill, layout, noon_index, noon_path, payloads


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two equal queues, written in batches of other lengths."""
    one, other = tmp_path / "one", tmp_path / "other"
    fill(one, "FAST_DAILY", {0: 500, 2: 30}, per_batch=50)
    fill(other, "FAST_DAILY", {0: 500, 2: 30}, per_batch=7)
    return one, other


def test_equal(pair: tuple[Path, Path]) -> None:
    assert demo.difference(*pair) is None


def test_empty_queues_are_equal(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with Queue.open_for_append(tmp_path / name, create=layout()):
            pass
    assert demo.difference(tmp_path / "one", tmp_path / "other") is None


@pytest.mark.parametrize("longer", [0, 1])
def test_one_has_more(pair: tuple[Path, Path], longer: int) -> None:
    index = noon_index(ahead=2, sequence=30)
    with Queue.open_for_append(pair[longer]) as queue:
        queue.appender().append_at(ExcerptBatch.of(index, [b"more"]))
    found = demo.difference(*pair)
    assert found is not None
    shorter = noon_path(pair[1 - longer], ahead=2)
    assert found.startswith(f"{format_index(index)}: missing: {shorter} ends before, at position ")


def test_same_bytes_at_another_index(tmp_path: Path) -> None:
    for name, ahead in (("one", 0), ("other", 1)):
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            batch = ExcerptBatch.of(noon_index(ahead=ahead), payloads(5))
            queue.appender().append_at(batch)
    found = demo.difference(tmp_path / "one", tmp_path / "other")
    first, last = format_index(noon_index()), format_index(noon_index(sequence=4))
    lacking = f"{tmp_path / 'other'} has no store file, its first one is later"
    assert found == f"{first} .. {last}: file-missing: {lacking}"
