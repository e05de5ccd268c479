"""The SHA-256 of closed store files: how it is made, noted and held against them."""

import hashlib
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import RECORD_BYTES, ClosedCycle, ClosedCycles
from cqrepl.queue.format.index import Cycle, Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles, is_as_noted
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.read import closeddigest
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.closeddigest import ExcerptsDigest
from cqrepl.replicator.disk import queueaudit
from cqrepl.replicator.disk.queueaudit import QueueAudit
from tests.support.samples import fill, flip_byte, noon_index, noon_path

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 7, 3: 2}
ALL = Index(noon_index(ROLL, ahead=3))


def plain(payloads: list[bytes]) -> bytes:
    """The digest of payloads, as the head of the module gives it."""
    lengths = b"".join(len(each).to_bytes(8, "little") for each in payloads)
    parts = hashlib.sha256(lengths).digest() + hashlib.sha256(b"".join(payloads)).digest()
    return hashlib.sha256(parts).digest()


def contents(path: Path, ahead: int) -> list[bytes]:
    """The payloads of a cycle."""
    with Queue.open(path) as queue:
        tailer = queue.tailer(noon_index(ROLL, ahead=ahead))
        batch = tailer.next_batch(count_max=COUNTS[ahead], bytes_max=1 << 20)
        assert batch is not None
        return [bytes(payload) for _, payload in batch]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a queue whose closed cycles have been noted, and no more."""
    fill(tmp_path / "q", ROLL, COUNTS, per_batch=500)
    with Queue.open(tmp_path / "q") as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(ALL)
    return tmp_path / "q"


def reckon(path: Path) -> None:
    """Makes the digests of all closed cycles, as a source or sink does with time."""
    with Queue.open(path) as queue:
        audit = QueueAudit(Chains(queue.cycles), None)
        while queue.cycles.closed.load() and not is_complete(path):
            audit.digest(queue.cycles)


def is_complete(path: Path) -> bool:
    return all(each.sha256 for each in ClosedCycles(path).load().values())


@given(
    st.lists(st.binary(max_size=20), max_size=30).flatmap(
        lambda each: st.tuples(st.just(each), st.integers(0, len(each)))
    )
)
def test_how_it_is_made(parts: tuple[list[bytes], int]) -> None:
    """The digest is the same however the excerpts are cut into batches."""
    payloads, cut = parts
    digest = ExcerptsDigest()
    for some in (payloads[:cut], payloads[cut:]):
        digest.take(array("q", map(len, some)), b"".join(some))
    assert digest.value() == plain(payloads)


@pytest.mark.parametrize("batch_bytes", [1, 1000, 1 << 20])
def test_what_is_noted(path: Path, batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeddigest, "BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(queueaudit, "DIGEST_SECONDS", 0.0)
    reckon(path)
    noted = ClosedCycles(path).load()
    assert len(noted) == 3
    for ahead, (_, record) in enumerate(sorted(noted.items())):
        assert record.sha256 == plain(contents(path, ahead))
        assert record.excerpts == COUNTS[ahead]
    assert ClosedCycles(path).path.stat().st_size == 9 * RECORD_BYTES


def test_the_layout_of_its_records(path: Path) -> None:
    reckon(path)
    data = ClosedCycles(path).path.read_bytes()
    rows = [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]
    first, second = [row for row in rows if row[8:16] == rows[0][8:16]][1:]
    assert (first[:8], second[:8]) == (b"cqsha-lo", b"cqsha-hi")
    assert int.from_bytes(first[16:24], "little") == 5
    assert first[24:40] + second[24:40] == plain(contents(path, 0))


def test_a_half_counts_not(path: Path) -> None:
    """A kill or a power cut comes between the two records: the digest is made again."""
    before = ClosedCycles(path).path.stat().st_size
    reckon(path)
    with ClosedCycles(path).path.open("r+b") as file:
        file.truncate(before + RECORD_BYTES)
    assert not any(each.sha256 for each in ClosedCycles(path).load().values())
    reckon(path)
    assert is_complete(path)


def test_a_cycle_that_is_noted_anew_loses_it(path: Path) -> None:
    reckon(path)
    closed = ClosedCycles(path)
    record = min(closed.load().values())
    closed.remember(ClosedCycle(record.cycle, 4, record.chain))
    closed.note_below(Cycle(record.cycle + 1))
    assert closed.load()[record.cycle].sha256 == b""


def test_it_stays_when_the_file_is_written_anew(path: Path) -> None:
    reckon(path)
    closed = ClosedCycles(path)
    first, second, _ = sorted(closed.load())
    closed.forget([first])
    kept = ClosedCycles(path).load()
    assert sorted(kept) == sorted(closed.load())
    assert kept[second].sha256 == plain(contents(path, 1))


def test_what_retention_has_taken_is_passed_over(path: Path) -> None:
    noon_path(path, ROLL, ahead=0).unlink()
    with Queue.open(path) as queue:
        audit = QueueAudit(Chains(queue.cycles), None)
        for _ in range(3):
            queue.cycles.closed.load()
            audit.digest(queue.cycles)
    assert [bool(each.sha256) for _, each in sorted(ClosedCycles(path).load().items())] == [
        False,
        True,
        True,
    ]


def test_what_was_altered_since_is_not_noted(path: Path) -> None:
    payload = contents(path, 0)[1]
    flip_byte(noon_path(path, ROLL), payload, 1)
    with Queue.open(path) as queue:
        queue.cycles.closed.load()
        audit = QueueAudit(Chains(queue.cycles), None)
        with pytest.raises(QueueDamaged, match="at least one altered"):
            audit.digest(queue.cycles)


def forge(path: Path) -> None:
    """Notes another SHA-256 of the first cycle, as if a forger had made two files of one chain."""
    closed = ClosedCycles(path)
    record = min(closed.load().values())
    closed.note_digest(record._replace(sha256=bytes(32)))


def test_a_file_that_only_the_digest_tells_from_another(path: Path) -> None:
    reckon(path)
    with Queue.open(path) as queue:
        record = min(queue.cycles.closed.load().values())
        assert is_as_noted(queue.cycles, record)
        forge(path)
        record = min(queue.cycles.closed.load().values())
        assert not is_as_noted(queue.cycles, record)


@pytest.mark.parametrize("is_forged", [False, True])
def test_a_round_over_all_files_holds_them_against_it(path: Path, is_forged: bool) -> None:
    reckon(path)
    if is_forged:
        forge(path)
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        audit = QueueAudit(chains, None)

        def round_over_all() -> int:
            read = 0
            while (count := audit.scrub(queue.cycles)) is not None:
                read += count
            return read

        if is_forged:
            with pytest.raises(QueueDamaged, match="at least one altered"):
                round_over_all()
        else:
            held = sum(len(payload) for ahead in (0, 1, 2) for payload in contents(path, ahead))
            assert round_over_all() >= held


def test_an_inspection_shows_it(path: Path) -> None:
    reckon(path)
    shown = [file.sha256 for file in inspect_queue(path, deep=True).files]
    assert shown[:3] == [plain(contents(path, ahead)).hex() for ahead in (0, 1, 2)]
    assert shown[3] is None
    assert not inspect_queue(path, deep=True).is_damaged
    forge(path)
    assert not inspect_queue(path).is_damaged
    (finding,) = [
        each for each in inspect_queue(path, deep=True).findings if "altered" in each.text
    ]
    assert finding.path == noon_path(path, ROLL)
