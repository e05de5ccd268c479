"""Chains of store files: what is read once is known, after a restart too, and of that file only."""

import shutil
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue import ExcerptBatch, IndexGap, Queue, QueueDamaged
from cqrepl.queue.files.chainfile import (
    CHAIN_SUFFIX,
    POINTS_MAX,
    ChainFile,
    StoreState,
    load_chain_file,
    store_chain_file,
)
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.index import Cycle, Index, Sequence
from cqrepl.queue.read import chains as module
from cqrepl.queue.read.chainpoints import START, ChainPoints
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.tailer import Tailer
from cqrepl.queue.write.retention import Policy, remove
from tests.support.samples import (
    fill,
    flip_byte,
    layout,
    noon_index,
    noon_path,
    with_number_of,
)

COUNT = 5000
END = Index(noon_index(sequence=COUNT))


def payloads(count: int = COUNT) -> list[bytes]:
    return [b"excerpt %d" % n for n in range(count)]


def append(path: Path, data: list[bytes], first: int = 0) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append_at(ExcerptBatch.of(noon_index(sequence=first), data))


def reckoned(data: list[bytes]) -> bytes:
    """The chain over these excerpts."""
    lengths = array("q", map(len, data))
    offsets = array("q", (sum(lengths[:n]) for n in range(len(data))))
    return extend_chain(b"".join(data), offsets, lengths, 0, CHAIN_START)


def chains_of(path: Path) -> Chains:
    with Queue.open(path) as queue:
        return Chains(queue.cycles)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a queue with a chain every few excerpts."""
    monkeypatch.setattr(module, "BATCH_BYTES", 2000)
    append(tmp_path / "q", payloads())
    return tmp_path / "q"


@pytest.fixture
def side_file(path: Path) -> Path:
    """The file with the chains of the same queue, which was read to its end."""
    chains = chains_of(path)
    chains.at(END)
    chains.save(END)
    return noon_path(path).with_suffix(CHAIN_SUFFIX)


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of excerpts that chains are made of from now on."""
    found: list[int] = []
    next_batch = Tailer.next_batch

    def noted(self: Tailer, **limits: Any) -> ExcerptBatch | None:
        batch = next_batch(self, **limits)
        found.append(0 if batch is None else len(batch))
        return batch

    monkeypatch.setattr(Tailer, "next_batch", noted)
    return found


def test_a_chain_is_what_it_is_said_to_be(path: Path) -> None:
    chains = chains_of(path)
    for count in (COUNT, 1, 0, 77, 4096):
        assert chains.at(noon_index(sequence=count)) == reckoned(payloads()[:count])


def test_after_a_restart_only_a_stretch_is_read(side_file: Path, walked: list[int]) -> None:
    assert chains_of(side_file.parent).at(END) == reckoned(payloads())
    assert sum(walked) < COUNT // 10
    walked.clear()
    chains_of(side_file.parent).at(noon_index(sequence=COUNT // 2))
    assert sum(walked) < COUNT // 10


def test_what_comes_later_is_read_from_there_on(side_file: Path, walked: list[int]) -> None:
    more = [b"more %d" % n for n in range(100)]
    append(side_file.parent, more, first=COUNT)
    end = Index(END + len(more))
    walked.clear()
    assert chains_of(side_file.parent).at(end) == reckoned(payloads() + more)
    assert sum(walked) < COUNT // 10


@pytest.mark.parametrize("what", ["shorter", "other", "last differs", "copied"])
def test_another_store_file_of_the_name_is_read_as_a_whole(
    side_file: Path, tmp_path: Path, what: str
) -> None:
    """Its number in the file system may be used again: that is so where it is written in place."""
    data = {
        "shorter": payloads(COUNT // 2),
        "other": [b"another %d" % n for n in range(COUNT)],
        "last differs": [*payloads(COUNT - 1), b"excerpt X"],
        "copied": payloads(),
    }[what]
    append(tmp_path / "another", data)
    file, another = noon_path(side_file.parent), noon_path(tmp_path / "another")
    if what == "copied":
        another.rename(file)
    else:
        file.write_bytes(another.read_bytes())
    found = chains_of(side_file.parent).at(Index(noon_index(sequence=len(data))))
    assert found == reckoned(data)
    with pytest.raises(IndexGap):
        chains_of(side_file.parent).at(Index(END + 1))


def test_a_new_file_with_the_number_of_a_removed_one_is_another(path: Path) -> None:
    file = noon_path(path)
    chains = chains_of(path)
    assert chains.at(END) == reckoned(payloads())
    before, data = StoreState.of(file), file.read_bytes()
    assert before is not None
    if not with_number_of(file, data):
        pytest.skip("this file system gives no number twice")
    after = StoreState.of(file)
    assert after is not None
    assert after.number != before.number
    flip_byte(file, payloads()[2000], 3)
    assert chains.at(END) != reckoned(payloads())


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 100, -1])
def test_a_damaged_side_file_counts_for_nothing(side_file: Path, cut: int) -> None:
    content = side_file.read_bytes()
    side_file.write_bytes(content[:cut])
    assert load_chain_file(side_file) is None
    damaged = bytearray(content)
    damaged[cut] ^= 4
    side_file.write_bytes(damaged)
    assert load_chain_file(side_file) is None
    assert chains_of(side_file.parent).at(END) == reckoned(payloads())


def test_only_what_is_on_the_disk_is_kept(path: Path) -> None:
    chains = chains_of(path)
    chains.at(END)
    chains.save(Index(noon_index(sequence=COUNT // 2)))
    found = load_chain_file(noon_path(path).with_suffix(CHAIN_SUFFIX))
    assert found is not None
    assert 0 < found.points[-1][0] <= COUNT // 2


def test_side_files_go_with_their_store_files(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    end = noon_index(ahead=2, sequence=5)
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        for ahead in range(3):
            chains.at(noon_index(ahead=ahead, sequence=5))
        chains.save(end)
        side_files = [noon_path(path, ahead=n).with_suffix(CHAIN_SUFFIX) for n in range(3)]
        assert all(map(Path.exists, side_files))
        remove(queue.cycles, Policy(cycles_min=2))
        assert [each.exists() for each in side_files] == [False, True, True]
        noon_path(path, ahead=1).unlink()  # as Java's own retention does it
        side_files[2].with_name(side_files[2].name + ".1234").touch()  # a kill has left it
        Chains(queue.cycles).save(end)
        assert [each.name for each in path.glob(f"*{CHAIN_SUFFIX}*")] == [side_files[2].name]


def reread(chains: Chains) -> int:
    """Reads once more what was written to since; how many bytes that were."""
    read, place = 0, START
    while (cycle := chains.to_reread) is not None:
        found, count = chains.reread(cycle, place)
        place, read = found or START, read + count
    return read


def test_what_was_written_to_meanwhile_is_read_once_more(side_file: Path) -> None:
    chains = chains_of(side_file.parent)
    assert chains.at(END) == reckoned(payloads())
    assert reread(chains) == 0
    flip_byte(noon_path(side_file.parent), b"excerpt 700", 3)
    chains = chains_of(side_file.parent)
    chains.at(END)  # as it was: of so much, only the last stretch was read again
    with pytest.raises(QueueDamaged, match="at least one altered") as failure:
        reread(chains)
    first, last = (int(word, 16) for word in str(failure.value).split() if word[:2] == "0x")
    assert first <= noon_index(sequence=700) <= last
    assert last - first < COUNT // 10


def test_what_an_appender_has_written_to_is_good_again_once_it_was_read(side_file: Path) -> None:
    append(side_file.parent, [b"more"], first=COUNT)
    chains = chains_of(side_file.parent)
    chains.at(Index(END + 1))
    assert reread(chains) > 8 * COUNT
    chains.save(Index(END + 1))
    chains = chains_of(side_file.parent)
    chains.at(Index(END + 1))
    assert chains.to_reread is None


def test_following_a_queue_tells_the_end_of_each_cycle(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 3, 2: 4})
    end = noon_index(ahead=2, sequence=4)
    chains = chains_of(path)
    places = [noon_index(sequence=5), noon_index(ahead=1, sequence=3), end]
    found = chains.follow(noon_index(sequence=2), end, seconds=10.0)
    assert found == [(index, chains.at(index)) for index in places]
    assert chains.follow(end, end, seconds=10.0) == found[-1:]


def test_each_time_it_gets_further_however_short_it_is(tmp_path: Path) -> None:
    """Each call of `follow` gets further, also from the end of a cycle into the next one."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 3, 3: 2})
    chains, at = chains_of(path), noon_index()
    end = noon_index(ahead=3, sequence=2)
    for _ in range(3):  # a cycle each
        assert at < end
        at = chains.follow(at, end, seconds=-1.0)[-1][0]
    assert at == end


def test_following_ends_when_its_time_is_over(path: Path) -> None:
    [(index, chain)] = chains_of(path).follow(END, END, seconds=0.0)
    assert index < END
    assert chain == chains_of(path).at(index)


def test_points_stay_spread_over_the_whole_file() -> None:
    points = ChainPoints(1)
    for n in range(1, 40 * POINTS_MAX):
        points.note(Sequence(n * 10), b"%016d" % n)
        points.note(Sequence(n * 10), b"not this one....")
    found = [sequence for sequence, _ in points]
    apart = [behind - before for before, behind in pairwise(found)]
    assert POINTS_MAX // 4 < len(found) <= POINTS_MAX + 1
    assert max(apart) <= 4 * found[-1] // POINTS_MAX
    assert points.last == (10 * (40 * POINTS_MAX - 1), b"%016d" % (40 * POINTS_MAX - 1))
    assert points.last_before(Sequence(5)) == START


def test_the_point_before_a_sequence_is_the_nearest_that_is_not_behind_it() -> None:
    points = ChainPoints(1)
    places = [1, 2, 5, 9]
    for place in places:
        points.note(Sequence(place), b"%016d" % place)
    for sequence in range(12):
        nearest = max(place for place in (0, *places) if place <= sequence)
        assert points.last_before(Sequence(sequence))[0] == nearest


def test_no_more_than_some_cycles_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CYCLES_MAX", 2)
    fill(tmp_path / "q", "FAST_DAILY", dict.fromkeys(range(5), 3))
    chains = chains_of(tmp_path / "q")
    ends = [noon_index(ahead=n, sequence=3) for n in range(5)]
    assert [chains.at(end) for end in ends] == [chains.at(end) for end in reversed(ends)][::-1]
    assert len(chains._cached) == 2


def test_what_stands_in_a_side_file(tmp_path: Path) -> None:
    (tmp_path / "a.cq4").write_bytes(b"four")
    store = StoreState.of(tmp_path / "a.cq4")
    assert store is not None
    what = ChainFile(
        cycle=Cycle(77),
        store=store,
        chain_first=b"f" * 16,
        points=[(Sequence(n), b"%016d" % n) for n in (1, 5, 9)],
    )
    store_chain_file(tmp_path / "a.cqchain", what)
    assert load_chain_file(tmp_path / "a.cqchain") == what
    content = (tmp_path / "a.cqchain").read_bytes()
    assert content[:8] == b"cqchain1"
    assert len(content) == 64 + 3 * 24 + 8
    assert content[16:24] == store.number.to_bytes(8, "little")
    assert StoreState.of(tmp_path / "none.cq4") is None
    assert load_chain_file(tmp_path / "none.cqchain") is None


def test_cycles_pass_over_side_files(side_file: Path) -> None:
    with Queue.open(side_file.parent) as queue:
        assert isinstance(queue.cycles, Cycles)
        assert len(queue.cycles.listing()) == 1
    shutil.copy(side_file, side_file.with_name(f"zzz{CHAIN_SUFFIX}"))
    with Queue.open(side_file.parent) as queue:
        assert queue.next_index() == END
