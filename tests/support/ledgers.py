"""A service to test with: its state is all that it was given."""

import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import trio

from cqrepl import ExcerptBatch, FollowFeed, LogPos
from cqrepl.replicator.fitness import WhyUnfit
from cqrepl.replicator.followfeed import Checkpoints
from tests.support.samples import Excerpts

_HEAD: Final = struct.Struct("<QI")


@dataclass
class Ledger:
    """All excerpts, and what was committed with each batch."""

    held: Excerpts = field(default_factory=list)
    committed: list[int] = field(default_factory=list)

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        self.held += [(index, bytes(data)) for index, data in batch]
        self.committed.append(committed)

    def snapshot(self, out: BinaryIO) -> None:
        for index, data in self.held:
            out.write(_HEAD.pack(index, len(data)) + data)

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        self.held = []
        while head := source.read(_HEAD.size):
            index, length = _HEAD.unpack(head)
            self.held.append((index, source.read(length)))


class Place:
    """A queue of no host, as a feed has one of a host.

    Attributes:
        committed: what is as safe as a policy wants it; None: as the queue's mark says.
        told: all that was told to be applied.
    """

    name = "a"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.committed: int | None = None
        self.told: list[int] = []

    def committed_here(self) -> int | None:
        return self.committed

    @contextmanager
    def asking(self, why_unfit: WhyUnfit) -> Iterator[None]:
        self.why_unfit = why_unfit
        yield

    def applied(self, index: int) -> None:
        self.told.append(index)


@asynccontextmanager
async def fed(
    path: Path, checkpoints: Checkpoints | None = None, place: Place | None = None
) -> AsyncIterator[tuple[FollowFeed, Ledger, Place]]:
    """A feed that runs for the length of a block."""
    ledger, place = Ledger(), place or Place(path)
    feed = FollowFeed(place, ledger, checkpoints)
    with trio.fail_after(60):
        async with feed.running():
            yield feed, ledger, place
