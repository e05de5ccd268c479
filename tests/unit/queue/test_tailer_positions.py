"""The positions of named tailers, as a source tells them and as a copy keeps them."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.tablestore import TableValue
from cqrepl.queue.format.tailerposition import TailerPosition
from tests.support.goldens import manifest, unpack
from tests.support.samples import fill
from tests.support.tables import fill_keys, keys_of

NAME = "replicated:a"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "queue", "FAST_DAILY", {0: 5})
    return tmp_path / "queue"


def at(index: int, version: int | None = None, name: str = NAME) -> TailerPosition:
    return TailerPosition(name=name, index=index, version=version)


def test_those_of_java_are_found(tmp_path: Path) -> None:
    path = unpack("named_tailers", tmp_path)
    indexes = [index for index, _ in manifest("named_tailers").digests]
    with Queue.open(path) as queue:
        replicated = queue.tailer_positions.look(all_names=False)
        found = {each.name: each for each in queue.tailer_positions.look(all_names=True)}
    (gamma,) = replicated
    assert (gamma.name, gamma.index) == ("replicated:gamma", indexes[7])
    assert gamma.version == keys_of(path)["index.replicated:gamma.version"]
    assert found["replicated:gamma"] == gamma
    assert found["alpha"] == at(indexes[4], None, "alpha")
    assert not any(name.endswith((".lock", ".version")) for name in found)


def test_a_name_that_comes_later_is_found(path: Path) -> None:
    with Queue.open(path) as queue:
        positions = queue.tailer_positions
        assert positions.look(all_names=True) == []
        for number, name in enumerate((NAME, "Plain", "replicated:b"), 1):
            queue.named_position(name).move(7)
            assert len(positions.look(all_names=True)) == number
        queue.named_position(NAME).move(8)
        assert positions.look(all_names=False) == [at(8, 1), at(7, 0, "replicated:b")]


@pytest.mark.parametrize(
    ("own", "given", "kept"),
    [
        (at(9, 3), at(5, 4), at(5, 4)),
        (at(5, 3), at(9, 4), at(9, 4)),
        (at(5, 4), at(9, 3), at(5, 4)),
        (at(9, 4), at(5, 3), at(9, 4)),
        (at(5, 4), at(9, 4), at(9, 4)),
        (at(9, None, "b"), at(5, None, "b"), at(5, None, "b")),
        (at(9, None, "b"), at(0, None, "b"), at(0, None, "b")),
    ],
)
def test_the_higher_version_stands(
    path: Path, own: TailerPosition, given: TailerPosition, kept: TailerPosition
) -> None:
    with Queue.open(path) as queue:
        assert queue.tailer_positions.take(own)
        assert queue.tailer_positions.take(given)
    with Queue.open(path) as queue:
        assert queue.tailer_positions.look(all_names=True) == [kept]
        position = queue.named_position(kept.name)
        assert position.load() == kept.index
        assert position.version() == (-1 if kept.version is None else kept.version)


def test_nothing_is_kept_of_a_name_that_was_never_moved(path: Path) -> None:
    before = keys_of(path).keys()
    with Queue.open(path) as queue:
        assert queue.tailer_positions.take(at(0, -1))
        assert queue.tailer_positions.take(at(0, None, "b"))
    assert keys_of(path).keys() == before


@pytest.mark.parametrize(("left", "fits"), [(80, ["b"]), (160, ["b", NAME]), (31, [])])
def test_no_key_ends_beyond_the_limit(path: Path, left: int, fits: list[str]) -> None:
    fill_keys(path, KEY_END_MAX - left)
    with Queue.open(path) as queue:
        for name in sorted(fits, reverse=True):
            version = 3 if name == NAME else None
            assert queue.tailer_positions.take(at(7, version, name))
        assert not queue.tailer_positions.take(at(7, 3, "replicated:" + "c" * 99))
        assert not queue.tailer_positions.take(at(7, None, "c" * 99))


def test_where_nothing_can_be_written_nothing_is_kept(path: Path) -> None:
    with Queue.open(path) as queue:
        queue._marks.close()
        (path / "metadata.cq4t").rename(path / "away")
        assert not queue.tailer_positions.take(at(7, 3))
        assert queue.tailer_positions.look(all_names=True) == []


def test_one_that_is_moved_all_the_time_is_left_for_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index and version of two moves are never told as one."""
    with Queue.open(path) as queue:
        assert queue.tailer_positions.take(at(7, 3))
        (place,) = queue.tailer_positions._found.values()
        value, version = place._value, place._version
        assert version is not None
        load = TableValue.load

        def moving(each: TableValue) -> int:
            if each.position == value.position and moves:
                moves.pop()
                version.add(1)
            return load(each)

        moves = list(range(100))
        monkeypatch.setattr(TableValue, "load", moving)
        assert queue.tailer_positions.look(all_names=False) == []
        moves = [0]
        assert queue.tailer_positions.look(all_names=False) == [at(7, version.load())]


def test_lowering_takes_back_what_lies_behind(path: Path) -> None:
    with Queue.open(path) as queue:
        for position in (at(7, 3), at(5, None, "b"), at(9, None, "c")):
            assert queue.tailer_positions.take(position)
        queue.tailer_positions.lower_to(5)
        found = queue.tailer_positions.look(all_names=True)
    assert found == [at(5, 4), at(5, None, "b"), at(5, None, "c")]
