"""A peer that greets as a sink does, and then says what is not true."""

import random
import struct
from typing import Final

import trio

from cqrepl.kernel.chain import CHAIN_BYTES, CHAIN_START
from cqrepl.protocol import Connection, ProtocolSettings, RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.errors import LocalProtocolError
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.messages import write_cid
from cqrepl.protocol.messages.announcement import Announcement
from cqrepl.protocol.messages.excerpts import (
    write_acknowledgement,
    write_end_of_stream,
    write_replication_event,
)
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.messages.runs import write_run_head
from cqrepl.queue.format.index import Index
from cqrepl.surroundings import monotonic, within
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.labroles import LIAR_HOST, PORT
from cqrepl.testing.network import address_of
from cqrepl.testing.story import Story

_STEP_SECONDS: Final = 0.05
_GARBAGE_MAX: Final = 4000
_CLAIMS: Final = 0.3
_WITHDRAWS: Final = 0.02  # of the steps
_LIE_WEIGHTS: Final = (60, 20, 2, 1, 1, 1, 1, 4, 1, 1)  # most are followed by others
_INDEX: Final = (0, 1, 2, 3, 50, 1 << 20, 1 << 32, 1 << 40)


class _Silent(ConnectionConfig):
    """Announces nothing, as a Java peer does: nothing of what it holds can be compared."""

    @property
    def announcement(self) -> Announcement:
        return Announcement()


class Liar:
    """A host of its own, which dials a source.

    Args:
        target: the id of the source's host.
        intrudes: it says that it has more than the source, and gives it; else all but that.
    """

    def __init__(
        self,
        machine: Machine,
        target: int,
        queue: str,
        rng: random.Random,
        story: Story,
        *,
        intrudes: bool,
    ) -> None:
        self._process: Process = machine.start("liar")
        self._target = target
        self._queue = queue
        self._rng = rng
        self._story = story
        self._intrudes = intrudes
        self._offer: ev.QueueOffered | None = None
        self._given = b""  # to be sent behind what the core says

    async def run(self, seconds: float) -> None:
        """Lies for so long, or until the source has had enough."""
        with within(self._process), trio.move_on_after(seconds):
            try:
                stream = await trio.open_tcp_stream(address_of(self._target), PORT)
            except OSError:
                return
            async with stream:
                await self._lie(stream)

    async def _lie(self, stream: trio.SocketStream) -> None:
        settings = ProtocolSettings(
            host_id=LIAR_HOST,
            remote_ids=frozenset({self._target}),
            runs=self._rng.random() < 0.5,  # it says that it takes runs
        )
        kind = _Silent if self._intrudes else ConnectionConfig
        takes = frozenset({self._queue})
        config = kind(settings=settings, is_dialler=True, takes=takes)
        link = Connection(config, monotonic())
        try:
            if not self._intrudes and self._rng.random() < 0.2:
                await stream.send_all(self._rng.randbytes(self._rng.randrange(_GARBAGE_MAX)))
            while True:
                await self._send(stream, link.data_to_send())
                with trio.move_on_after(_STEP_SECONDS):
                    data = await stream.receive_some(65_536)
                    link.receive_data(data, monotonic())
                    if not data:
                        return
                while (event := link.next_event()) is not None:
                    self._act(link, event)
                link.tick(monotonic())
                if self._offer is not None and not self._intrudes:
                    await self._send(stream, link.data_to_send() + self._lie_about(self._offer))
                    self._withdraw_sometimes(link, self._offer)
        except (RemoteProtocolError, LocalProtocolError):
            return  # the source answers a lie as our core does not expect it
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._story.tell("liar", "the source has closed the connection")

    def _act(self, link: Connection, event: ev.Event) -> None:
        match event:
            case ev.Connected() if link.names_queues:
                link.name_queues(QueueNames(sinks=frozenset({self._queue})))
            case ev.QueueOffered():
                self._offer = event
                end = event.offer.next_index
                if self._intrudes:
                    first = max(end, 1)
                    link.answer_queue(event.cid, Index(first + 3), 32, event.offer.shape)
                else:
                    self._claim(link, event)
            case ev.BackCopyWanted():
                cid = write_cid(event.cid)
                for index in range(event.index_first, event.index_first + 3):
                    # as frames of the stream: the core lets no sink append past what it said
                    self._given += cid + write_replication_event(index, b"of an intruder", 0)
                self._given += cid + write_end_of_stream()

    def _claim(self, link: Connection, offered: ev.QueueOffered) -> None:
        """Claims that it has nothing, as a new sink; or that it has some of the queue, which it
        cannot know."""
        has_some = self._rng.random() < _CLAIMS
        end = max(0, offered.offer.next_index - self._rng.choice(_INDEX)) if has_some else 0
        chain = self._rng.randbytes(CHAIN_BYTES) if has_some else CHAIN_START
        lineage = Lineage(first_cycle=-1, chain=chain, cycles=chain)
        link.answer_queue(offered.cid, end, 32, offered.offer.shape, lineage)

    async def _send(self, stream: trio.SocketStream, data: bytes) -> None:
        data, self._given = data + self._given, b""
        if data:
            await stream.send_all(data)

    def _withdraw_sometimes(self, link: Connection, offer: ev.QueueOffered) -> None:
        """It goes, though nothing is wrong; and is offered the queue again."""
        if self._rng.random() < _WITHDRAWS:
            self._offer = None
            link.withdraw_queue(offer.cid, "a lie")

    def _lie_about(self, offer: ev.QueueOffered) -> bytes:
        """Bytes that the core would never send."""
        end = max(offer.offer.next_index, 1)
        index = end + self._rng.choice((-1, 1)) * self._rng.choice(_INDEX)
        cid = write_cid(offer.cid)
        lies: tuple[bytes, ...] = (
            b"",
            cid + write_acknowledgement(index, 0),
            cid + write_acknowledgement(-index, 0),
            cid + write_end_of_stream(),
            cid + write_replication_event(index, b"a lie", 0),
            cid + self._run(index),
            self._flipped(cid + self._run(index)),
            write_cid(offer.cid + 1) + write_acknowledgement(index, 0),
            self._flipped(cid + write_acknowledgement(index, 0)),
            self._rng.randbytes(self._rng.randrange(1, 40)),
        )
        return self._rng.choices(lies, _LIE_WEIGHTS)[0]

    def _run(self, index: int) -> bytes:
        data = b"".join(struct.pack("<I", 4) + self._rng.randbytes(4) for _ in range(3))
        return write_run_head(index, 3, 0, len(data)) + data

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[self._rng.randrange(len(changed))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)
