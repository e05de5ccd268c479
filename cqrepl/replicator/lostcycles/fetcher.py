"""Takes closed cycles of a queue from another host: those that are missing here, or are damaged.

Theory of operation. What each closed cycle held is noted (`queue.files.closedcycles`). For each one
whose store file is missing between others, holds less, or other excerpts, the host is asked. What
it gives is appended to a queue of its own below the directory, closed, and held against
the note: number and chain. Only then its store file takes the place of the old one, which goes to
quarantine. A kill at any moment leaves the queue as it was, or mended up to some cycle.
"""

import fcntl
import math
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.net.threads import in_thread
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.fetches import (
    EXCERPTS,
    FETCHED,
    MORE,
    REFUSED,
    read_excerpts,
    read_more,
)
from cqrepl.protocol.settings import EXCERPT_MAX
from cqrepl.protocol.subhandler import LinkView
from cqrepl.queue import Appender, ExcerptBatch, Queue, QueueDamaged, QueueError
from cqrepl.queue.files.beneath import make_beneath
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.files.cutreports import FOLDER_NAME as QUARANTINE
from cqrepl.queue.format.index import SEQUENCE_FIRST, Sequence, index_of
from cqrepl.queue.inspection.closedfiles import is_as_noted
from cqrepl.queue.read.count import count_in
from cqrepl.replicator.lostcycles.fetchkind import CSP_PREFIX, FETCH_CAPABILITY, FetchKind
from cqrepl.surroundings import surroundings, sync_path
from wire import Reader, WireError

FOLDER_PREFIX: Final = "cqrepl-fetched-"
SILENCE_SECONDS: Final = 40.0  # a host that says nothing for so long gives nothing


class FetchTold(NamedTuple):
    """A part of a queue that a host gives to the host that has asked."""

    csp: str
    name: str
    value: Any  # bytes, excerpts or a text, by the name


class _Store:
    """One cycle as it comes."""

    def __init__(self, queue: Queue, record: ClosedCycle) -> None:
        self._record = record
        self._shift = queue.cycles.shift
        self._target = queue.path
        remove_left(queue.path)
        self.path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=queue.path))
        self._held = _hold(self.path)
        self._lengths: deque[int] = deque()
        self._first = SEQUENCE_FIRST
        self._data = bytearray()
        try:
            self._queue = Queue.open_for_append(self.path, create=queue.layout)
        except BaseException:
            self._remove()
            raise
        self._appender: Appender = self._queue.appender(payload_max=NO_LIMIT)

    def take(self, lengths: list[int], data: bytes) -> None:
        """Takes what comes next of the stream."""
        noted = self._record.excerpts
        come = self._first + len(self._lengths) + len(lengths)
        if come > noted or max(lengths, default=0) > EXCERPT_MAX:
            raise QueueDamaged(
                f"expected {noted} excerpts that were noted when the cycle was closed, each of at"
                f" most {EXCERPT_MAX} bytes, the other host gives more",
                path=self._queue.cycles.path_of(self._record.cycle),
            )
        self._lengths += lengths
        self._data += data
        payloads, at = [], 0
        while self._lengths and at + self._lengths[0] <= len(self._data):
            length = self._lengths.popleft()
            payloads.append(bytes(self._data[at : at + length]))
            at += length
        if payloads:
            del self._data[:at]
            index = index_of(self._record.cycle, self._first, self._shift)
            self._appender.append_at(ExcerptBatch.of(index, payloads))
            self._first = Sequence(self._first + len(payloads))

    def put(self) -> None:
        """All has come: holds it against what was noted, and puts it in its place.

        Raises:
            QueueDamaged: it is something else.
        """
        record, cycles = self._record, self._queue.cycles
        self._appender.end_cycle()
        self._appender.close()
        new = cycles.path_of(record.cycle)
        if not is_as_noted(cycles, record) or count_in(cycles, record.cycle) != record.excerpts:
            raise QueueDamaged(
                f"expected the {record.excerpts} excerpts that were noted when the cycle was"
                f" closed, the other host has {self._first}, or others",
                path=new,
            )
        sync_path(new)
        file = self._target / new.name
        if file.exists():
            nth = 1
            while (folder := self._target / QUARANTINE / f"{new.stem}-replaced-{nth}").exists():
                nth += 1
            make_beneath(self._target, folder)
            surroundings().rename(file, folder / new.name)
        surroundings().rename(new, file)
        sync_path(self._target)

    def close(self) -> None:
        """Nothing of it stays but what was put in its place."""
        try:
            self._appender.close()
            self._queue.close()
        finally:
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _hold(folder: Path) -> int:
    """Keeps others from removing it, until the descriptor is closed; they hold it: OSError."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def remove_left(queue: Path) -> None:
    """Removes what commands left that were killed, and nothing that one is at work in."""
    for folder in queue.glob(f"{FOLDER_PREFIX}*"):
        try:
            held = _hold(folder)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


class _Taker:
    """Our half of a conversation: hands on what comes."""

    deadline = math.inf

    def __init__(self, csp: str, link: LinkView, closed: Callable[[str], None]) -> None:
        self.csp = csp
        self._link = link
        self._closed = closed

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        try:
            match name:
                case "excerpts":
                    self._tell(EXCERPTS, read_excerpts(reader))
                case "more":
                    self._tell(MORE, read_more(reader))
                case "fetched":
                    self._tell(FETCHED, reader.read_int())
                case "refused":
                    self._tell(REFUSED, reader.read_text() or "")
                case _:
                    return False
        except (KeyError, ValueError) as error:
            raise WireError(f"a part of a store file expected: {error!r}") from error
        return True

    def produce(self, room: int) -> bytes:
        return b""

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def closed(self, reason: str) -> None:
        self._closed(reason)

    def _tell(self, name: str, value: object) -> None:
        self._link.tell(FetchTold(self.csp, name, value))


class Asker:
    """Asks for one cycle after the other. A program of its own, or a part of one.

    Args:
        name: of the queue, at the host that is asked.
        stays: with a new connection it asks again for what did not come; else it ends with the one
            it has.
    """

    def __init__(self, queue: Queue, wanted: list[ClosedCycle], name: str, *, stays: bool) -> None:
        self.kinds = (FetchKind({}),)
        self.done = trio.Event()
        self.error: Exception | None = None
        self._queue = queue
        self._wanted = deque(wanted)
        self.heard = 0  # so many parts
        self.csp = CSP_PREFIX + name
        self._stays = stays
        self._is_asking = False
        self._store: _Store | None = None
        self._cid = Cid(0)
        self._link: LinkView | None = None  # that of the host which is asked

    async def connected(self, link: LinkView) -> None:
        if FETCH_CAPABILITY not in link.capabilities:
            self.end(Refused("the other host gives no store files, as Java's do not"))
        else:
            await self._ask(link)

    async def told(self, link: LinkView, event: object) -> None:
        if self.done.is_set() or self._store is None or link is not self._link:
            return  # the last of these: a host that was given up, and goes on
        assert isinstance(event, FetchTold)
        self.heard += 1
        name, value = event.name, event.value
        try:
            if name == EXCERPTS:
                await in_thread(partial(self._store.take, value.lengths, value.data))
            elif name == MORE:
                await in_thread(partial(self._store.take, [], value))
            elif name == FETCHED:
                await in_thread(self._store.put)
                self._wanted.popleft()
                self._is_asking = False
                link.remove(self._cid)
                await self._ask(link)
            else:
                file = self._queue.cycles.path_of(self._wanted[0].cycle).name
                self.end(Refused(f"{file}: the other host says: {value}"))
        except (QueueError, OSError) as error:
            self.end(error)

    async def _ask(self, link: LinkView) -> None:
        self._close()
        if not self._wanted:
            self.done.set()
            return
        try:
            self._store = await in_thread(partial(_Store, self._queue, self._wanted[0]))
        except (QueueError, OSError) as error:
            self.end(error)
            return
        taker = _Taker(self.csp, link, self._left)
        self._cid = link.register(self.csp, self.kinds[0], int(self._wanted[0].cycle), taker)
        self._link, self._is_asking = link, True
        link.wake(self._cid)  # this is no task of the connection, which may be asleep

    def _left(self, reason: str) -> None:
        """The connection is over, or its peer gives nothing more."""
        if self._is_asking and not self._stays:
            self.end(Unreachable(reason))

    async def ended(self, host: str) -> None:
        """Returns when all has come, or nothing more does."""
        while not self.done.is_set():
            heard = self.heard
            with trio.move_on_after(SILENCE_SECONDS):
                await self.done.wait()
            if not self.done.is_set() and self.heard == heard:
                why = f"{host}: nothing of a store file came for {SILENCE_SECONDS:g} s"
                self.end(Unreachable(why))

    def check(self) -> None:
        """Does nothing when all has come.

        Raises:
            Unreachable: the host says nothing for too long, or has left.
            Refused: it does not give them.
            QueueDamaged: what it gives is not what was there.
            QueueError, OSError: it cannot be stored.
        """
        if self.error is not None:
            raise self.error

    def end(self, error: Exception) -> None:
        """It cannot be done."""
        was_asking, self._is_asking = self._is_asking, False
        if was_asking and self._link is not None:
            with suppress(LocalProtocolError):  # that connection is over
                self._link.remove(self._cid)
        self._close()
        self.error = error
        self.done.set()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
