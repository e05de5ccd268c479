"""Files of a queue, mapped and read: by the queue itself, and by `wire-dump` with an index."""

import atexit
import shutil
import tempfile
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from cqrepl.dump import annotatedform, conversation, plainform, quickform, typedform
from cqrepl.dump.entries import Entry
from cqrepl.dump.excerptnumbers import cycle_of_file
from cqrepl.dump.inputs import Input
from cqrepl.dump.queuegrowth import follow
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files import tablestore
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from tests.fuzz.corpus import both, changed, spread, stores
from tests.fuzz.families import Family
from tests.fuzz.target import Target, only
from tests.fuzz.wire_targets import TOKENS
from tests.support.samples import Excerpts, fill, noon_index, noon_path, rest_of
from wire.errors import WireError

_NAME: Final = "TEST4_SECONDLY"
_COUNTS: Final = {0: 40, 2: 5}
_ZEROS: Final = (0, 4, 512, 1 << 14)  # behind what is given: a file ends anywhere, or is sparse
_LENGTH_MAX: Final = 4096
_FIRST, _TABLE = 0, 1
_LOOKS_MAX: Final = 60
# what is loaded while an input runs counts as its time, and instrumenting takes seconds
LOADED: Final = (annotatedform, conversation, plainform, quickform, typedform)
# a header that is not complete is waited for, a second each time: here no writer completes it
vars(tablestore)["_READY_TIMEOUT_S"] = 0.0


class Sample:
    """A queue in a folder of this process, whose files are put in place for each input."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "queue"
        self.written: Excerpts = fill(self.path, _NAME, _COUNTS)
        self.files = [noon_path(self.path, _NAME), self.path / FILE_NAME]
        self.whole = [file.read_bytes().rstrip(b"\0") for file in self.files]
        self._wrong: int | None = None

    def place(self, which: int, content: bytes, zeros: int) -> Path:
        """Puts these bytes in place of one file; the second one holds the right ones."""
        if self._wrong is not None and self._wrong != which:
            self._write(self._wrong, self.whole[self._wrong] + bytes(512))
        self._wrong = which
        return self._write(which, content + bytes(zeros))

    def _write(self, which: int, content: bytes) -> Path:
        """Writes over the old bytes: to make a file anew takes ten times as long."""
        with self.files[which].open("r+b") as file:
            file.write(content)
            file.truncate()
        return self.files[which]


@lru_cache
def sample() -> Sample:
    """The one queue of this process."""
    return Sample()


def queue_any(data: bytes) -> None:
    """A store file of any bytes: excerpts with rising indexes, or an error of ours."""
    head, content = data[:2].ljust(2, b"\0"), data[2:]
    path = sample().place(_FIRST, content, _ZEROS[head[0] % len(_ZEROS)])
    start = noon_index(_NAME, sequence=head[1])
    limit = 2 * (len(content) + len(sample().whole[_FIRST]))
    for index in (0, start):
        excerpts = read(sample().path, index)
        assert all(first < second for (first, _), (second, _) in pairwise(excerpts))
        assert sum(len(payload) for _, payload in excerpts) <= limit
        assert all(at >= index for at, _ in excerpts)
    _dump(path, start)


def read(path: Path, index: int) -> Excerpts:
    excerpts: Excerpts = []
    with only(QueueError), Queue.open(path) as queue:
        first, last = queue.first_index(), queue.last_index()
        assert (first is None) == (last is None)
        queue.next_index()
        excerpts += rest_of(queue.tailer(index))
    return excerpts


def _dump(path: Path, index: int) -> None:
    with path.open("rb") as file, only(WireError):
        opened = Input(file, path)
        opened.open_documents()
        shown: list[Entry] = list(opened.entries(index))
        assert all(isinstance(entry.text(), str) for entry in shown)
    with only(WireError):
        for entry, _ in zip(follow(path), range(_LOOKS_MAX), strict=False):
            if entry is None:
                break


def table_any(data: bytes) -> None:
    """A table store of any bytes: a layout and values, or an error of ours."""
    head, content = data[:1].ljust(1, b"\0"), data[1:]
    path = sample().place(_TABLE, content, _ZEROS[head[0] % len(_ZEROS)])
    with only(QueueError):
        table = TableStore(path, writable=False)
        try:
            for key in ("listing.highestCycle", "chronicle.write.lock", "none"):
                value = table.find(key)
                if value is not None:
                    value.load()
        finally:
            table.close()
    cycle_of_file(sample().files[_FIRST])
    excerpts = read(sample().path, 0)
    assert len(excerpts) <= len(sample().written)
    _dump(path, 0)


def _own_store() -> list[bytes]:
    return [sample().whole[_FIRST] + bytes(4)]


def _own_table() -> list[bytes]:
    return [sample().whole[_TABLE] + bytes(4)]


_golden = spread(stores, 40, length_max=_LENGTH_MAX)
TARGETS: Final[Family] = {
    "queue": Target(
        run=queue_any,
        seeds=changed(both(_own_store, _golden), lambda store: b"\x03\x05" + store),
        tokens=TOKENS,
        length_max=_LENGTH_MAX,
    ),
    "table-store": Target(
        run=table_any,
        seeds=changed(both(_own_table, _golden), lambda table: b"\x03" + table),
        tokens=TOKENS,
        length_max=_LENGTH_MAX,
    ),
}
