"""The promise of an append when it returns, and the group commit that keeps the stronger promise.

    none     in the mapped file: survives the death of any process, not a power cut
    synced   on the disk, with everything before it: survives a power cut too

Theory of operation. Store files have no checksums, so a header word on the disk over a payload that
is not would be read as a good excerpt. The kernel writes pages back in any order at any time; only
a sync orders them. A synced writer therefore goes, under the write lock,

    1  lay         payloads and inner headers; the first header word is 0, no reader sees them
    2  sync        all from the last synced place to the end of the run, other writers' too
    3  publish     the first header word
    4  sync        that word
    5  record      write position, index slots: never ahead of the documents, on the disk neither

and the same for a new store file (its header word last, then the directory, then the table store),
a new index page, and the end-of-file mark (which is on the disk before `normalisedEOFsTo` says so).
A power cut may take any subset of later pages, and leaves in any case: every excerpt whose append
returned; after them, in order, some that were published in 3 and are whole; and nothing else. Marks
that lag behind are made up for by walking. The write lock is held over both syncs: releasing it
earlier would mean publishing before 2.

The promise holds for what is appended with `synced`, and for all before it. What other writers
(Java, or this package with `none`) append behind it is theirs: after a power cut their last
excerpts may be missing, or be there with bytes that read as zeros, and their marks may lie beyond
the last document; `storewriter` tells what an appender does then.

Between 3 and 5, for the time of a sync, the excerpt can be read and no mark names it yet. Readers
walk, so that is nothing to them; but while it is the first excerpt of its file, Java's `lastIndex`
and `toEnd` do not find the end, as for the shorter moment that Java's own writers leave there.

Group commit: a caller that finds a sync running waits; when it ends one of the waiting callers
appends for all of them, as one batch with two syncs. There is no delay to gather more.

A failed sync is final. The kernel may have dropped the pages, and a second sync would report
success: so every later append through this queue is refused, waiting callers included, and in every
other process that is started before the machine is: the synced mark says so (`files.syncedmark`),
to hosts as well. An append that ends so may or may not be in the queue.
"""

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.syncedmark import HAS_FAILED, load_synced, note_failed_sync
from cqrepl.queue.format.errors import DurabilityLost, QueueError


class Durability(Enum):
    """The promise that holds for an excerpt when its append returns."""

    NONE = "none"  # it is in the mapped file; the kernel writes it back when it pleases
    SYNCED = "synced"  # it is on the disk, and everything before it


@dataclass(slots=True, eq=False)
class Pending:
    """Excerpts that a caller waits for; in the end either the index of the last, or an error."""

    payloads: Sequence[bytes | memoryview]
    now_ms: int
    index_last: int | None = None
    error: QueueError | OSError | None = None

    @property
    def is_done(self) -> bool:
        return self.index_last is not None or self.error is not None


class GroupCommit:
    """Syncs for all synced appenders of one open queue."""

    def __init__(self, path: Path) -> None:
        """For the queue in a directory."""
        self._path = path
        self._has_begun = False
        self._durable: tuple[Path, int] | None = None  # in the store file that was last noted
        self._lost: DurabilityLost | None = None
        self._listing: Listing | None = None  # once it has begun
        self._renew()
        _living.add(self)

    def _renew(self) -> None:
        self._turn = threading.Condition()
        self._waiting: list[Pending] = []
        self._is_led = False

    def check(self) -> None:
        """Does nothing while every sync has succeeded.

        Raises:
            DurabilityLost: one has failed.
        """
        lost = self._lost
        if lost is not None:
            raise DurabilityLost(lost.reason, path=lost.path) from lost.__cause__

    def begin(self, listing: Listing) -> None:
        """Makes the directory and the table store durable, once.

        Raises:
            DurabilityLost: they may never get there, or a sync has failed in another process.
        """
        if not self._has_begun:
            self._listing = listing
            self._check_others()
            self.sync_names(listing)
            self._sync_directory(self._path.absolute().parent)
            self._has_begun = True

    def sync(self, mapping: Mapping, start: int, end: int) -> None:
        """Returns when these bytes of a file are on the disk.

        Raises:
            DurabilityLost: they may never get there.
        """
        self._final(mapping.path, lambda: mapping.sync(start, end))

    def note(self, path: Path, position: int) -> None:
        """Records that all documents of a store file before a position are published and synced."""
        self._durable = path, position

    def is_durable(self, path: Path, position: int) -> bool:
        """True when that has been recorded for this position, by any appender of the queue."""
        durable = self._durable
        return durable is not None and durable[0] == path and position <= durable[1]

    def sync_names(self, listing: Listing) -> None:
        """Returns when the names in the queue's directory and the table store are on the disk.

        Raises:
            DurabilityLost: they may never get there.
        """
        self._sync_directory(self._path)
        self._final(self._path, listing.sync)

    def append(self, pending: Pending, lead: Callable[[list[Pending]], None]) -> int:
        """Has excerpts appended, by this thread or another; the index of the last.

        Args:
            lead: appends for all of a list, and sets index or error of each.

        Raises:
            DurabilityLost: a sync has failed.
            QueueError, OSError: what the append ended with.
        """
        with self._turn:
            self._waiting.append(pending)
            while self._is_led and not pending.is_done:
                self._turn.wait()
            if not pending.is_done:
                self._is_led = True
                led, self._waiting = self._waiting, []
        if not pending.is_done:
            self._lead(led, lead)
        if pending.error is not None:
            raise pending.error
        assert pending.index_last is not None
        return pending.index_last

    def _lead(self, led: list[Pending], lead: Callable[[list[Pending]], None]) -> None:
        failure: QueueError | OSError = QueueError(
            "expected an append to end, the thread that did it for this one was interrupted",
            path=self._path,
        )
        try:
            lead(led)
        except (QueueError, OSError) as error:
            failure = error
        finally:
            with self._turn:
                for each in led:
                    if not each.is_done:
                        each.error = failure
                self._is_led = False
                self._turn.notify_all()

    def _check_others(self) -> None:
        """Looks what was noted since the machine was started."""
        with suppress(OSError):  # of a mark that cannot be read hosts tell
            mark = load_synced(self._path)
            if mark is not None and mark.has_failed:
                self._lost = DurabilityLost(HAS_FAILED, path=self._path)
        self.check()

    def _sync_directory(self, path: Path) -> None:
        self._final(path, lambda: Mapping.sync_directory(path))

    def _final(self, path: Path, sync: Callable[[], None]) -> None:
        """Syncs; a failure ends this and everything later."""
        self.check()
        try:
            sync()
        except OSError as error:
            reason = f"expected it to reach the disk, the sync failed: {_named(error)}"
            self._lost = DurabilityLost(reason, path=path)
            self._lost.__cause__ = error
            if error.filename is None:  # else a directory was not opened
                self._note_failed()
            self.check()

    def _note_failed(self) -> None:
        """For hosts, and for the next process. What was appended so before is on the disk."""
        assert self._listing is not None  # nothing is synced before it has begun
        with suppress(OSError):  # the error that is raised tells as well
            note_failed_sync(self._path, self._listing.synced() + 1)


_living: "weakref.WeakSet[GroupCommit]" = weakref.WeakSet()


def _renew_all() -> None:
    """A forked child has none of the threads that lead or wait."""
    for each in _living:
        each._renew()


os.register_at_fork(after_in_child=_renew_all)


def _named(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, error.errno)} {error.strerror}"
