"""Golden queues, and what Java finds in copies of them."""

import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cqrepl.queue import Queue
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SENT_KEY
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from tests.support.java import JavaQueue, Line

GOLDEN = Path(__file__).resolve().parents[1] / "vectors" / "queues"
MOVES = 2000
MARKS = {SENT_KEY.lower(), ACKNOWLEDGED_KEY.lower()}
Manifest = dict[str, Any]


def manifest(name: str) -> Manifest:
    """What a golden queue holds; tests/vectors/queues/README.md names the fields."""
    found: Manifest = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


NAMES = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "rollcycles")
READ_TO_END = [name for name in NAMES if manifest(name)["javaTailer"]["readsAll"]]
READ_IN_PART = [name for name in NAMES if name not in READ_TO_END and name != "weekly"]


def unpack(name: str, into: Path) -> Path:
    """A copy of a golden queue."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as tar:
        tar.extractall(into, filter="data")
    return into / name


def excerpts_of(golden: Manifest, count: int | None = None) -> list[Line]:
    """Its first excerpts, as Java's `dump --sha` shows them."""
    return [
        {key: excerpt[key] for key in ("index", "length", "sha256")}
        for excerpt in golden["excerpts"][:count]
    ]


def indexes_of(golden: Manifest) -> list[int]:
    return [int(excerpt["index"], 16) for excerpt in golden["excerpts"]]


def assert_java_finds(
    java: JavaQueue, path: Path, excerpts: Sequence[Line], *, block_size: int = 65536
) -> Line:
    """Java verifies the queue and reads exactly these; gives the last line of its dump."""
    props = {"interop.blockSize": max(block_size, 65536)}
    verified = java.call("verify", path, MOVES, props=props)
    assert verified.exit == 0, verified
    assert verified.lines[0]["count"] == len(excerpts), verified
    *found, summary = java.call("dump", path, "--sha", props=props).lines
    assert found == list(excerpts)
    return summary


def assert_made_like(path: Path, golden: Manifest) -> None:
    """The queue has the roll cycle, the epoch and the index numbers of a golden one."""
    with Queue.open(path) as queue:
        layout = queue.layout
    assert layout.roll_cycle.name == golden["rollCycle"]
    assert layout.epoch == golden["epoch"]
    assert layout.index_count == golden["indexCount"]
    assert layout.index_spacing == golden["indexSpacing"]


class Untouched:
    """A source's directory as it was, to be compared later: only the two marks may change."""

    def __init__(self, path: Path, saved: Path) -> None:
        self._path = path
        self._saved = saved
        shutil.copytree(path, saved)

    def check(self, last_index: int | None) -> None:
        """Nothing has changed but the marks, which are at `last_index` where there can be any."""
        names = sorted(file.name for file in self._path.iterdir())
        assert names == sorted(file.name for file in self._saved.iterdir())
        for name in names:
            if name != FILE_NAME:
                now, then = (self._path / name).read_bytes(), (self._saved / name).read_bytes()
                assert now == then, f"{name} has changed"
        if FILE_NAME in names and last_index is not None:
            self._check_table(last_index)

    def _check_table(self, last_index: int) -> None:
        """The two marks are the only words that differ: every golden queue has them already."""
        now, then = ((path / FILE_NAME).read_bytes() for path in (self._path, self._saved))
        assert len(now) == len(then)
        words = {at // 8 for at in range(len(now)) if now[at] != then[at]}
        assert len(words) <= len(MARKS)
        keys, were = keys_of(self._path / FILE_NAME), keys_of(self._saved / FILE_NAME)
        assert keys == were | dict.fromkeys(MARKS, last_index)


def keys_of(table_store: Path) -> dict[str, int]:
    """The keys of a table store, in lower case, with their values."""
    table = TableStore(table_store, writable=False)
    try:
        return table.keys()
    finally:
        table.close()
