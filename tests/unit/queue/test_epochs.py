"""Epochs: what a copy promises, where two copies part, and the file that they are kept in."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import QueueDamaged
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, load_epochs, store_epochs
from cqrepl.queue.format.epochs import (
    EPOCHS_MAX,
    NUMBER_MAX,
    Epoch,
    Epochs,
    History,
    is_parting_known,
    parting,
    why_refused,
)
from cqrepl.queue.format.index import Index
from cqrepl.replicator.queuestate.keptepochs import Fenced, KeptEpochs
from cqrepl.surroundings import Surroundings, within

ONE, TWO, THREE = Epoch(1, 2, Index(9)), Epoch(2, 3, Index(12)), Epoch(4, 1, Index(20))
KEPT = Epochs(promised=5, promised_to=3, history=(ONE, TWO, THREE))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Histories of one line of leaders: numbers rise, first indexes do not fall."""
    count = draw(st.integers(0, EPOCHS_MAX))
    numbers = sorted(draw(st.sets(st.integers(1, NUMBER_MAX), min_size=count, max_size=count)))
    starts = sorted(draw(st.lists(st.integers(0, 1 << 62), min_size=count, max_size=count)))
    leaders = draw(st.lists(st.integers(1, 127), min_size=count, max_size=count))
    each = zip(numbers, leaders, starts, strict=True)
    return tuple(Epoch(number, leader, Index(start)) for number, leader, start in each)


@given(history=histories(), more=st.integers(0, 9), host_id=st.integers(1, 127))
def test_they_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, history: History, more: int, host_id: int
) -> None:
    path = tmp_path_factory.mktemp("q")
    number = min((history[-1].number if history else 0) + more, NUMBER_MAX)
    epochs = Epochs(promised=number, promised_to=host_id, history=history)
    store_epochs(path, epochs)
    assert load_epochs(path) == epochs


def test_without_a_file_nothing_was_promised(tmp_path: Path) -> None:
    assert load_epochs(tmp_path) == load_epochs(tmp_path / "none") == Epochs()
    assert Epochs().may_lead(7)


@given(at=st.integers(0, 8 * (4 + 9 + 1) * 8 - 1), cut=st.booleans())
def test_a_file_that_is_not_as_it_was_is_damaged(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("q")
    store_epochs(path, KEPT)
    file = path / EPOCH_FILE_NAME
    data = bytearray(file.read_bytes())
    if cut:
        file.write_bytes(data[: at // 8])
    else:
        data[at // 8 % len(data)] ^= 1 << at % 8
        file.write_bytes(data)
    if file.read_bytes() == (data if cut else b""):
        return  # nothing was cut off
    with pytest.raises(QueueDamaged, match="expected the epochs that were promised"):
        load_epochs(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_else_has_its_name_is_told(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / EPOCH_FILE_NAME)
    with pytest.raises(OSError, match="expected a regular file"):
        load_epochs(tmp_path)
    assert not stat.S_ISREG((tmp_path / EPOCH_FILE_NAME).stat().st_mode)


@dataclass(frozen=True, kw_only=True)
class Noting(Surroundings):
    """Notes which calls bring something to the disk; the n-th of them fails."""

    fails_at: int
    calls: list[str] = field(default_factory=list)

    def sync(self, descriptor: int) -> None:
        self._note("data")

    def sync_names(self, descriptor: int) -> None:
        self._note("names")

    def _note(self, what: str) -> None:
        self.calls.append(what)
        if len(self.calls) == self.fails_at:
            raise OSError(5, "no")


@pytest.mark.parametrize("fails_at", [1, 2])
def test_nothing_is_promised_that_may_not_be_on_the_disk(tmp_path: Path, fails_at: int) -> None:
    kept = KeptEpochs(tmp_path)
    kept.promise(1, 2)
    disk = Noting(fails_at=fails_at)
    with within(disk), pytest.raises(OSError, match="no"):
        kept.promise(2, 3)
    assert disk.calls == ["data", "names"][:fails_at]
    assert kept.now.promised == 1


def test_a_promise_binds(tmp_path: Path) -> None:
    kept = KeptEpochs(tmp_path)
    kept.promise(3, 2)
    kept.promise(3, 2)  # the same once more, as after a lost answer
    for number, host_id in ((3, 1), (2, 2), (0, 2)):
        with pytest.raises(Fenced, match=r"epoch 3 was promised to host 2"):
            kept.promise(number, host_id)
    kept.promise(4, 1)
    assert KeptEpochs(tmp_path).now == Epochs(promised=4, promised_to=1)


def test_who_may_lead(tmp_path: Path) -> None:
    kept = KeptEpochs(tmp_path)
    kept.check_leads(2)
    kept.promise(1, 2)
    with pytest.raises(Fenced, match="promised to this host, which has not begun it"):
        kept.check_leads(2)
    with pytest.raises(Fenced, match="host 2 leads it in epoch 1: nothing of it goes out"):
        kept.check_leads(1)
    kept.open(1, 2, 9, ())
    kept.check_leads(2)
    with pytest.raises(Fenced, match="epoch 1 was promised to host 2: host 3, with epoch 2"):
        kept.open(2, 3, 9, kept.now.history)
    assert KeptEpochs(tmp_path).now == Epochs(promised=1, promised_to=2, history=(ONE,))


def test_an_epoch_that_has_left_nothing_is_in_no_line_of_leaders() -> None:
    """A copy stands at 10, and so has nothing of epoch 2, which began at 12."""
    kept = Epochs(promised=2, promised_to=3, history=(ONE, TWO))
    assert kept.held(10) == (ONE,)
    opened = kept.promise(3, 1).opened(10)
    assert opened.history == (ONE, Epoch(3, 1, Index(10)))


def test_only_the_latest_are_kept() -> None:
    epochs = Epochs()
    for number in range(1, EPOCHS_MAX + 3):
        epochs = epochs.promise(number, 1).opened(number)
    assert [each.number for each in epochs.history] == list(range(3, EPOCHS_MAX + 3))


@pytest.mark.parametrize(
    ("own", "other", "index"),
    [
        ((), (), None),
        ((ONE,), (ONE,), None),
        ((), (ONE,), 9),
        ((ONE,), (ONE, TWO), 12),
        ((), (ONE, TWO), 9),
        ((ONE, Epoch(3, 3, Index(15))), (ONE, THREE), 15),
        ((ONE, TWO), (ONE, THREE), 12),
        ((ONE, THREE), (ONE, TWO), 12),
        ((Epoch(1, 3, Index(4)),), (ONE,), 4),
    ],
)
def test_where_two_copies_part(own: History, other: History, index: int | None) -> None:
    assert parting(own, other) == index


def test_where_two_copies_part_is_not_known_once_either_may_have_forgotten() -> None:
    full = tuple(Epoch(number, 1, Index(100)) for number in range(2, EPOCHS_MAX + 2))
    for own, other in (((ONE,), full), (full, (ONE,)), ((), full)):
        assert not is_parting_known(own, other)
        assert parting(own, other) == min(each.start for each in (*own, *other))
    assert is_parting_known(full[-1:], full)
    assert is_parting_known((ONE,), full[1:])
    assert is_parting_known((), ())


@given(line=histories(), data=st.data())
def test_a_copy_that_follows_parts_where_it_lacks_the_next_epoch(
    line: History, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(line)))
    at = parting(line[:count], line)
    assert at == (line[count].start if count < len(line) else None)


@pytest.mark.parametrize(
    ("own", "offered", "host_id", "why"),
    [
        (Epochs(), (), 1, None),
        (Epochs(), (ONE,), 2, None),
        (Epochs(), (ONE,), 1, "epoch 1 is led by host 2, and host 1 offers it"),
        (Epochs(promised=1, promised_to=2), (ONE,), 2, None),
        (Epochs(promised=1, promised_to=3), (ONE,), 2, "epoch 1 was promised to host 3: host 2"),
        (Epochs(promised=1, promised_to=2), (), 1, "epoch 1 was promised to host 2: host 1, with"),
        (Epochs(promised=1, promised_to=2), (), 2, "epoch 1 was promised to host 2, which comes"),
        (KEPT, (ONE, TWO), 3, "epoch 5 was promised to host 3, which comes with epoch 2"),
        (KEPT, (Epoch(6, 1, Index(30)),), 1, None),
    ],
)
def test_whom_a_copy_takes_its_queue_from(
    own: Epochs, offered: History, host_id: int, why: str | None
) -> None:
    found = why_refused(own, offered, host_id)
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize(
    "history",
    [
        (TWO, ONE),
        (ONE, ONE),
        (Epoch(0, 1, Index(0)),),
        (Epoch(1, 0, Index(0)),),
        (Epoch(1, 128, Index(0)),),
        (Epoch(1, 1, Index(9)), Epoch(2, 1, Index(8))),
        (Epoch(NUMBER_MAX + 1, 1, Index(0)),),
        tuple(Epoch(number, 1, Index(0)) for number in range(1, EPOCHS_MAX + 2)),
    ],
)
def test_what_is_no_history(history: History) -> None:
    with pytest.raises(ValueError, match="expected"):
        Epochs(promised=NUMBER_MAX, promised_to=1, history=history)
