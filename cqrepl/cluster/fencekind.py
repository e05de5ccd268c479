"""The two halves of what hosts ask each other about who is to lead a queue (`messages.fences`).

A host that is asked has to call back connections and to sync a file before it may answer. So its
half only hands on what is asked, to be answered when that is done; what it sends of excerpts it
reads as fast as it is taken.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.protocol.capabilities import MEMBERS_CAPABILITY, MERGED_CAPABILITY
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.fences import (
    CopyPosition,
    FenceRequest,
    FenceVerb,
    read_position,
    read_request,
    write_position,
    write_request,
)
from cqrepl.protocol.messages.fetches import (
    COUNT_MAX,
    DATA_MAX,
    read_excerpts,
    read_more,
    write_fetched,
    write_refused,
    write_stretch,
)
from cqrepl.protocol.subhandler import LinkView, SubHandler
from cqrepl.queue import Queue, QueueError, Tailer
from cqrepl.queue.format.epochs import unmerged
from cqrepl.queue.format.index import Index
from wire import Reader, WireError, Writer

FENCE_CAPABILITY: Final = "fence"
LEAD_CAPABILITY: Final = "lead"
CSP_PREFIX: Final = "/cluster/"


class FenceTold(NamedTuple):
    """The answer of a host, for the one that has asked."""

    channel: "trio.MemorySendChannel[tuple[str, Any]]"
    name: str
    value: Any  # a position, excerpts, bytes, a number or a text, by the name


class Asked:
    """Our half for a host that asks.

    Attributes:
        name: of the queue.
        leader: the host that asks.
        is_over: it waits for no answer any more, or is gone.
    """

    deadline = math.inf

    def __init__(self, csp: str, cid: Cid, request: FenceRequest, link: LinkView) -> None:
        self.csp = csp
        self.name = csp.removeprefix(CSP_PREFIX)
        self.leader = link.remote_id
        self.request = request
        self._cid = cid
        self._link = link
        self._waiting: deque[bytes] = deque()
        self.is_over = False
        self._queue: Queue | None = None
        self._tailer: Tailer | None = None
        self._given = 0

    def answer(self, document: bytes) -> None:
        """Says this."""
        if not self.is_over:
            self._waiting.append(document)
            self._link.wake(self._cid)

    def tell(self, position: CopyPosition) -> None:
        """Says how far a copy is; to a host that knows of no merged epochs, without any."""
        if MERGED_CAPABILITY not in self._link.capabilities:
            epochs = position.epochs
            epochs = replace(epochs, history=unmerged(epochs.history))
            position = replace(position, epochs=epochs)
        if MEMBERS_CAPABILITY not in self._link.capabilities:
            epochs = replace(position.epochs, members=frozenset(), listed=0)
            position = replace(position, epochs=epochs)
        self.answer(write_position(position))

    def give(self, path: Path) -> None:
        """Sends what is asked for, of the queue in a directory.

        Raises:
            QueueError: it cannot be opened.
        """
        if not self.is_over:
            self._queue = Queue.open(path)
            self._tailer = self._queue.tailer(Index(self.request.first))
            self._link.wake(self._cid)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return False  # the host that asks says nothing more

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        if not self._waiting and self._tailer is not None:
            try:
                self._read(self._tailer)
            except (QueueError, OSError) as error:
                self._waiting.append(write_refused(str(error)))
                self._close()
        return self._waiting.popleft() if self._waiting else b""

    def closed(self, reason: str) -> None:
        self.is_over = True
        self._waiting.clear()
        self._close()

    def _read(self, tailer: Tailer) -> None:
        batch = tailer.next_batch(count_max=COUNT_MAX, bytes_max=DATA_MAX, payload_max=NO_LIMIT)
        if batch is not None and batch.index_last >= self.request.end:
            count = self.request.end - batch.index_first
            batch = batch.part(0, count) if count > 0 else None
        if batch is None:
            self._waiting.append(write_fetched(self._given))
            self._close()
            return
        data = b"".join(bytes(payload) for _, payload in batch)
        self._waiting.extend(write_stretch(batch.index_first, batch.lengths, data))
        self._given += len(batch)

    def _close(self) -> None:
        if self._tailer is not None:
            self._tailer.close()
            self._tailer = None
        if self._queue is not None:
            self._queue.close()
            self._queue = None


class Asking:
    """The half of the host that asks."""

    deadline = math.inf

    def __init__(
        self, csp: str, link: LinkView, channel: "trio.MemorySendChannel[tuple[str, Any]]"
    ) -> None:
        self.csp = csp
        self._link = link
        self._channel = channel

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        value: Any
        try:
            match name:
                case "position":
                    value = read_position(reader)
                case "excerpts":
                    value = read_excerpts(reader)
                case "more":
                    value = read_more(reader)
                case "fetched":
                    value = reader.read_int()
                case "refused":
                    value = reader.read_text() or ""
                case _:
                    return False
        except (KeyError, ValueError) as error:
            raise WireError(f"an answer of a copy expected: {error!r}") from error
        self._link.tell(FenceTold(self._channel, name, value))
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return b""

    def closed(self, reason: str) -> None:
        self._channel.close()


@dataclass(frozen=True, slots=True)
class FenceKind:
    """The row of the handler table.

    Args:
        members: the hosts that may ask.
    """

    members: frozenset[int]
    alias: str = "!FenceHandler"
    needs: frozenset[str] = frozenset({FENCE_CAPABILITY})
    takes_guests: bool = False

    @classmethod
    def of_leads(cls, members: frozenset[int]) -> "FenceKind":
        """The row for requests to be promoted, which only newer peers know."""
        needs = frozenset({FENCE_CAPABILITY, LEAD_CAPABILITY})
        return cls(members, alias="!LeadHandler", needs=needs)

    def read_body(self, fields: Mapping[str, Reader]) -> FenceRequest:
        return read_request(fields)

    def write_body(self, writer: Writer, body: object) -> None:
        assert isinstance(body, FenceRequest)
        write_request(writer, body)

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        assert isinstance(body, FenceRequest)
        if link.remote_id not in self.members:
            return f"host {link.remote_id} is none of this cluster"
        if (body.verb is FenceVerb.LEAD) != (LEAD_CAPABILITY in self.needs):
            return f"{self.alias} does not do {body.verb!r}"
        asked = Asked(csp, cid, body, link)
        link.tell(asked)
        return asked
