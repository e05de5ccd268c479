"""The epochs of one queue of a running host: what it has promised, and what it holds.

A promise is on the disk, where it outlives a power cut, before any other host hears of it
(`queue.files.epochfile`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.epochfile import load_epochs, store_epochs
from cqrepl.queue.format.epochs import (
    Epochs,
    History,
    parting,
    promised_otherwise,
)
from cqrepl.queue.format.index import Index
from cqrepl.queue.quarantine import first_behind


class Fenced(QueueError):
    """Another host leads the queue: nothing of it goes out from here any more."""


class Tail(NamedTuple):
    """Excerpts of a copy that its source never had.

    Args:
        beyond: its first index, and the next index of what stays; None for nothing.
        may_differ_from: from this index on there may be more of it, which chains tell; None: there
            is none.
    """

    beyond: tuple[Index, Index] | None
    may_differ_from: Index | None


class KeptEpochs:
    """The epochs of one queue, as they are on the disk. Any thread may change them: of two promises
    at once the second one finds the first. They are read once: when they are asked for first.

    Args:
        path: of its directory, which may not be there yet.
        host_id: of this host, in a cluster; else 0, and who streams the queue is not noted.
    """

    def __init__(self, path: Path, host_id: int = 0) -> None:
        self._path = path
        self._own = host_id
        self._now: Epochs | None = None
        self._promotions = 0  # of this host, under way
        self._guard = threading.Lock()  # of a change, up to when it is on the disk

    @property
    def are_known(self) -> bool:
        """True once they could be read."""
        return self._now is not None

    @property
    def now(self) -> Epochs:
        """All of them.

        Raises:
            OSError, QueueDamaged: they cannot be read, now; only until they are known.
        """
        if self._now is None:
            self._now = load_epochs(self._path)
        return self._now

    @property
    def has_led_last(self) -> bool:
        """True where this host leads the queue by what is on its disk: in an epoch that it has
        begun, or, with none promised, as the last one that streamed it."""
        now = self.now
        return bool(self._own) and now.promised_to == self._own and now.may_lead(self._own)

    def promise(self, number: int, host_id: int, members: frozenset[int] = frozenset()) -> None:
        """Nothing is taken from a lower epoch from now on. This host gives up its own claim to an
        epoch that another host asks for or has begun (`Epochs.is_own_claim`).

        Args:
            members: in that epoch; empty: as before.

        Raises:
            Fenced: it, or a higher one, is promised to another host.
            OSError: it may not be on the disk; then it is not promised either.
        """
        with self._guard:
            now = self.now.without_claim() if self.may_give_up(number) else self.now
            try:
                self._keep(now.promise(number, host_id, members))
            except ValueError as error:
                raise Fenced(str(error), path=self._path) from None

    def may_give_up(self, number: int) -> bool:
        """True where this host has promised an epoch to itself, has not begun it, and is not on its
        way to."""
        is_own = bool(self._own) and self.now.is_own_claim(number, self._own)
        return is_own and not self._promotions

    @contextmanager
    def being_promoted(self) -> Iterator[None]:
        """For the length of a block this host is on its way to lead: it gives up no claim."""
        self._promotions += 1
        try:
            yield
        finally:
            self._promotions -= 1

    def note_streaming(self, host_id: int | None = None) -> None:
        """A host streams the queue, None for this one. Where nothing was promised, copies agree by
        that on who led last.

        Raises:
            OSError: it may not be on the disk.
        """
        if self._own:
            with self._guard:
                self._keep(self.now.streamed_from(host_id or self._own))

    def adopt(self, history: History) -> None:
        """The copy is proved to hold what a source of this history does.

        Raises:
            OSError: that may not be on the disk.
        """
        with self._guard:
            self._keep(self.now.adopt(history))

    def open(self, number: int, host_id: int, end: int, history: History) -> None:
        """The host that has the promise leads from now on.

        Args:
            end: the next index of its copy.
            history: of what the copy holds, which may have come from another one just now.

        Raises:
            Fenced: another epoch was promised meanwhile.
            OSError: that may not be on the disk.
        """
        with self._guard:
            if (number, host_id) != (self.now.promised, self.now.promised_to):
                raise Fenced(promised_otherwise(self.now, number, host_id), path=self._path)
            self._keep(replace(self.now, history=history).opened(end))

    def check_leads(self, host_id: int) -> None:
        """Does nothing where this host may stream the queue.

        Raises:
            Fenced: another one leads, or is to.
        """
        now = self.now
        if now.may_lead(host_id):
            return
        if now.promised_to == host_id:
            why = f"epoch {now.promised} was promised to this host, which has not begun it"
        else:
            why = f"host {now.promised_to} leads it in epoch {now.promised}"
        raise Fenced(f"{why}: nothing of it goes out from host {host_id}", path=self._path)

    def tail_of(self, queue: Queue, history: History | None, offered: int) -> Tail:
        """The excerpts of a copy that a source of this history never had: a host wrote them that
        led no longer.

        Args:
            history: None for a source that does not say.
            offered: the source's next index.

        Raises:
            QueueError: the copy cannot be read.
        """
        end = queue.next_index()
        found = None if history is None else parting(self.now.history, history)
        if found is None or found.at >= end:
            return Tail(None, None)
        if found.is_known:
            return Tail(first_behind(queue, found.at), None)
        return Tail(first_behind(queue, offered) if offered < end else None, found.at)

    def _keep(self, epochs: Epochs) -> None:
        if epochs != self.now:
            store_epochs(self._path, epochs)
            self._now = epochs
