"""Copies of queues compared: what is alike, what differs, and what is missing where."""

import os
import shutil
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.inspection.cyclecomparison import ComparedSpan
from cqrepl.queue.inspection.differences import (
    CycleDigests,
    DifferenceKind,
    Flaw,
    LayoutsDiffer,
    NamedDifference,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.documentwalk import CHUNK_BYTES
from cqrepl.queue.inspection.verification import last_common_index, verify
from tests.support.goldens import READABLE, manifest, unpack
from tests.support.samples import fill, layout, noon_index, noon_path, stored

NAME = "TEST4_SECONDLY"
_REMOVED = "20240306F.cq4"


def ranges(outcomes: list[Outcome]) -> list[SameRange | NamedDifference]:
    return [each for each in outcomes if isinstance(each, SameRange | NamedDifference)]


def differences(outcomes: list[Outcome]) -> list[NamedDifference]:
    return [each for each in outcomes if isinstance(each, NamedDifference)]


def cycles(outcomes: list[Outcome]) -> list[CycleDigests]:
    return [each for each in outcomes if isinstance(each, CycleDigests)]


@pytest.mark.parametrize("name", READABLE)
def test_a_copy_is_the_same(tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    outcomes = list(verify([path, tmp_path / "copy"]))
    told = [each for each in outcomes if not each.is_same]
    if name == "eof_in_last":  # its newer file was removed: both copies have lost the same end
        lost = [each.finding.path for each in told if isinstance(each, Flaw)]
        assert lost == [path / _REMOVED, tmp_path / "copy" / _REMOVED]
    else:
        assert not told
    counts = [each.counts[0] for each in cycles(outcomes)]
    assert sum(count or 0 for count in counts) == len(manifest(name).digests)


def test_files_laid_differently_are_the_same(tmp_path: Path) -> None:
    """The files have index pages at other positions, and one of them has an application's
    meta-data."""
    golden = unpack("metadata_docs", tmp_path)
    with Queue.open(golden) as queue:
        batch = queue.tailer().next_batch()
        assert batch is not None
        made = layout("FAST_DAILY")
        with Queue.open_for_append(tmp_path / "ours", create=made) as ours:
            ours.appender().append_at(batch)
    outcomes = list(verify([golden, tmp_path / "ours"]))
    assert all(each.is_same for each in outcomes), outcomes


def test_missing_ranges_name_the_copies_that_have_them(tmp_path: Path) -> None:
    for name, counts in (("a", {0: 100, 1: 50, 3: 9}), ("b", {0: 100, 1: 50}), ("c", {0: 70})):
        fill(tmp_path / name, NAME, counts)
    outcomes = list(verify([tmp_path / name for name in "abc"]))
    found = [
        (each.kind, each.index_first, each.index_last, each.present)
        for each in differences(outcomes)
        if not each.is_same
    ]

    def at(ahead: int, sequence: int) -> int:
        return noon_index(NAME, ahead=ahead, sequence=sequence)

    assert found == [
        (DifferenceKind.MISSING, at(0, 70), at(0, 99), (True, True, False)),
        (DifferenceKind.FILE_MISSING, at(1, 0), at(1, 49), (True, True, False)),
        (DifferenceKind.FILE_MISSING, at(3, 0), at(3, 8), (True, False, False)),
    ]
    [note] = [each for each in differences(outcomes) if each.is_note]
    assert (note.kind, note.index_first) == (DifferenceKind.END, at(1, 50))
    assert ranges(outcomes)[0] == SameRange(index_first=at(0, 0), index_last=at(0, 69))
    assert "ends before, at position" in str(differences(outcomes)[0])
    assert not any(each.is_same for each in cycles(outcomes))


def test_large_excerpts_are_compared_in_pieces(tmp_path: Path) -> None:
    large = [os.urandom(size) for size in (5, 2 * CHUNK_BYTES + 9, 3, CHUNK_BYTES + 1)]
    changed = [*large[:3], large[3][:-1] + bytes([large[3][-1] ^ 1])]
    for name, payloads in (("one", large), ("same", large), ("other", changed)):
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            queue.appender().append_at(ExcerptBatch.of(noon_index(), payloads))
    assert all(each.is_same for each in verify([tmp_path / "one", tmp_path / "same"]))
    [last] = differences(list(verify([tmp_path / "one", tmp_path / "other"])))
    assert (last.kind, last.byte_first) == (DifferenceKind.EXCERPT, CHUNK_BYTES)
    assert last.index_first == noon_index(sequence=3)


def test_a_part_is_compared_up_to_and_from_an_index(tmp_path: Path) -> None:
    fill(tmp_path / "source", NAME, {0: 300, 1: 20})
    fill(tmp_path / "sink", NAME, {0: 250})
    paths = [tmp_path / "source", tmp_path / "sink"]
    last = last_common_index(paths)
    assert last == noon_index(NAME, sequence=249)
    outcomes = list(verify(paths, ComparedSpan(index_last=last, with_digests=True)))
    assert all(each.is_same for each in outcomes)
    assert cycles(outcomes)[0].counts == (250, 250)
    span = ComparedSpan(
        index_first=noon_index(NAME, sequence=100), index_last=last, with_digests=True
    )
    part = list(verify(paths, span))
    assert cycles(part)[0].counts == (150, 150)
    assert cycles(part)[0].digests == cycles(outcomes)[0].digests  # of all before an index
    assert len(set(cycles(part)[0].digests)) == 1
    assert ranges(part)[0].index_first == noon_index(NAME, sequence=100)


def test_other_layouts_are_told_and_not_compared(tmp_path: Path) -> None:
    fill(tmp_path / "one", NAME, {0: 3})
    fill(tmp_path / "other", "FAST_HOURLY", {0: 3})
    [outcome] = verify([tmp_path / "one", tmp_path / "other"])
    assert isinstance(outcome, LayoutsDiffer)
    assert not outcome.is_same
    assert last_common_index([tmp_path / "one"]) == noon_index(NAME, sequence=2)


def test_what_cannot_be_read_is_told_besides(tmp_path: Path) -> None:
    written = fill(tmp_path / "one", NAME, {0: 100, 1: 10})
    shutil.copytree(tmp_path / "one", tmp_path / "cut")
    shutil.copytree(tmp_path / "one", tmp_path / "headless")
    file = noon_path(tmp_path / "cut", NAME)
    raw = file.read_bytes()
    file.write_bytes(raw[: raw.index(written[60][1]) + 2])
    noon_path(tmp_path / "headless", NAME).write_bytes(bytes(256) + raw[256:])
    outcomes = list(verify([tmp_path / "one", tmp_path / "cut", tmp_path / "headless"]))
    flaws = [each for each in outcomes if isinstance(each, Flaw) and not each.is_same]
    found = {(each.copy, each.finding.index) for each in flaws}
    assert found >= {(1, written[60][0]), (2, written[0][0])}
    assert all(each.copy for each in flaws)
    assert [each.present for each in differences(outcomes)] == [
        (True, True, False), (True, False, False),
    ]  # fmt: skip
    assert stored(ExcerptBatch.of(0, [b""])) == [(0, b"\x8f")]
