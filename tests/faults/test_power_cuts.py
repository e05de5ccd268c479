"""A power cut at any store of a synced writer: what is on the disk then, and what may be missing.

Here a sector is on the disk or not, whatever else is of its page, and every state is that of one
moment of one run; `tests/property/test_crash_states.py` draws from all that pages may be.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Durability, ExcerptBatch, Queue
from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.write import storewriter
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    check_marks,
    layout,
    noon_index,
    payloads,
    read,
    stored,
)

SECTOR = 512
STORES = ("store_4", "store_8", "exchange_4", "exchange_8", "put_8")


class Disk:
    """The disk's content while a queue is written: some sectors get there now, some later, all at a
    sync.

    After every store `look` may cut the power and see what is left.
    """

    def __init__(self, path: Path, seed: int, look: Callable[["Disk"], None]) -> None:
        self.chance = random.Random(seed)
        self._path = path
        self._look = look
        self._images: dict[str, bytearray] = {}
        self._names: set[str] = set()
        self._is_away = False

    def leave(self, into: Path) -> None:
        """Puts what is on the disk into a directory."""
        for name, image in self._images.items():
            if name in self._names or self.chance.random() < 0.5:
                (into / name).write_bytes(image)

    @contextmanager
    def recording(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Sees every store and every sync in a block."""
        with monkeypatch.context() as patch:
            for name in STORES:
                patch.setattr(Words, name, self._seen(getattr(Words, name)))
            patch.setattr(Mapping, "write", self._seen(Mapping.write))
            lay = vars(storewriter)["lay_excerpts"]
            patch.setitem(vars(storewriter), "lay_excerpts", self._seen(lay))
            patch.setattr(Mapping, "sync", partial_method(self._sync))
            patch.setattr(Mapping, "sync_directory", staticmethod(self._sync_directory))
            patch.setattr(storewriter, "_STEP_MIN", 4096)
            yield

    def _seen(self, store: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(store)
        def seen(*args: Any, **options: Any) -> Any:
            done = store(*args, **options)
            if not self._is_away and self._path.exists():
                self._is_away = True  # what looks writes too
                self._write_back(self.chance.choice([0.0, 0.1, 0.5, 0.9]))
                self._look(self)
                self._is_away = False
            return done

        return seen

    def _write_back(self, share: float) -> None:
        for file in self._path.iterdir():
            now = file.read_bytes()
            image = self._images.setdefault(file.name, bytearray())
            image += bytes(len(now) - len(image))
            for at in range(0, len(now), SECTOR):
                part = slice(at, at + SECTOR)
                if image[part] != now[part] and self.chance.random() < share:
                    image[part] = now[part]

    def _sync(self, mapping: Mapping, start: int, end: int) -> None:
        assert 0 <= start < end <= mapping.length
        if mapping.path.parent == self._path:
            image = self._images.setdefault(mapping.path.name, bytearray())
            image += bytes(mapping.length - len(image))
            image[start:end] = mapping.data[start:end]

    def _sync_directory(self, path: Path) -> None:
        if path == self._path:
            self._names |= {file.name for file in path.iterdir()}


def partial_method(function: Callable[..., None]) -> Callable[..., None]:
    """A method that hands its object on as an argument."""

    def method(mapping: Mapping, start: int, end: int) -> None:
        function(mapping, start, end)

    return method


def batches(name: str, counts: dict[int, int], per_batch: int) -> list[ExcerptBatch]:
    made = []
    for ahead, count in counts.items():
        data = payloads(count, seed=ahead + 1)
        data[count // 2] = bytes(range(1, 200)) * 8  # over several sectors, and no zero in it
        for start in range(0, count, per_batch):
            index = noon_index(name, ahead=ahead, sequence=start)
            made.append(ExcerptBatch.of(index, data[start : start + per_batch]))
    return made


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 4, 5))]
)
@pytest.mark.parametrize("name", ["TEST_DAILY", "TEST2_DAILY"])
def test_a_power_cut_takes_nothing_that_was_promised_and_shows_nothing_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    """At any store, any part of what is not synced is lost; the queue is then opened and used."""
    path = tmp_path / "queue"
    runs = batches(name, {0: 21, 2: 9, 3: 4}, per_batch=1 + seed * 2)
    whole: Excerpts = [excerpt for batch in runs for excerpt in stored(batch)]
    returned = 0
    left = set()

    def look(disk: Disk) -> None:
        if disk.chance.random() < 0.85:
            return
        after = tmp_path / "after"
        after.mkdir()
        disk.leave(after)
        if returned or (after / "metadata.cq4t").exists():
            found = read(after) if any(after.glob("*.cq4")) else []
            assert len(found) >= returned
            assert found == whole[: len(found)]
            with Queue.open(after, create=layout(name)) as queue:
                index = queue.appender().append_one(b"later", NOON_MS)
            assert read(after) == [*found, (index, b"later")]
            check_marks(after, holes=True)
            left.add(len(found))
        for file in after.iterdir():
            file.unlink()
        after.rmdir()

    disk = Disk(path, seed, look)
    with disk.recording(monkeypatch):
        with Queue.open(path, create=layout(name), durability=Durability.SYNCED) as queue:
            appender = queue.appender()
            for batch in runs:
                appender.append_at(batch)
                returned += len(batch)
    assert read(path) == whole
    assert len(left) > 2
