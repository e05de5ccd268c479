"""SHA-256 over what a closed cycle holds: it guards against forgers, where a chain does not.

    digest = SHA-256(SHA-256(lengths) + SHA-256(payloads))

over the lengths of all excerpts of the cycle, 8 bytes each, little-endian, and over their payloads,
side by side: so an excerpt cannot give bytes to its neighbour without being noticed. It costs three
to five times what a chain does, so it is reckoned in short stretches, and never on the way of a
stream.
"""

import hashlib
import sys
from array import array
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT, gather_payloads
from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue.files.closedcycles import DIGEST_BYTES, ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import IndexGap
from cqrepl.queue.format.index import SEQUENCE_FIRST, Sequence, index_of
from cqrepl.queue.read.tailer import Tailer
from cqrepl.surroundings import monotonic

BATCH_BYTES: Final = 1 << 18
assert hashlib.sha256().digest_size == DIGEST_BYTES


class ExcerptsDigest:
    """The digest of excerpts, in whatever parts they come."""

    def __init__(self) -> None:
        self._lengths = hashlib.sha256()
        self._payloads = hashlib.sha256()

    def take(self, lengths: "array[int]", payloads: bytes) -> None:
        """Adds excerpts.

        Args:
            lengths: of each, as 64-bit numbers.
            payloads: all of them side by side.
        """
        if sys.byteorder == "big":
            lengths = lengths[:]
            lengths.byteswap()
        self._lengths.update(lengths.tobytes())
        self._payloads.update(payloads)

    def value(self) -> bytes:
        """Over all that was taken, 32 bytes."""
        return hashlib.sha256(self._lengths.digest() + self._payloads.digest()).digest()


class ClosedDigest:
    """Reads one closed cycle for its digest, and its chain besides. One thread at a time."""

    def __init__(self, cycles: Cycles, record: ClosedCycle) -> None:
        self.record = record
        self._cycles = cycles
        self._digest = ExcerptsDigest()
        self._sequence = SEQUENCE_FIRST
        self.chain = CHAIN_START

    @property
    def is_done(self) -> bool:
        """True once as many excerpts were read as it is known to have held."""
        return self._sequence >= self.record.excerpts

    def value(self) -> bytes:
        """The digest over what was read, 32 bytes."""
        return self._digest.value()

    def read_on(self, seconds: float) -> int:
        """Reads for a while, at least one batch; how many bytes of payload that were.

        Raises:
            IndexGap: the cycle ends before.
            QueueError: its store file cannot be read.
        """
        cycle, shift, count = self.record.cycle, self._cycles.shift, 0
        until = monotonic() + seconds
        tailer = Tailer(self._cycles, index_of(cycle, self._sequence, shift))
        try:
            while not self.is_done:
                wanted = index_of(cycle, self._sequence, shift)
                left = self.record.excerpts - self._sequence
                batch = tailer.next_batch(
                    count_max=left, bytes_max=BATCH_BYTES, payload_max=NO_LIMIT
                )
                if batch is None or batch.index_first != wanted:
                    found = tailer.next_index if batch is None else batch.index_first
                    path = self._cycles.path_of(cycle)
                    raise IndexGap(wanted, found, "its cycle ends before", path=path)
                self.chain = extend_chain(
                    batch.data, batch.offsets, batch.lengths, self._sequence, self.chain
                )
                payloads, _ = gather_payloads(batch.data, batch.offsets, batch.lengths)
                self._digest.take(batch.lengths, payloads)
                self._sequence = Sequence(self._sequence + len(batch))
                count += len(payloads)
                if monotonic() >= until:
                    break
        finally:
            tailer.close()
        return count

    def read(self) -> bytes:
        """Reads all of it; the digest.

        Raises:
            IndexGap, QueueError: as `read_on`.
        """
        while not self.is_done:
            self.read_on(1.0)
        return self.value()
