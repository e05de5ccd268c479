"""The two halves by which a host takes the state of a group from another one, `/snapshot/NAME`.

    asks        do: where | take; from: a number of bytes; name: of the file that is taken on with;
                below: an index that it is not to be above, 0 for any
    `state`     name and size of the newest checkpoint, and `begin`: the index that the queue there
                begins at, 0 where it has its start
    part, last  the bytes of the file from there on
    `refused`   why not

The file says itself whether all of it has come, by its SHA-256.
"""

import math
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import trio

from cqrepl.protocol import LinkView, SubHandler
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.pieces import LAST, PART, PIECE_BYTES, piece
from cqrepl.queue.files.checkpointfile import checkpoints_in
from wire import Reader, WireError, Writer

SNAPSHOT_CAPABILITY: Final = "snapshot"
CSP_PREFIX: Final = "/snapshot/"
_TEXT_MAX: Final = 500


class SnapshotVerb(StrEnum):
    """The requests of a host that joins."""

    WHERE = "where"
    TAKE = "take"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """One of them.

    Args:
        start: so many bytes it has.
        name: of the file that they are of; empty for the newest one.
        below: the index is not to be above; 0 for any.
    """

    verb: SnapshotVerb
    start: int = 0
    name: str = ""
    below: int = 0


class StateSaid(NamedTuple):
    """The answer: `name` is empty where there is no checkpoint."""

    name: str
    size: int
    begin: int


class Giving:
    """The half of the host that is asked."""

    deadline = math.inf

    def __init__(self, csp: str, cid: Cid, request: SnapshotRequest, link: LinkView) -> None:
        self.csp = csp
        self.name = csp.removeprefix(CSP_PREFIX)
        self.request = request
        self.is_over = False
        self._cid = cid
        self._link = link
        self._waiting: deque[bytes] = deque()
        self._descriptor: int | None = None
        self._at = request.start
        self._end = 0

    def refuse(self, why: str) -> None:
        """There is none to be had."""
        writer = Writer()
        with writer.document(metadata=False):
            writer.name("refused")
            writer.text(why[:_TEXT_MAX])
        self._say(bytes(writer.data))

    def give(self, folder: Path, begin: int) -> None:
        """Says how things stand, and sends the file that is asked for.

        Raises:
            OSError: it cannot be read.
        """
        if self.is_over:
            return
        request = self.request
        found = [each for each in checkpoints_in(folder) if self._fits(each.path, each.pos.index)]
        size = found[0].path.stat().st_size if found else 0
        writer = Writer()
        with writer.document(metadata=False):
            writer.name("state")
            with writer.block():
                writer.name("name")
                writer.text(found[0].path.name if found else "")
                writer.name("size")
                writer.integer(size)
                writer.name("begin")
                writer.hex_int(begin)
        if found and request.verb is SnapshotVerb.TAKE:
            self._descriptor = os.open(found[0].path, os.O_RDONLY | os.O_CLOEXEC)
            self._end = size
        self._say(bytes(writer.data))

    def _fits(self, path: Path, index: int) -> bool:
        request = self.request
        is_low = not request.below or index <= request.below
        return is_low and request.name in ("", path.name)

    def _say(self, document: bytes) -> None:
        if not self.is_over:
            self._waiting.append(document)
            self._link.wake(self._cid)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return False  # the host that asks says nothing more

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        if self._waiting:
            return self._waiting.popleft()
        if self._descriptor is None:
            return b""
        data = os.pread(self._descriptor, min(PIECE_BYTES, self._end - self._at), self._at)
        self._at += len(data)
        if data and self._at < self._end:
            return piece(PART, data)
        self._close()
        return piece(LAST, data)

    def closed(self, reason: str) -> None:
        self.is_over = True
        self._waiting.clear()
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


SnapshotTold = StateSaid | bytes | str | None  # None: that was the last piece


class Taking:
    """The half of the host that asks. Of what comes so much waits at most as its channel holds;
    then nothing more is read from that host."""

    deadline = math.inf

    def __init__(
        self, csp: str, link: LinkView, channel: "trio.MemorySendChannel[SnapshotTold]"
    ) -> None:
        self.csp = csp
        self.channel = channel
        self._link = link

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name in (PART, LAST):
            block = reader.read_block()
            self._link.tell((self, bytes(block.data[block.position : block.end])))
            if name == LAST:
                self._link.tell((self, None))
        elif name == "state":
            fields = reader.read_block().read_fields()
            try:
                found = StateSaid(
                    fields["name"].read_text() or "",
                    fields["size"].read_int(),
                    fields["begin"].read_int(),
                )
            except KeyError as error:
                raise WireError(f"expected the state of a group, got none: {error!r}") from error
            self._link.tell((self, found))
        elif name == "refused":
            self._link.tell((self, reader.read_text() or ""))
        else:
            return False
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return b""

    def closed(self, reason: str) -> None:
        self.channel.close()


@dataclass(frozen=True, slots=True)
class SnapshotKind:
    """The row of the handler table.

    Args:
        members: the hosts that may ask; empty for any.
    """

    members: frozenset[int]
    alias: str = "!SnapshotHandler"
    needs: frozenset[str] = frozenset({SNAPSHOT_CAPABILITY})
    takes_guests: bool = False

    def read_body(self, fields: Mapping[str, Reader]) -> SnapshotRequest:
        try:
            return SnapshotRequest(
                verb=SnapshotVerb(fields["do"].read_text() or ""),
                start=fields["from"].read_int(),
                name=fields["name"].read_text() or "",
                below=fields["below"].read_int(),
            )
        except (KeyError, ValueError) as error:
            raise WireError(f"expected a request for a snapshot, got none: {error!r}") from error

    def write_body(self, writer: Writer, body: object) -> None:
        assert isinstance(body, SnapshotRequest)
        writer.name("do")
        writer.text(body.verb)
        writer.name("from")
        writer.integer(body.start)
        writer.name("name")
        writer.text(body.name)
        writer.name("below")
        writer.hex_int(body.below)

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        assert isinstance(body, SnapshotRequest)
        if self.members and link.remote_id not in self.members:
            return f"expected a host of this cluster, got host {link.remote_id}"
        if why := link.refusal("read", csp.removeprefix(CSP_PREFIX)):
            return why
        giving = Giving(csp, cid, body, link)
        link.tell(giving)
        return giving
