"""Any single change to a copy of a queue is named with its place, or can be shown to be harmless.

The judge is a walk over the documents written from the format alone (`tests.support.damage`). Where
it finds other excerpts, `verify` names exactly those indexes, first the first, and the byte. Where
it finds the same, a change that `verify` says nothing of lies where no excerpt, and no mark
of one, can be: in gaps, in an application's meta-data, behind the end, or in the values and spare
room of the table store; and readers read what they read before.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cqrepl.queue import ExcerptBatch, Queue, QueueError
from cqrepl.queue.inspection.differences import (
    CycleDigests,
    DifferenceKind,
    Flaw,
    LayoutsDiffer,
    NamedDifference,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.findings import FilePart, FindingKind
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.quickcomparison import verify_quickly
from cqrepl.queue.inspection.verification import verify
from tests.property.damage_run import mutations
from tests.support.damage import META, TABLE, Document, Mutation, Sample, documents, samples
from tests.support.samples import layout, noon_index

EXAMPLES = int(os.environ.get("CQREPL_NAMED_DAMAGE", "60"))  # in each test
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = [
    "test4_secondly_overflow", "metadata_docs", "fast_hourly_gaps", "two_writers", "ours", "small",
]  # fmt: skip
# of a header: a changed number of the format is one that is not supported
UNREADABLE = (FindingKind.DAMAGE, FindingKind.UNFINISHED, FindingKind.UNSUPPORTED)
MISSING = (DifferenceKind.MISSING, DifferenceKind.FILE_MISSING)


@dataclass(frozen=True)
class Moved:
    """Bytes taken out or put in, or a file taken away: what `Mutation` has no kind for."""

    kind: str
    name: str
    position: int

    def apply(self, sample: Sample) -> dict[str, bytes]:
        files = dict(sample.files)
        data = files[self.name]
        position = self.position % len(data) & ~3
        if self.kind == "drop file":
            del files[self.name]
        elif self.kind == "delete":
            files[self.name] = data[:position] + data[position + 4 :]
        else:
            files[self.name] = data[:position] + b"\x05\0\0\0" + data[position:]
        return files


class Fixture:
    """The samples, each as it was, and a directory to damage."""

    def __init__(self, folder: Path) -> None:
        self.samples = {sample.name: sample for sample in samples(folder / "made")}
        self.firsts: dict[str, dict[str, int]] = {}  # of each store file the first index
        self.was: dict[str, list[tuple[int, bytes]]] = {}
        self.folder = folder
        for name, sample in self.samples.items():
            lay(self.original(name), sample.files)
            info = inspect_queue(self.original(name))
            self.firsts[name] = {file.path.name: file.index_first for file in info.files}
            self.was[name] = read(self.original(name))

    def original(self, name: str) -> Path:
        return self.folder / name

    @property
    def copy(self) -> Path:
        return self.folder / "copy"


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    folder = tmp_path_factory.mktemp("named")
    (folder / "made").mkdir()
    return Fixture(folder)


def lay(path: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)


def read(path: Path) -> list[tuple[int, bytes]]:
    with Queue.open(path) as queue:
        return [(excerpt.index, bytes(excerpt)) for excerpt in queue.tailer()]


def held(data: bytes | None) -> list[tuple[Document, bytes]]:
    """The excerpts of a store file by the letter of the format."""
    walked = [each for each in documents(data or b"") if each.is_excerpt]
    return [(each, (data or b"")[each.position + 4 : each.end]) for each in walked]


# ---------------------------------------------------------------- what is checked


def check(fixture: Fixture, name: str, files: dict[str, bytes]) -> None:
    """Compares a damaged copy with the original, and itself alone."""
    lay(fixture.copy, files)
    paths = [fixture.original(name), fixture.copy]
    sample = fixture.samples[name]
    for compare in (verify_quickly, verify):
        refused(compare, [fixture.copy])
        error, outcomes = refused(compare, paths)
    if error is not None:  # a roll cycle that is none
        assert error.path == fixture.copy / TABLE
        assert files.get(TABLE) != sample.files.get(TABLE)
        return
    if any(isinstance(each, LayoutsDiffer) for each in outcomes):
        assert files.get(TABLE) != sample.files.get(TABLE)
        return
    assert all(each.copy == 1 for each in outcomes if isinstance(each, Flaw))
    if is_unusable(outcomes):
        return
    for file, first in fixture.firsts[name].items():
        check_file(file, first, sample.files[file], files.get(file), outcomes)
    told = [each for each in outcomes if not isinstance(each, SameRange | CycleDigests)]
    if not told:
        check_harmless(fixture, name, files)


def refused(
    compare: Callable[[list[Path]], Iterator[Outcome]], paths: list[Path]
) -> tuple[QueueError | None, list[Outcome]]:
    """The outcomes of a comparison; the error where one of the paths is no queue."""
    try:
        return None, list(compare(paths))
    except QueueError as error:
        return error, []


def is_unusable(outcomes: list[Outcome]) -> bool:
    """True when the table store is told to be damaged, and nothing else could be looked at."""
    return any(
        isinstance(each, Flaw) and each.finding.text.endswith("nothing of this queue was compared")
        for each in outcomes
    )


def check_file(
    file: str, first: int, was: bytes, now: bytes | None, outcomes: list[Outcome]
) -> None:
    """Checks that all differences in one store file are named, and nothing else."""
    mine, theirs = held(was), held(now)
    if is_headless(file, outcomes):
        theirs = []
    differ = [
        nth
        for nth in range(max(len(mine), len(theirs)))
        if nth >= min(len(mine), len(theirs)) or mine[nth][1] != theirs[nth][1]
    ]
    last = first + max(len(mine), len(theirs))
    named = [
        each
        for each in outcomes
        if isinstance(each, NamedDifference)
        and first <= each.index_first < last
        and each.kind is not DifferenceKind.END
    ]
    covered = [
        index - first for each in named for index in range(each.index_first, each.index_last + 1)
    ]
    assert covered == differ, file
    if named:
        check_first(named[0], mine, theirs, differ[0])


def is_headless(file: str, outcomes: list[Outcome]) -> bool:
    """True when the copy's file is told to have no header that can be read."""
    return any(
        isinstance(each, Flaw)
        and each.finding.path.name == file
        and each.finding.position == 0
        and each.finding.kind in UNREADABLE
        for each in outcomes
    )


def check_first(
    found: NamedDifference,
    mine: list[tuple[Document, bytes]],
    theirs: list[tuple[Document, bytes]],
    nth: int,
) -> None:
    """Kind, byte and positions of the first difference."""
    is_here, is_there = nth < len(mine), nth < len(theirs)
    assert found.present == (is_here, is_there)
    assert (found.kind in MISSING) is not (is_here and is_there)
    if not (is_here and is_there):
        return
    (one, left), (other, right) = mine[nth], theirs[nth]
    pairs = zip(left, right, strict=False)
    byte = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
    assert found.byte_first == byte
    assert found.lengths == (len(left), len(right))
    sides = [side for side in found.sides if side is not None]
    assert [side.position for side in sides] == [one.position, other.position]
    for side, payload in zip(sides, (left, right), strict=True):
        assert side.part == payload[side.part_first : side.part_first + len(side.part)]
    if found.kind is DifferenceKind.EXCERPT:
        assert len(left) == len(right)
    if found.kind is DifferenceKind.LENGTH:
        assert len(left) != len(right)


def check_harmless(fixture: Fixture, name: str, files: dict[str, bytes]) -> None:
    """Nothing was told: then readers read the same, and no byte that counts has changed."""
    assert read(fixture.copy) == fixture.was[name]
    sample = fixture.samples[name]
    for file in sample.stores:
        was, now = sample.files[file], files[file]
        if was == now:
            continue
        size = max(len(was), len(now))
        pairs = zip(was.ljust(size, b"\0"), now.ljust(size, b"\0"), strict=True)
        changed = [at for at, (a, b) in enumerate(pairs) if a != b]
        wrong = [at for at in changed if not is_spare(sample, file, at)]
        assert not wrong, f"{name}: {file} at {wrong[:9]}: nothing is said of it"


def is_spare(sample: Sample, file: str, position: int) -> bool:
    """True for a byte of a store file that no excerpt, page or mark depends on."""
    data, walked = sample.files[file], sample.walked[file]
    document = next((each for each in walked if each.position <= position < each.end), None)
    if document is None:  # a gap, the decoration of the end mark, or behind it
        end = (walked[-1].end + 3) & ~3
        return position < end or position >= end + 4
    at = position - document.position
    body = data[document.position + 4 : document.end]
    if not document.word & META or document.position == 0:
        return False
    if b"index" not in body[:8]:
        return True  # an application's meta-data
    if at < 4:
        return False
    array = body.index(b"\x8d") + 1 + 4
    # padding before the array; and a page may say that more of it is used than is
    return at < array - 1 or array + 8 <= at < array + 16


# ---------------------------------------------------------------- the changes


@pytest.mark.parametrize(
    "name",
    [
        "test4_secondly_overflow",
        "metadata_docs",
        "fast_hourly_gaps",
        "two_writers",
        "ours",
        "small",
    ],
)
@SETTINGS
@given(mutation=mutations())
@example(mutation=Mutation("headers", "swap files", 1))
@example(mutation=Mutation("headers", "swap files", 2))
def test_any_damage_is_named(fixture: Fixture, name: str, mutation: Mutation) -> None:
    check(fixture, name, mutation.apply(fixture.samples[name]))


@SETTINGS
@given(data=st.data())
def test_any_flipped_byte_is_named(fixture: Fixture, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fixture.samples)))
    files = dict(fixture.samples[name].files)
    file = data.draw(st.sampled_from(sorted(files)))
    image = bytearray(files[file])
    used = len(files[file].rstrip(b"\0")) + 64
    position = data.draw(st.integers(0, min(used, len(image)) - 1))
    image[position] ^= data.draw(st.integers(1, 255))
    files[file] = bytes(image)
    check(fixture, name, files)


@SETTINGS
@given(data=st.data())
def test_what_is_taken_out_or_put_in_is_named(fixture: Fixture, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fixture.samples)))
    sample = fixture.samples[name]
    file = data.draw(st.sampled_from(sample.stores))
    used = len(sample.files[file].rstrip(b"\0"))
    kind = data.draw(st.sampled_from(["drop file", "delete", "insert"]))
    check(fixture, name, Moved(kind, file, data.draw(st.integers(0, used))).apply(sample))


PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), min_size=3, max_size=90)


@SETTINGS
@given(payloads=PAYLOADS, data=st.data())
def test_excerpts_moved_by_a_writer_are_named(
    tmp_path: Path, payloads: list[bytes], data: st.DataObject
) -> None:
    """Both queues are well-formed: one was written from other excerpts."""
    changed = list(payloads)
    nth = data.draw(st.integers(0, len(payloads) - 2))
    kind = data.draw(st.sampled_from(["dropped", "inserted", "exchanged", "altered"]))
    if kind == "dropped":
        del changed[nth]
    elif kind == "inserted":
        changed.insert(nth, b"another one, that is not among them: longer")
    elif kind == "exchanged":
        other = data.draw(st.integers(nth + 1, len(payloads) - 1))
        changed[nth], changed[other] = changed[other], changed[nth]
    else:
        changed[nth] = b"another one, that is not among them: longer"
    images = []
    for name, each in (("one", payloads), ("other", changed)):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            queue.appender().append_at(ExcerptBatch.of(noon_index(), each))
        (file,) = (tmp_path / name).glob("*.cq4")
        images.append(file.read_bytes())
    outcomes = list(verify([tmp_path / "one", tmp_path / "other"]))
    check_file("", noon_index(), images[0], images[1], outcomes)
    assert not [each for each in outcomes if isinstance(each, Flaw)]
    named = [each for each in outcomes if isinstance(each, NamedDifference)]
    if named and len(set(payloads)) == len(payloads):
        assert named[0].kind is {
            "dropped": DifferenceKind.DROPPED, "inserted": DifferenceKind.INSERTED,
            "exchanged": DifferenceKind.EXCHANGED, "altered": named[0].kind,
        }[kind]  # fmt: skip


def test_a_table_store_names_its_damage(fixture: Fixture) -> None:
    """`verify` tells of each changed byte of the header, but not of the source's id."""
    sample = fixture.samples["small"]
    header = documents(sample.files[TABLE])[0]
    for position in range(header.end):
        image = bytearray(sample.files[TABLE])
        image[position] ^= 0x20
        lay(fixture.copy, sample.files | {TABLE: bytes(image)})
        error, outcomes = refused(verify, [fixture.original("small"), fixture.copy])
        if error is not None:
            assert error.path == fixture.copy / TABLE
            continue
        told = [each for each in outcomes if not isinstance(each, SameRange | CycleDigests)]
        parts = {each.finding.part for each in told if isinstance(each, Flaw)}
        is_told = FilePart.TABLE in parts or any(isinstance(each, LayoutsDiffer) for each in told)
        # the last byte is the source's id, which copies need not share
        assert is_told or position == header.end - 1, position
