"""A task tells the queue that was planned with from another one at the same path."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.keptidentity import KeptIdentity, new_identity
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.read.chains import Chains
from cqrepl.spark.ranges import present
from cqrepl.spark.witness import Witness, check_witness, witness_of
from tests.support.samples import fill, noon_index, noon_path

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 70}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", ROLL, COUNTS)
    return tmp_path / "q"


def seen(path: Path) -> Witness:
    with Queue.open(path) as queue:
        return witness_of(queue, [(one.index_first, one.index_last) for one in present(queue)])


def check(path: Path, witness: Witness) -> None:
    with Queue.open(path) as queue:
        check_witness(queue, witness)


def identify(path: Path) -> None:
    KeptIdentity(path / "metadata.cq4t").replace(new_identity())


def note(path: Path) -> None:
    with Queue.open(path) as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(Index(noon_index(ROLL, ahead=2)))


def test_the_same_queue_whatever_is_appended(path: Path) -> None:
    witness = seen(path)
    check(path, witness)
    with Queue.open(path) as queue:
        queue.append(b"more", now_ms=(int(noon_index(ROLL, ahead=2)) >> 32) * 3_600_000)
        queue.append(b"next")
    note(path)
    identify(path)
    check(path, witness)
    assert len(witness.excerpts) == 2


@pytest.mark.parametrize(("ahead", "excerpt"), [(0, 0), (2, 69)])
def test_another_first_or_last_excerpt(path: Path, ahead: int, excerpt: int) -> None:
    witness = seen(path)
    index = noon_index(ROLL, ahead=ahead, sequence=excerpt)
    with Queue.open(path) as queue:
        payload = bytes(next(iter(queue.tailer(index))))
    store = noon_path(path, ROLL, ahead=ahead)
    data = store.read_bytes()
    at = data.rindex(payload) if excerpt else data.index(payload)
    store.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(QueueError, match="found another one at the same path: excerpt") as raised:
        check(path, witness)
    assert f"{index:#x}" in str(raised.value)
    assert str(path) in str(raised.value)


def test_another_identity(path: Path) -> None:
    copy = Path(shutil.copytree(path, path.with_name("copy")))
    identify(path)
    witness = seen(path)
    check(path, witness)
    with pytest.raises(QueueError, match="its identity is None"):
        check(copy, witness)
    identify(copy)
    with pytest.raises(QueueError, match="its identity is"):
        check(copy, witness)


def test_other_notes_of_a_closed_cycle(path: Path) -> None:
    """The ends are the same, something between them is not."""
    copy = Path(shutil.copytree(path, path.with_name("copy")))
    note(path)
    witness = seen(path)
    assert len(witness.closed) == 2
    with pytest.raises(QueueError, match=r"of closed cycle \d+ something else is noted"):
        check(copy, witness)
    note(copy)
    check(copy, replace(witness, files=()))
    cycle, chain = witness.closed[1]
    other = replace(witness, closed=(witness.closed[0], (cycle, bytes(reversed(chain)))))
    with pytest.raises(QueueError, match=f"of closed cycle {cycle}"):
        check(copy, other)


def test_a_copy_that_is_the_same_at_its_ends(path: Path) -> None:
    copy = Path(shutil.copytree(path, path.with_name("copy")))
    witness = seen(path)
    path.rename(path.with_name("away"))
    copy.rename(path)
    with pytest.raises(QueueError, match="is another file, or was written to since"):
        check(path, witness)
    shutil.rmtree(path)
    path.with_name("away").rename(path)
    check(path, witness)


def test_what_cannot_be_read_is_left_to_the_reading(path: Path) -> None:
    witness = seen(path)
    noon_path(path, ROLL, ahead=0).unlink()
    check(path, witness)
    noon_path(path, ROLL, ahead=2).write_bytes(b"")
    assert len(seen(path).excerpts) > 0
