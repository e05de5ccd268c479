"""After any damage to a file: an error of ours or the right excerpts, and never anything else.

A flipped bit inside an excerpt or in its length cannot be told from a right one, as the format has
no checksums; there the property is only that nothing but `QueueError` comes, that reading ends, and
that every excerpt given lies within the file.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cqrepl.queue import Queue, QueueError
from tests.support.samples import Excerpts, fill, noon_path, read, rest_of

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NAME = "TEST4_SECONDLY"
COUNTS = {0: 150, 2: 40}
DATA_START = 0x310  # behind store header, index2index and the first index page
PAGES = (200, 0x1F0)  # their header words decide where the walk goes on, like those of excerpts

flips = st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 7)), min_size=1, max_size=8)


def is_marked(position: int) -> bool:
    """True for a byte that is no header word."""
    return not any(page <= position < page + 4 for page in PAGES)


class Sample:
    """A queue that is put right again after each example."""

    def __init__(self, path: Path) -> None:
        self.written: Excerpts = fill(path, NAME, COUNTS)
        self.path = path
        self.files = {file: file.read_bytes().rstrip(b"\0") + bytes(512) for file in path.iterdir()}
        self.first = noon_path(path, NAME)
        self.restore()

    def restore(self) -> None:
        for file in self.path.iterdir():
            file.unlink()
        for file, data in self.files.items():
            file.write_bytes(data)

    def flip(self, file: Path, bits: list[tuple[int, int]]) -> None:
        raw = bytearray(self.files[file])
        for at, bit in bits:
            raw[at % len(raw)] ^= 1 << bit
        file.write_bytes(raw)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("damage") / "queue")


def read_or_error(path: Path, index: int = 0) -> Excerpts | None:
    try:
        return read(path, index)
    except QueueError:
        return None


@SETTINGS
@given(bits=flips, start=st.integers(0, 149))
def test_flipped_bits_give_errors_of_ours_or_excerpts(
    sample: Sample, bits: list[tuple[int, int]], start: int
) -> None:
    sample.restore()
    sample.flip(sample.first, bits)
    limit = len(sample.files[sample.first])
    for index in (0, sample.written[start][0]):
        found = read_or_error(sample.path, index)
        assert found is None or sum(len(data) for _, data in found) <= 2 * limit


@SETTINGS
@given(
    bits=st.lists(
        st.tuples(st.integers(4, DATA_START - 1).filter(is_marked), st.integers(0, 7)),
        min_size=1,
        max_size=4,
    ),
    start=st.integers(0, 149),
)
def test_damage_outside_the_excerpts_never_changes_one(
    sample: Sample, bits: list[tuple[int, int]], start: int
) -> None:
    """Store header and index pages may be wrong: then it takes longer, or it is an error."""
    sample.restore()
    sample.flip(sample.first, bits)
    for nth in (0, start):
        found = read_or_error(sample.path, sample.written[nth][0])
        assert found is None or found == sample.written[nth:]


@SETTINGS
@given(bits=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 7)), min_size=1, max_size=4))
def test_a_damaged_table_store_is_an_error_or_does_not_matter(
    sample: Sample, bits: list[tuple[int, int]]
) -> None:
    sample.restore()
    sample.flip(sample.path / "metadata.cq4t", bits)
    found = read_or_error(sample.path)
    # an epoch is believed, and moves indexes: the excerpts are the same
    assert found is None or [data for _, data in found] == [data for _, data in sample.written]


@SETTINGS
@given(size=st.integers(0, 4000))
def test_a_cut_file_gives_a_prefix_or_an_error(sample: Sample, size: int) -> None:
    sample.restore()
    sample.first.write_bytes(sample.files[sample.first][:size])
    found = read_or_error(sample.path)
    assert found is None or found == sample.written[: len(found)]


@SETTINGS
@given(bits=flips)
def test_appending_to_a_damaged_file_is_an_error_or_works(
    sample: Sample, bits: list[tuple[int, int]]
) -> None:
    """The excerpts before stay as they read before; nothing but errors of ours comes."""
    sample.restore()
    last = noon_path(sample.path, NAME, ahead=2)
    sample.flip(last, bits)
    before = read_or_error(sample.path)
    try:
        with Queue.open_for_append(sample.path) as queue:
            appender = queue.appender()
            index = appender.append([b"one", b"two"], 0)
            after = rest_of(queue.tailer())
    except QueueError:
        return
    assert before is None or after[: len(before)] == before
    assert before is None or len(before) == len(after) or after[-1] == (index, b"two")
