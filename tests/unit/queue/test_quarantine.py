"""A tail is taken off a queue: nothing of it is lost, and the queue goes on before it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cqrepl.queue import IndexGap, Queue
from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.queue.files.cutreports import REPORT_NAME
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.format.index import INDEX_MAX, Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.quarantine import plan_quarantine, quarantine
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.count import nth_last_index
from cqrepl.queue.read.registration import Readers
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, read

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 7, 4: 2}


def at(ahead: int, sequence: int = 0) -> Index:
    return noon_index(ROLL, ahead=ahead, sequence=sequence)


CUTS = [at(0), at(0, 1), at(0, 5), at(1), at(1, 299), at(1, 300), at(2, 3), at(3), at(4), at(4, 1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q"


@pytest.fixture
def written(path: Path) -> Excerpts:
    return fill(path, ROLL, COUNTS)


def parts(written: Excerpts, cut: int) -> tuple[Excerpts, Excerpts]:
    return [e for e in written if e[0] < cut], [e for e in written if e[0] >= cut]


@pytest.mark.parametrize("cut", CUTS, ids=hex)
def test_before_and_behind_the_cut(path: Path, written: Excerpts, cut: Index) -> None:
    kept, gone = parts(written, cut)
    planned = plan_quarantine(path, cut)
    assert not planned.folder.exists()
    assert read(path) == written
    done = quarantine(path, cut)
    assert done == planned
    assert done.excerpts == len(gone)
    assert read(path) == kept
    assert read(done.folder) == gone
    with Queue.open(done.folder) as aside:
        assert aside.count() == len(gone)
        assert aside.count(gone[0][0] - 1, gone[0][0]) == 1
        assert aside.first_index() == gone[0][0]
        assert aside.last_index() == gone[-1][0]
        assert [each.index for each in aside.backward()] == [index for index, _ in reversed(gone)]
        assert nth_last_index(aside.cycles, len(gone)) == gone[0][0]
        assert nth_last_index(aside.cycles, len(gone) + 1) == gone[0][0]
        assert next(iter(aside.named_tailer("audit"))).index == gone[0][0]
        assert list(aside.read_columns(0, INDEX_MAX).indexes) == [index for index, _ in gone]
    aside_info = inspect_queue(done.folder, deep=True)
    assert not aside_info.findings
    assert (aside_info.count, aside_info.first_index) == (len(gone), gone[0][0])
    assert not inspect_queue(path, deep=True).findings
    with Queue.open(path) as queue:
        last = kept[-1][0] if kept else -1
        assert queue.next_index() == done.end == last + 1


@pytest.mark.parametrize("cut", CUTS, ids=hex)
def test_the_queue_takes_what_follows(path: Path, written: Excerpts, cut: Index) -> None:
    """The same indexes are free again, as for excerpts from the queue's source."""
    original = path.with_name("original")
    shutil.copytree(path, original)
    gone = parts(written, cut)[1]
    quarantine(path, cut)
    with Queue.open(original) as source, Queue.open_for_append(path) as queue:
        appender, tailer = queue.appender(), source.tailer(gone[0][0])
        while (batch := tailer.next_batch()) is not None:
            appender.append_at(batch)
    assert read(path) == written
    assert not inspect_queue(path, deep=True).findings


def test_an_application_goes_on_behind_the_cut(path: Path, written: Excerpts) -> None:
    quarantine(path, at(1, 7))
    with Queue.open(path) as queue:
        assert queue.append(b"new", now_ms=NOON_MS + 3_600_000) == at(1, 7)
    assert read(path) == [*parts(written, at(1, 7))[0], (at(1, 7), b"new")]


def test_everything(path: Path, written: Excerpts) -> None:
    done = quarantine(path, None)
    assert read(path) == []
    assert read(done.folder) == written
    with Queue.open(path) as queue:
        assert queue.layout == layout(ROLL)
        assert queue.append(b"anew", now_ms=NOON_MS) == at(0)


def test_the_report(path: Path, written: Excerpts) -> None:
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(2, MarkLevel.SENT, at(2, 4))
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, at(2, 3))
        queue.host_marks.raise_to(3, MarkLevel.ACKNOWLEDGED, at(1, 3))
        chain = Chains(queue.cycles).at(at(2, 7)).hex()
    done = quarantine(path, at(2, 3))
    report = json.loads((done.folder / REPORT_NAME).read_text())
    assert report["excerpts"] == 6
    assert report["cycles"][0] == {
        "file": done.cycles[0].path.name,
        "first": f"0x{at(2, 3):x}",
        "last": f"0x{at(2, 6):x}",
        "excerpts": 4,
        "kept": 3,
        "chain": chain,
    }
    assert report["hosts"] == {"2": {"snt": f"0x{at(2, 4):x}", "idx": f"0x{at(2, 3):x}"}}


def test_nothing_tells_of_the_tail_any_more(path: Path, written: Excerpts) -> None:
    cut, end = at(2, 3), at(4, 2)
    with Queue.open(path) as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(end)
        queue.raise_sent(end - 1)
        queue.raise_acknowledged(at(2, 5))
        for host, index in ((2, end - 1), (3, at(1, 3))):
            queue.host_marks.raise_to(host, MarkLevel.SENT, index)
            queue.host_marks.raise_to(host, MarkLevel.ACKNOWLEDGED, index)
        for name, index in (("ahead", end), ("behind", at(1, 3))):
            queue.named_position(name).move(index)
            Readers(queue.cycles).register(name, index)
    store_synced(path, end)
    quarantine(path, cut)
    with Queue.open(path) as queue:
        assert queue.sent_index == queue.acknowledged_index == cut - 1
        marks = queue.host_marks.load()
        assert set(marks[2].values()) == {cut - 1}
        assert set(marks[3].values()) == {at(1, 3)}
        assert queue.named_position("ahead").load() == cut
        assert queue.named_position("behind").load() == at(1, 3)
        assert Readers(queue.cycles).register("ahead") == cut
        assert Readers(queue.cycles).register("behind") == at(1, 3)
        assert sorted(ClosedCycles(path).load()) == queue.cycles.listing()[:2]
    synced = load_synced(path)
    assert synced is not None
    assert synced.end == cut


def test_a_host_stays_known_though_nothing_is_left(path: Path, written: Excerpts) -> None:
    """It may hold the better copy, and give it back."""
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(2, MarkLevel.SENT, at(0, 3))
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, at(0, 3))
    quarantine(path, at(0))
    with Queue.open(path) as queue:
        assert queue.host_marks.load() == {2: {MarkLevel.SENT: 0, MarkLevel.ACKNOWLEDGED: -1}}


def test_readers_stay_where_they_are_when_all_comes_again(path: Path, written: Excerpts) -> None:
    with Queue.open(path) as queue:
        queue.named_position("billing").move(at(1, 3))
    quarantine(path, None)
    with Queue.open(path) as queue:
        assert queue.named_position("billing").load() == at(1, 3)


@pytest.mark.parametrize("index", [at(4, 2), at(5), at(3, 1), at(0, 6)], ids=hex)
def test_an_index_with_nothing_behind_or_before(
    path: Path, written: Excerpts, index: Index
) -> None:
    with pytest.raises(IndexGap):
        quarantine(path, index)
    assert read(path) == written


def test_a_second_tail_goes_beside_the_first(path: Path, written: Excerpts) -> None:
    first = quarantine(path, at(2, 3))
    with Queue.open_for_append(path) as queue:
        queue.append(b"again", now_ms=NOON_MS + 2 * 3_600_000)
    second = quarantine(path, at(2, 3))
    assert first.folder != second.folder
    assert read(second.folder) == [(at(2, 3), b"again")]
    assert len(read(first.folder)) == 6


class Died(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("cut", [at(0, 3), at(1, 7), at(2)], ids=hex)
def test_ended_at_any_step_it_is_completed_by_doing_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Index
) -> None:
    written = fill(tmp_path / "original", ROLL, COUNTS)
    kept, gone = parts(written, cut)
    ended, steps = True, 0
    while ended:
        path = tmp_path / f"q{steps}"
        shutil.copytree(tmp_path / "original", path)
        with monkeypatch.context() as patch:
            end_at(patch, steps)
            try:
                quarantine(path, cut)
            except Died:
                steps += 1
            else:
                ended = False
        now = read(path)
        assert now[: len(kept)] == kept
        assert now == written[: len(now)]
        if ended and len(now) > len(kept):
            quarantine(path, cut)
        assert read(path) == kept
        with Queue.open_for_append(path):
            pass  # a listing that a process has left behind is renewed by the next writer
        assert not inspect_queue(path, deep=True).findings
        folders = (each for each in (path / "quarantine").iterdir())
        found = {each for folder in folders for each in tails(folder)}
        assert found == set(gone)
        shutil.rmtree(path)  # a copy for each step would be a gigabyte
    assert steps > 10


def tails(folder: Path) -> Excerpts:
    """All that readers find in a folder, whatever a kill has left of it."""
    return read(folder) if any(folder.glob("*.cq4")) else []


def end_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """The process ends before so many more calls that change a directory, or sync, are made."""
    left = [step]

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if left[0] == -1:
                raise Died
            return real(*arguments, **options)

        patch.setattr(os, name, call)

    for name in ("mkdir", "link", "rename", "replace", "unlink", "rmdir", "fsync", "fdatasync"):
        counted(name)
