"""Differences between copies, or within one copy, have the right name and place."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.kernel.chain import has_chains
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME, RECORD_BYTES, ClosedCycle
from cqrepl.queue.format.index import Index, Sequence, cycle_of, index_of
from cqrepl.queue.inspection.differences import (
    DifferenceKind,
    Flaw,
    NamedDifference,
    NotRead,
    OneFile,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.findings import FilePart
from cqrepl.queue.inspection.quickcomparison import verify_quickly
from cqrepl.queue.inspection.verification import verify
from cqrepl.queue.read.chains import Chains
from tests.support.samples import fill, flip_byte, layout, noon_index, noon_path
from tests.support.tears import tear

NAME = "FAST_DAILY"
PAYLOADS = [b"excerpt number %d, with some more" % n for n in range(200)]

needs_chains = pytest.mark.skipif(not has_chains(), reason="no library for hashes")


def made(path: Path, payloads: list[bytes], *, ahead: int = 0) -> Path:
    """A queue with these excerpts in one cycle."""
    with Queue.open_for_append(path, create=layout()) as queue:
        batch = ExcerptBatch.of(noon_index(NAME, ahead=ahead), payloads)
        queue.appender().append_at(batch)
    return path


def named(outcomes: list[Outcome]) -> list[NamedDifference]:
    return [each for each in outcomes if isinstance(each, NamedDifference) and not each.is_note]


def damage(outcomes: list[Outcome]) -> list[Flaw]:
    return [each for each in outcomes if isinstance(each, Flaw) and not each.is_same]


def compared(one: Path, *others: Path) -> NamedDifference:
    [found] = named(list(verify([one, *others])))
    return found


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("nth", [0, 77, 150])
def test_dropped_and_inserted_excerpts(tmp_path: Path, nth: int, count: int) -> None:
    one = made(tmp_path / "one", PAYLOADS)
    other = made(tmp_path / "other", PAYLOADS[:nth] + PAYLOADS[nth + count :])
    dropped, missing = named(list(verify([one, other])))
    assert dropped.kind is DifferenceKind.DROPPED
    assert (dropped.index_first, dropped.index_last) == (
        noon_index(sequence=nth), noon_index(sequence=199 - count),
    )  # fmt: skip
    assert f"{other} lacks {count} excerpt" in dropped.text
    assert (missing.kind, missing.present) == (DifferenceKind.MISSING, (True, False))
    inserted, _ = named(list(verify([other, one])))
    assert inserted.kind is DifferenceKind.INSERTED
    assert inserted.index_first == noon_index(sequence=nth)
    assert f"{other} lacks {count} excerpt" in inserted.text


def test_a_torn_excerpt(tmp_path: Path) -> None:
    payloads = [*PAYLOADS[:9], b"x" * 4000, *PAYLOADS[9:]]
    one = made(tmp_path / "one", payloads)
    shutil.copytree(one, tmp_path / "torn")
    tear(tmp_path / "torn", noon_index(sequence=9), 2, 4)
    for pair in ((one, tmp_path / "torn"), (tmp_path / "torn", one)):
        found = compared(*pair)
        assert (found.kind, found.index_first) == (DifferenceKind.TORN, noon_index(sequence=9))
        assert found.lengths == (4000, 4000)


def test_exchanged_files(tmp_path: Path) -> None:
    one = tmp_path / "one"
    fill(one, NAME, {0: 40, 1: 60})
    shutil.copytree(one, tmp_path / "other")
    first, second = (noon_path(tmp_path / "other", ahead=ahead) for ahead in (0, 1))
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    found = named(list(verify([one, tmp_path / "other"])))
    kinds = [each.kind for each in found]
    assert kinds[0] is DifferenceKind.FILE_EXCHANGED
    assert kinds.count(DifferenceKind.FILE_EXCHANGED) == 2
    assert "of another cycle" in found[0].text


def test_a_cycle_that_is_open_in_one_copy(tmp_path: Path) -> None:
    one = tmp_path / "one"
    fill(one, NAME, {0: 40, 1: 60})
    shutil.copytree(one, tmp_path / "other")
    store = noon_path(tmp_path / "other")
    image = bytearray(store.read_bytes())
    at = image.index(b"\0\0\0\xc0\xc3EOF")
    image[at : at + 8] = bytes(8)
    store.write_bytes(image)
    found = compared(one, tmp_path / "other")
    assert (found.kind, found.index_first) == (DifferenceKind.END, noon_index(sequence=40))


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_copies_that_share_a_file_prove_nothing(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    one = tmp_path / "one"
    fill(one, NAME, {0: 40, 1: 60})
    shutil.copytree(one, tmp_path / "other")
    noon_path(tmp_path / "other").unlink()
    link(noon_path(one), noon_path(tmp_path / "other"))
    [found] = [each for each in verify([one, tmp_path / "other"]) if isinstance(each, OneFile)]
    assert found.paths == (noon_path(one), noon_path(tmp_path / "other"))
    assert not found.is_same


def test_a_directory_and_itself_prove_nothing(tmp_path: Path) -> None:
    one = made(tmp_path / "one", PAYLOADS)
    (tmp_path / "again").symlink_to(one)
    for outcomes in (verify, verify_quickly):
        [found] = outcomes([one, tmp_path / "again"])
        assert isinstance(found, OneFile)
        assert not found.is_same


# ---------------------------------------------------------------- side files


def watched(path: Path) -> Path:
    """A queue whose closed cycles and chains are noted beside it, as replication does."""
    fill(path, NAME, {0: 400, 1: 300, 2: 20})
    with Queue.open(path) as queue:
        shift = queue.cycles.shift
        chains = Chains(queue.cycles)
        for ahead, count in ((0, 400), (1, 300)):
            cycle = cycle_of(noon_index(ahead=ahead), shift)
            end = index_of(cycle, Sequence(count), shift)
            queue.cycles.closed.remember(ClosedCycle(cycle, count, chains.at(end)))
        last = cycle_of(noon_index(ahead=2), shift)
        queue.cycles.closed.note_below(last)
        chains.at(index_of(last, Sequence(20), shift))
        chains.save(index_of(last, Sequence(20), shift))
    return path


def payload_at(path: Path, index: Index) -> bytes:
    with Queue.open(path) as queue:
        return bytes(next(iter(queue.tailer(index))))


@needs_chains
def test_one_queue_alone_is_held_against_its_side_files(tmp_path: Path) -> None:
    one = watched(tmp_path / "one")
    assert all(each.is_same for each in verify([one]))
    for ahead, sequence in ((0, 200), (2, 4)):
        index = noon_index(ahead=ahead, sequence=sequence)
        flip_byte(noon_path(one, ahead=ahead), payload_at(one, index), 1)
    found = damage(list(verify([one])))
    assert [each.finding.path for each in found] == [noon_path(one), noon_path(one, ahead=2)]
    for each, sequence in zip(found, (200, 4), strict=True):
        assert each.finding.index is not None
        assert each.finding.index & 0xFFFFFFFF <= sequence
        assert "is not what it was when it was appended" in each.finding.text


@needs_chains
def test_of_two_that_differ_the_altered_one_is_named(tmp_path: Path) -> None:
    one = watched(tmp_path / "one")
    shutil.copytree(one, tmp_path / "other")
    flip_byte(noon_path(one, ahead=1), payload_at(one, noon_index(ahead=1, sequence=7)), 2)
    outcomes = list(verify([one, tmp_path / "other"]))
    [found] = named(outcomes)
    assert (found.kind, found.index_first) == (
        DifferenceKind.EXCERPT, noon_index(ahead=1, sequence=7),
    )  # fmt: skip
    assert {each.copy for each in damage(outcomes)} == {0}


@needs_chains
def test_an_older_file_is_named(tmp_path: Path) -> None:
    one = watched(tmp_path / "one")
    fill(tmp_path / "older", NAME, {0: 390, 1: 300})
    shutil.copyfile(noon_path(tmp_path / "older"), noon_path(one))
    texts = [str(each) for each in damage(list(verify([one])))]
    assert any("expected 400 excerpts, found 390" in text for text in texts), texts


@needs_chains
def test_a_damaged_side_file_is_told(tmp_path: Path) -> None:
    one = watched(tmp_path / "one")
    side = noon_path(one, ahead=2).with_suffix(".cqchain")
    side.write_bytes(side.read_bytes()[:-3])
    closed = one / CLOSED_FILE_NAME
    data = bytearray(closed.read_bytes())
    data[RECORD_BYTES + 20] ^= 1
    closed.write_bytes(data)
    outcomes = list(verify([one]))
    notes = [each.finding for each in outcomes if isinstance(each, Flaw)]
    assert {(note.path, note.position) for note in notes} == {(side, 0), (closed, RECORD_BYTES)}
    assert {note.part for note in notes} == {FilePart.SIDE_FILE}
    assert all(each.is_same for each in outcomes)


# ---------------------------------------------------------------- quick


@needs_chains
def test_a_quick_comparison_says_what_it_did_not_read(tmp_path: Path) -> None:
    one, other = watched(tmp_path / "one"), watched(tmp_path / "other")
    outcomes = list(verify_quickly([one, other]))
    assert all(each.is_same for each in outcomes)
    same = [each for each in outcomes if isinstance(each, SameRange)]
    assert sum(each.index_last - each.index_first + 1 for each in same) == 720
    store = noon_path(other)
    os.utime(store)  # something may have been written into it: the side file tells nothing
    outcomes = list(verify_quickly([one, other]))
    [left] = [each for each in outcomes if isinstance(each, NotRead)]
    assert (left.index_first, left.index_last) == (noon_index(), noon_index(sequence=399))
    assert str(other) in left.text


@needs_chains
def test_a_quick_comparison_finds_other_chains(tmp_path: Path) -> None:
    one = watched(tmp_path / "one")
    other = tmp_path / "other"
    with Queue.open_for_append(other, create=layout()) as queue:
        changed = [b"other" for _ in range(400)]
        queue.appender().append_at(ExcerptBatch.of(noon_index(), changed))
        end = noon_index(sequence=400)
        chains = Chains(queue.cycles)
        chains.at(end)
        chains.save(end)
    found = named(list(verify_quickly([one, other])))
    assert [each.kind for each in found] == [
        DifferenceKind.CHAIN, DifferenceKind.FILE_MISSING, DifferenceKind.FILE_MISSING,
    ]  # fmt: skip
    assert (found[0].index_first, found[0].index_last) == (noon_index(), noon_index(sequence=399))


def test_a_quick_comparison_counts(tmp_path: Path) -> None:
    fill(tmp_path / "one", NAME, {0: 40, 1: 60})
    fill(tmp_path / "other", NAME, {0: 40, 1: 55})
    outcomes = list(verify_quickly([tmp_path / "one", tmp_path / "other"]))
    [found] = named(outcomes)
    assert (found.kind, found.index_first, found.index_last) == (
        DifferenceKind.MISSING, noon_index(ahead=1, sequence=55),
        noon_index(ahead=1, sequence=59),
    )  # fmt: skip
    left = [each for each in outcomes if isinstance(each, NotRead)]
    assert sum(each.index_last - each.index_first + 1 for each in left) == 95
