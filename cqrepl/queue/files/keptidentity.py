"""The identity of a queue in its table store, see `format.identity`.

Theory of operation. It is two longs under keys of ours, which Java passes over as it does over the
names of tailers:

    cqrepl.identity.high    the first half; 0: there is none
    cqrepl.identity.low     the second half

The first half counts, so it is stored last, and is 0 while the second one changes. A reader looks
at the first half before and after the second. Those who store hold the table lock. Each store is on
the disk before the next one, but for the first identity where both halves are on one page: a power
cut leaves the old identity, or none, or the new one, and never half of each. And all of it is there
before any other thread, process or host hears of it: a copy knows none that its source has lost.

A first identity on one page is one store, and one sync, which is done without the table lock: with
that goes a guard that no thread can open or close any file without, and a host begins with hundreds
of queues. Until then there is none for the threads of this process: one that is to give it one,
too, waits, and one that only looks finds none. Another process that finds it syncs it itself.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.tablestore import PAGE_BYTES, TableStore, TableValue
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.identity import LONG_BYTES, Identity, identity_of, longs_in, longs_of
from cqrepl.surroundings import surroundings

HIGH_KEY: Final = "cqrepl.identity.high"
LOW_KEY: Final = "cqrepl.identity.low"

Values = tuple[TableValue, TableValue]


class _Makers:
    """The threads that give queues their first identity: one at a time of this process for each
    queue."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._at_work: set[Path] = set()
        self.unsettled: set[Path] = set()  # the identity there may not be on the disk
        self._changed = threading.Condition()

    @contextmanager
    def alone(self, path: Path) -> Iterator[None]:
        """No other thread is in such a block for this table store."""
        with self._changed:
            self._changed.wait_for(lambda: path not in self._at_work)
            self._at_work.add(path)
        try:
            yield
        finally:
            with self._changed:
                self.unsettled.discard(path)
                self._at_work.discard(path)
                self._changed.notify_all()


_MAKERS: Final = _Makers()


class KeptIdentity:
    """The identity of one queue; to be used by any thread.

    Args:
        path: of the table store, which is open only while it is needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Identity | None:
        """The identity now; None where there is none. Nothing is changed.

        Raises:
            OSError, QueueError: the table store cannot be read.
        """
        try:
            table = TableStore(self._path, writable=False)
        except FileNotFoundError:
            return None
        with closing(table):
            high, low = table.find(HIGH_KEY), table.find(LOW_KEY)
            if high is None or low is None:
                return None
            found = _load((high, low))
            is_settled = self._path not in _MAKERS.unsettled
            # looked at once more: its sync may have failed in between, which has taken it back
            return found if is_settled and _load((high, low)) == found else None

    def keep(self, make: Callable[[], Identity]) -> Identity | None:
        """Gives a queue without identity one; what it has then, which another process may have been
        quicker to give it.

        Returns:
            None where none can be kept: the directory is read only, say, or the table store full.

        Raises:
            OSError: it may not be on the disk.
            QueueError: another process keeps the table lock.
        """
        with _MAKERS.alone(self._path), self._opened() as pair:
            if pair is None:
                return None
            made = None
            with pair.locked():
                if _load(pair.values) is None:
                    _MAKERS.unsettled.add(self._path)
                    made = make()
                    pair.lay(made)
            pair.settle(made)
            return _load(pair.values)

    def replace(self, identity: Identity) -> bool:
        """Gives a queue another identity; false where none can be kept.

        Raises: as `keep`.
        """
        with self._opened() as pair:
            if pair is None:
                return False
            with pair.locked():
                pair.lay(identity)
                pair.settle(identity)
            return True

    @contextmanager
    def _opened(self) -> Iterator["_Pair | None"]:
        """The two longs, for the length of a block."""
        try:
            atomics.require()
            table = TableStore(self._path, writable=True)
        except (OSError, QueueError):
            yield None  # no table store, read only, or no atomics
            return
        with closing(table):
            values = _find(table)
            yield None if values is None else _Pair(table, values)


class _Pair:
    """The two longs in a table store."""

    def __init__(self, table: TableStore, values: Values) -> None:
        self._table = table
        self.values = values

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other processes and threads from storing there, for the length of a block.

        Raises:
            QueueError: another process keeps the table lock.
        """
        return self._table.locked()

    def lay(self, identity: Identity) -> None:
        """Stores both halves, so that a power cut leaves no mixture; none where that fails. They
        may not be on the disk before `settle`."""
        first, second = longs_of(identity)
        high, low = self.values
        is_apart = high.position // PAGE_BYTES != low.position // PAGE_BYTES
        in_steps = is_apart or high.load() != 0
        try:
            for value, long in ((high, 0), (low, second), (high, first)):
                value.store(long)
                if in_steps:
                    self._table.sync()
        except OSError:
            high.store(0)  # no reader may hear of what may not be on the disk
            raise

    def settle(self, laid: Identity | None) -> None:
        """Brings what is stored there to the disk; where that fails, takes back what was laid."""
        try:
            self._table.sync()
        except OSError:
            if laid is not None and _load(self.values) == laid:
                self.values[0].store(0)  # as above
            raise


def new_identity() -> Identity:
    """One that no other queue has."""
    while True:
        data = surroundings().random_bytes(2 * LONG_BYTES)
        found = identity_of(*longs_in(data))
        if found is not None:
            return found


def _find(table: TableStore) -> Values | None:
    """The two longs, which are added where they are not there; None where there is no room."""
    high = table.value_within(HIGH_KEY, 0, KEY_END_MAX)
    low = table.value_within(LOW_KEY, 0, KEY_END_MAX)
    return None if high is None or low is None else (high, low)


def _load(values: Values) -> Identity | None:
    high, low = values
    while True:
        first, second = high.load(), low.load()
        if high.load() == first:
            return identity_of(first, second)
