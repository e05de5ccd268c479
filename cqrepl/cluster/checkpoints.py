"""Saves the state of a service now and then, gives it back, and lets store files go behind it.

Theory of operation. A checkpoint is taken in the feed's thread, between two batches, so it is the
state at one position. It gets its name only once everything in it is as safe as the queue's policy
wants it: so no quarantine reaches below a checkpoint that has one. Until then it waits, as a file
without a name that counts (`queue.files.checkpointfile`), and goes where the queue is cut below it.

Store files go only behind what can be made again. The newest checkpoint may be found damaged when
it is needed; so the older one is read back, and what it has not passed stays. The host that leads
knows how far all members are, and deletes what each of them has passed; a host that follows deletes
what the one that leads has no more.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import trio

from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue, QueueDamaged, QueueError
from cqrepl.queue.files.checkpointfile import (
    FOLDER_NAME,
    JOINED_NAME,
    Checkpoint,
    checkpoints_in,
    give_name,
    open_checkpoint,
    put_aside,
    remove_parts,
    write_part,
)
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.files.sidefile import open_side_file
from cqrepl.queue.files.tablestore import FILE_NAME as TABLE_NAME
from cqrepl.queue.format.epochs import number_of
from cqrepl.queue.format.index import Cycle, format_index
from cqrepl.queue.format.logpos import LogPos, is_on
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.followfeed import Saved
from cqrepl.surroundings import make_synced, surroundings, sync_path

LOOK_SECONDS: Final = 0.25
KEEP_MIN: Final = 2  # the older one is what store files go behind
_HOUR_MS: Final = 3_600_000
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """The times at which state is saved, and how much of the past is kept.

    Args:
        interval_seconds: a state is saved once this is over, if anything has come since.
        records: or once so many excerpts have come.
        keep: so many checkpoints are kept.
        directory: theirs, with a folder for each group; None: `snapshots` in the queue's.
        age_min_ms: no store file goes that is younger; None: none goes at all.
    """

    interval_seconds: float = 600.0
    records: int = 1_000_000
    keep: int = KEEP_MIN
    directory: Path | None = None
    age_min_ms: int | None = 24 * _HOUR_MS

    def __post_init__(self) -> None:
        if self.keep < KEEP_MIN:
            raise ValueError(
                f"expected at least {KEEP_MIN} checkpoints to be kept, got {self.keep}"
            )
        if self.records < 1 or self.interval_seconds <= 0:
            raise ValueError(
                "expected a time and a number of records above 0,"
                f" got {self.interval_seconds} s and {self.records}"
            )


class Joining(Protocol):
    """Takes snapshots from other hosts (`cluster.snapshots`)."""

    async def fetch(self, name: str, folder: Path, to: LogPos | None) -> Path | None:
        """A checkpoint without a name in this folder, read back and found good; None where no host
        gives one."""

    async def begin_of(self, name: str) -> int:
        """The index that the queue begins at on other hosts, of which they lack the start; 0 where
        they have it, or no host says."""

    @property
    def refusals(self) -> list[str]:
        """Why no host gave one, the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The store files that a host may delete.

    Args:
        members: the other hosts, which have to have passed what a host that leads deletes; None on
            a host that follows.
        keep_from: the first cycle that the leader has; None where that is not known.
    """

    members: frozenset[int] | None = None
    keep_from: Cycle | None = None


class Checkpointer:
    """The checkpoints of one group on this host.

    Args:
        path: directory of the queue.
        keeping: is asked what may be deleted now, in the feed's thread.

    Attributes:
        latest: the newest one that has its name; None for none.
    """

    def __init__(
        self,
        group: str,
        path: Path,
        settings: CheckpointSettings | None = None,
        joining: Joining | None = None,
        keeping: Callable[[], Keeping] = Keeping,
    ) -> None:
        self.group = group
        self.latest: Checkpoint | None = None
        self._path = path
        self._settings = settings or CheckpointSettings()
        directory = self._settings.directory
        self.folder: Final = path / FOLDER_NAME if directory is None else directory / group
        self._joining = joining
        self._keeping = keeping
        self._waiting: tuple[LogPos, Path] | None = None  # for its name
        self._saved_at = surroundings().monotonic()
        self._saved_records = 0
        self._saved_index = 0
        self._has_begun = False

    def is_due(self, index: int, committed: int, records: int) -> bool:
        """True when a state is to be saved, or one that was can be given its name."""
        if self._waiting is not None:
            return committed >= self._waiting[0].index - 1
        if index == self._saved_index:
            return False
        late = surroundings().monotonic() >= self._saved_at + self._settings.interval_seconds
        return late or records - self._saved_records >= self._settings.records

    def save(
        self, pos: LogPos, committed: int, records: int, snapshot: Callable[[BinaryIO], None]
    ) -> None:
        """Saves the state at a position, or gives one that was its name."""
        try:
            if self._waiting is None:
                self._begin()
                self._saved_at = surroundings().monotonic()
                self._saved_records, self._saved_index = records, pos.index
                self._waiting = (pos, write_part(self.folder, self.group, pos, snapshot))
            if self._waiting[0].index - 1 <= committed:
                self._name()
        except OSError as error:
            _logger.warning("queue %r: its state cannot be saved: %s", self.group, error)
            self._waiting = None

    def newest(self, to: LogPos | None) -> Saved | None:
        """The newest one that is not above a position; what is above, or damaged, is put aside."""
        if self._waiting is not None and (to is None or self._waiting[0].index > to.index):
            self._drop_waiting()
        self._begin()
        self.latest = None
        history = load_epochs(self._path).history
        for each in checkpoints_in(self.folder):
            why = ""
            if to is not None and each.pos.index > to.index:
                why = f"the queue was cut at {format_index(to.index)}"
            elif each.pos.epoch <= number_of(history) and not is_on(history, each.pos):
                why = "the queue has not gone through that epoch there"
            if not why:
                try:
                    pos, state = open_checkpoint(each.path, self.group)
                except (QueueDamaged, OSError) as error:
                    why = str(error)
                else:
                    self.latest = each
                    return Saved(pos, state)
            self._put_aside(each, why)
        return None

    async def fetch(self, name: str, to: LogPos | None) -> Saved | None:
        """A snapshot of another host, which is this host's newest checkpoint from then on."""
        if self._joining is None:
            return None
        while not (self._path / TABLE_NAME).exists():  # the copy comes first
            await trio.sleep(LOOK_SECONDS)
        await in_thread(self._begin)
        part = await self._joining.fetch(name, self.folder, to)
        if part is None:
            return None
        await in_thread(self._note_joined)
        self.latest = give_name(part)
        return Saved(*open_checkpoint(self.latest.path, self.group))

    async def begin_of(self, name: str) -> int:
        """The index that the queue begins at on other hosts; 0 for its start."""
        return 0 if self._joining is None else await self._joining.begin_of(name)

    @property
    def refusals(self) -> list[str]:
        """Why no host gave a snapshot, the last time."""
        return [] if self._joining is None else self._joining.refusals

    def _note_joined(self) -> None:
        """This copy may be without the start of the queue: who asks later is told."""
        self._begin()
        os.close(open_side_file(self.folder / JOINED_NAME, os.O_WRONLY | os.O_CREAT))
        sync_path(self.folder)

    def _begin(self) -> None:
        """The folder is there once the queue is, and tells retention that it has to wait. A
        directory with it alone would be taken for none where a queue may come."""
        if self._has_begun or not (self._path / TABLE_NAME).exists():
            return
        make_synced(self.folder)
        own = self._path / FOLDER_NAME
        if own != self.folder and self._path.is_dir() and not own.exists():
            own.symlink_to(self.folder.absolute(), target_is_directory=True)
        remove_parts(self.folder)
        self._has_begun = own.exists()

    def _name(self) -> None:
        assert self._waiting is not None
        _, part = self._waiting
        self._waiting = None
        self.latest = give_name(part)
        _logger.info("queue %r: its state is saved: %s", self.group, self.latest.path.name)
        for each in checkpoints_in(self.folder)[self._settings.keep :]:
            surroundings().unlink(each.path, missing_ok=True)
        self._collect()

    def _drop_waiting(self) -> None:
        if self._waiting is not None:
            surroundings().unlink(self._waiting[1], missing_ok=True)
            self._waiting = None

    def _put_aside(self, checkpoint: Checkpoint, why: str) -> None:
        bad = put_aside(checkpoint)
        told = "queue %r: a checkpoint was put aside as %s: %s"
        _logger.warning(told, self.group, bad.name, why)

    def _collect(self) -> None:
        """Deletes the store files that are needed no more."""
        age, keeping = self._settings.age_min_ms, self._keeping()
        if age is None or (keeping.members is None and keeping.keep_from is None):
            return
        policy = Policy(
            keep_from_ms=surroundings().wall_ms() - age,
            members=keeping.members or frozenset(),
            keep_from=keeping.keep_from,
        )
        with suppress(FileNotFoundError):
            try:
                with Queue.open(self._path) as queue:
                    gone = remove(queue.cycles, policy)
            except QueueError as error:
                _logger.warning("queue %r: no store file is deleted: %s", self.group, error)
                return
            if gone:
                told = "queue %r: %d store files deleted, behind its older checkpoint"
                _logger.info(told, self.group, len(gone))
