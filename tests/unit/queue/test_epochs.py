"""Epochs: what a copy promises, where two copies part, and the file that they are kept in."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import QueueDamaged
from cqrepl.queue.files.epochfile import (
    EPOCH_FILE_NAME,
    MEMBERS_FILE_NAME,
    MERGED_FILE_NAME,
    load_epochs,
    store_epochs,
)
from cqrepl.queue.format.epochs import (
    EPOCHS_MAX,
    NUMBER_MAX,
    Epoch,
    Epochs,
    History,
    Parting,
    check_history,
    has_merged,
    merged,
    parting,
    unmerged,
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


@given(count=st.integers(EPOCHS_MAX, 300), cut=st.integers(0, 70))
def test_merged_ones_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, count: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("q")
    epochs = Epochs(promised=count, promised_to=1 + count % 3, history=line_of(count))
    epochs = epochs.promise(count + 1, 3).opened(max(count - cut, 0))
    assert len(epochs.history) <= EPOCHS_MAX
    store_epochs(path, epochs)
    assert load_epochs(path) == epochs
    history = Epochs(promised=count + 1, promised_to=3, history=unmerged(epochs.history))
    (path / MERGED_FILE_NAME).unlink(missing_ok=True)  # as a version does not see it that has none
    assert load_epochs(path) == history
    assert (path / EPOCH_FILE_NAME).stat().st_size <= 8 * (4 + 3 * EPOCHS_MAX + 1)


def test_an_older_file_of_merged_ones_says_nothing(tmp_path: Path) -> None:
    """A version that knows of none has written the first file since."""
    store_epochs(tmp_path, Epochs(promised=70, promised_to=1, history=line_of(70)))
    later = Epochs(promised=99, promised_to=1, history=unmerged(line_of(72)))
    store_epochs(tmp_path, later)
    assert (tmp_path / MERGED_FILE_NAME).exists()
    assert load_epochs(tmp_path) == later
    store_epochs(tmp_path, KEPT)
    assert load_epochs(tmp_path) == KEPT


@given(at=st.integers(0, 8 * (2 + 4 * EPOCHS_MAX + 1) * 8 - 1), cut=st.booleans())
def test_a_file_of_merged_ones_that_is_not_as_it_was_is_damaged(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("q")
    store_epochs(path, Epochs(promised=70, promised_to=2, history=line_of(70)))
    file = path / MERGED_FILE_NAME
    data = bytearray(file.read_bytes())
    data[at // 8] ^= 1 << at % 8
    file.write_bytes(data[: at // 8] if cut else data)
    with pytest.raises(QueueDamaged, match="expected the epochs that were promised") as found:
        load_epochs(path)
    assert found.value.path == file


def test_members_are_read_as_they_were_written(tmp_path: Path) -> None:
    """An older version reads the first file as before, and promises a later epoch without them: of
    that one they are not known."""
    listed = replace(KEPT, members=frozenset({1, 2, 127}), listed=5)
    store_epochs(tmp_path, listed)
    assert load_epochs(tmp_path) == listed
    (tmp_path / MEMBERS_FILE_NAME).rename(tmp_path / "aside")
    assert load_epochs(tmp_path) == KEPT
    store_epochs(tmp_path, replace(KEPT, promised=6))
    (tmp_path / "aside").rename(tmp_path / MEMBERS_FILE_NAME)
    assert load_epochs(tmp_path) == replace(listed, promised=6)


def test_members_of_an_epoch_that_was_not_promised_say_nothing(tmp_path: Path) -> None:
    store_epochs(tmp_path, replace(KEPT, promised=6, members=frozenset({1, 2}), listed=6))
    before = (tmp_path / MEMBERS_FILE_NAME).read_bytes()
    store_epochs(tmp_path, KEPT)
    (tmp_path / MEMBERS_FILE_NAME).write_bytes(before)
    assert load_epochs(tmp_path) == KEPT
    (tmp_path / MEMBERS_FILE_NAME).write_bytes(before[:-1] + b"x")
    with pytest.raises(QueueDamaged, match=r"members\.cqmark: .* not as it was written"):
        load_epochs(tmp_path)


def test_a_promise_names_members_and_a_claim_that_is_given_up_none() -> None:
    both, three = frozenset({1, 2}), frozenset({1, 2, 3})
    first = Epochs().promise(1, 2, both)
    assert (first.members, first.listed) == (both, 1)
    later = first.promise(2, 1)
    assert (later.members, later.listed) == (both, 1), "those of the later epoch are not known"
    assert later.promise(2, 1, three).listed == 2
    claim = first.opened(0).promise(2, 2, three)
    assert (claim.without_claim().members, claim.without_claim().listed) == (frozenset(), 0)


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


def line_of(count: int) -> History:
    """So many epochs, one after the other, each with one excerpt, as their leaders keep them."""
    epochs = Epochs()
    for number in range(1, count + 1):
        epochs = epochs.promise(number, 1 + number % 3).opened(number)
    return epochs.history


@pytest.mark.parametrize("count", [EPOCHS_MAX + 1, EPOCHS_MAX + 2, 200])
def test_the_oldest_ones_merge_into_the_first(count: int) -> None:
    first, *others = line_of(count)
    assert first == Epoch(1, 2, Index(1), last=count - EPOCHS_MAX + 1)
    assert [each.number for each in others] == list(range(count - EPOCHS_MAX + 2, count + 1))
    assert not has_merged(others)
    assert len(others) == EPOCHS_MAX - 1


def test_of_a_merged_entry_a_copy_may_hold_the_first_epoch_only() -> None:
    kept = Epochs(promised=200, promised_to=3, history=line_of(200))
    assert kept.held(0) == ()
    assert kept.held(1) == kept.held(130) == kept.history[:1]
    assert kept.held(140) == kept.history[:4]
    assert kept.promise(201, 2).opened(130).history == (
        Epoch(1, 2, Index(1), last=138),
        Epoch(201, 2, Index(130)),
    )


def test_the_leader_of_the_last_of_merged_epochs_is_not_known() -> None:
    """It is not the leader of the first one, which so may not lead by them."""
    epochs = Epochs(promised=7, promised_to=2, history=line_of(70)[:1])
    assert not epochs.is_begun
    assert not epochs.may_lead(2)
    assert Epochs(promised=1, promised_to=2, history=line_of(1)).may_lead(2)


def test_nothing_merges_before_there_are_too_many() -> None:
    assert merged(line_of(EPOCHS_MAX), EPOCHS_MAX) == line_of(EPOCHS_MAX)
    assert not has_merged(line_of(EPOCHS_MAX))
    assert merged((), 1) == ()


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
    assert parting(own, other) == (None if index is None else Parting(Index(index), is_known=True))


def test_where_two_copies_part_is_not_known_once_either_may_have_forgotten() -> None:
    full = tuple(Epoch(number, 1, Index(100)) for number in range(2, EPOCHS_MAX + 2))
    for own, other in (((ONE,), full), (full, (ONE,)), ((), full)):
        first = min(each.start for each in (*own, *other))
        assert parting(own, other) == Parting(first, is_known=False)
    assert parting(full[-1:], full) is None
    assert parting((ONE,), full[1:]) == Parting(ONE.start, is_known=True)
    assert parting((), ()) is None


def test_where_two_copies_part_is_not_known_within_a_merged_entry() -> None:
    away, others = line_of(5), line_of(70)
    unknown = Parting(Index(1), is_known=False)
    assert parting(away, others) == parting(others, away) == parting((), others) == unknown
    assert parting(line_of(30), others) == Parting(Index(31), is_known=True)
    assert parting(others, others) is None
    assert parting(others[:1], others[:1]) == unknown  # the same words for other epochs


@st.composite
def two_lines(draw: st.DrawFn) -> tuple[History, History]:
    """The histories of two copies, as long as it takes, of which nothing was left out. They have
    the first ones in common, if any, and no later one."""
    counts = st.integers(0, 90)
    shared, own, other = draw(counts), draw(counts), draw(counts)
    steps = draw(st.lists(st.integers(0, 2), min_size=shared, max_size=shared))

    def line(count: int, leader: int, before: list[Epoch]) -> list[Epoch]:
        made = list(before)
        for _ in range(count):
            number, start = (made[-1].number, made[-1].start) if made else (0, 0)
            number += draw(st.integers(1, 2))
            made.append(Epoch(number, leader, Index(start + draw(st.integers(0, 2)))))
        return made

    begun = [Epoch(n, 1, Index(sum(steps[:n]))) for n in range(1, shared + 1)]
    return tuple(line(own, 2, begun)), tuple(line(other, 3, begun))


@given(lines=two_lines(), limits=st.tuples(st.integers(1, 64), st.integers(1, 64)))
def test_merged_histories_agree_nowhere_where_they_hold_different_epochs(
    lines: tuple[History, History], limits: tuple[int, int]
) -> None:
    """The place where they are said to part is none behind the true one. Where it is called known,
    it is the true one; so no excerpt is cut off that both hold."""
    true = parted(*lines)
    own, other = (merged(line, limit) for line, limit in zip(lines, limits, strict=True))
    found = parting(own, other)
    assert found == parting(other, own)
    if true is None:
        assert found is None or not found.is_known
    else:
        assert found is not None
        assert found.at <= true
        assert not found.is_known or found.at == true


def parted(own: History, other: History) -> Index | None:
    """The place from which on two lines, of which nothing was left out, stand for different
    excerpts."""
    same = sum(1 for mine, theirs in zip(own, other, strict=False) if mine == theirs)
    starts = [each.start for each in (*own[same:], *other[same:])]
    return Index(min(starts)) if starts else None


@given(lines=two_lines(), end=st.integers(0, 200))
def test_a_version_that_knows_of_no_merged_entries_compares_chains_as_it_did(
    lines: tuple[History, History], end: int
) -> None:
    """It is told all the entries that it can have, so that it takes no parting for known behind a
    merged entry. It holds no later epoch to be there than there is."""
    own, other = (merged(line, EPOCHS_MAX) for line in lines)
    told = unmerged(other)
    check_history(told)
    assert (told == other) is not has_merged(other)
    if not has_merged(other):
        return
    assert len(told) == EPOCHS_MAX
    assert told[-1] == other[-1]
    held = Epochs(promised=NUMBER_MAX, promised_to=1, history=told).held(end)
    truly = [each.number for each in lines[1] if each.start <= end]
    assert max((each.number for each in held), default=0) <= max(truly, default=0)
    if own and not has_merged(own):
        found, true = parting(own, told), parted(*lines)
        assert found is None or not found.is_known or (true is not None and found.at >= true)


@given(line=histories(), data=st.data())
def test_a_copy_that_follows_parts_where_it_lacks_the_next_epoch(
    line: History, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(line)))
    found = parting(line[:count], line)
    if count == 0 and len(line) == EPOCHS_MAX:
        assert found == Parting(line[0].start, is_known=False)
    elif count < len(line):
        assert found == Parting(line[count].start, is_known=True)
    else:
        assert found is None


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
        (Epoch(2, 1, Index(0), last=1),),
        (Epoch(2, 1, Index(0), last=2),),
        (Epoch(2, 1, Index(0), last=-1),),
        (Epoch(2, 1, Index(0), last=NUMBER_MAX + 1),),
        (Epoch(1, 1, Index(0), last=2), Epoch(2, 1, Index(0))),
    ],
)
def test_what_is_no_history(history: History) -> None:
    with pytest.raises(ValueError, match="expected"):
        Epochs(promised=NUMBER_MAX, promised_to=1, history=history)
