"""A part of a cycle in a file of its own gives back what was laid, or says that it does not."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue, QueueDamaged, QueueLayout
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.jobs import laidparts
from cqrepl.spark.jobs.cyclebuilder import build_cycle
from cqrepl.spark.jobs.laidparts import LaidPart, join_parts, laid_batches, lay_part
from tests.spark.queues import CYCLE, FIRST, excerpts

LAYOUT = QueueLayout.of(by_name("FAST_DAILY"))
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


@pytest.fixture
def parts(tmp_path: Path) -> list[LaidPart]:
    return [
        lay_part(tmp_path, [ExcerptBatch.of(FIRST + at, PAYLOADS[at : at + 1000])])
        for at in (0, 1000)
    ]


def assert_joined(file: Path, folder: Path, parts: Iterable[LaidPart]) -> None:
    """One store file has all excerpts, and the parts have gone."""
    assert excerpts(file.parent) == [(FIRST + nth, data) for nth, data in enumerate(PAYLOADS)]
    assert [path.parent for path in folder.rglob("*.cq4")] == [folder / "joined"]
    assert not any(Path(part.file).exists() for part in parts)


def test_parts_go_when_they_are_joined(tmp_path: Path, parts: list[LaidPart]) -> None:
    file = join_parts(tmp_path / "joined", LAYOUT, parts, is_closed=True)
    assert_joined(file, tmp_path, parts)
    with Queue.open(file.parent) as queue:
        assert queue.cycles.has_ended(Cycle(CYCLE))


def test_an_attempt_behind_one_that_was_killed(tmp_path: Path, parts: list[LaidPart]) -> None:
    """It takes what is whole, and removes what was left, once and once more."""
    built = build_cycle(tmp_path, LAYOUT, laid_batches(parts[0]), is_closed=False)
    assert built.parent.name != "joined"
    before = join_parts(tmp_path / "joined", LAYOUT, parts, is_closed=False).stat()
    Path(parts[1].file).touch()
    for _ in range(2):
        file = join_parts(tmp_path / "joined", LAYOUT, parts, is_closed=False)
        assert file.stat() == before
        assert not Path(parts[1].file).exists()


@pytest.mark.parametrize("is_ahead", [True, False])
def test_an_attempt_that_another_one_overtakes(
    tmp_path: Path, parts: list[LaidPart], monkeypatch: pytest.MonkeyPatch, is_ahead: bool
) -> None:
    """The other attempt comes before this one has read a part, or as it is about to name its
    file."""

    def built(
        folder: Path, layout: QueueLayout, batches: Iterable[ExcerptBatch], *, is_closed: bool
    ) -> Path:
        monkeypatch.undo()
        file = None if is_ahead else build_cycle(folder, layout, batches, is_closed=is_closed)
        join_parts(tmp_path / "joined", layout, parts, is_closed=is_closed)
        return file or build_cycle(folder, layout, batches, is_closed=is_closed)

    monkeypatch.setattr(laidparts, "build_cycle", built)
    file = join_parts(tmp_path / "joined", LAYOUT, parts, is_closed=False)
    assert_joined(file, tmp_path, parts)


def test_a_part_that_is_missing_is_told(tmp_path: Path, parts: list[LaidPart]) -> None:
    gone = replace(parts[1], file=str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        join_parts(tmp_path / "joined", LAYOUT, [parts[0], gone], is_closed=False)
    assert Path(parts[0].file).exists()
