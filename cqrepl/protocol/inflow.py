"""Received bytes that are not yet taken, as runs of frames or document by document.

There are two lanes. The batch kernel finds a run of `re` frames of the usual shape, which is taken
as one batch, without a Python object per excerpt. Every other document is taken by itself. A frame
that the first lane does not know is taken by itself too, with the same result.

Bytes come cut anywhere. A frame is two documents. Where the cut lies in the second, both wait:
taken apart, each cut would cost a batch of one excerpt.
"""

import math
from typing import Final, NamedTuple

from cqrepl.kernel import batch as kernel
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Index
from wire import Document, Splitter, WireError

FRAME_SECONDS: Final = 30.0  # longest time from the first to the last byte of a document
LONG_BYTES: Final = 128 * 1024  # half of what a native pump has room for

# how a client of TLS begins: as a document it would be longer than a greeting may be
_TLS_HELLO: Final = b"\x16\x03\x01"


class FrameRun(NamedTuple):
    """A batch of excerpts, and the nano time of the last one."""

    batch: ExcerptBatch
    ns: int


class Inflow:
    """Received bytes. `deadline` is when a document that has begun must be whole."""

    def __init__(self, length_max: int) -> None:
        self.deadline = math.inf
        self.splitter = Splitter(length_max)
        self._is_cut = False  # a frame whose first document is whole, and whose second is not
        self._watched = 0  # position of the document that the deadline is for

    @property
    def is_long(self) -> bool:
        """True while a document comes in pieces that a native pump may have no room for."""
        return self.splitter.pending_bytes > LONG_BYTES

    def room(self, count: int) -> memoryview:
        """At least `count` bytes to receive into; `received` then says how many came."""
        return self.splitter.room(count)

    def received(self, count: int) -> None:
        """Takes the first `count` bytes of the room."""
        self.splitter.fed(count)
        self._is_cut = False

    def feed(self, data: bytes | memoryview) -> None:
        """Takes bytes that were received elsewhere."""
        self.splitter.feed(data)
        self._is_cut = False

    def why(self, error: WireError) -> str:
        """The reason that there is no next document, for people."""
        data, at = self.splitter.gathered()
        first = bytes(data[at : at + len(_TLS_HELLO)]) if self.splitter.position == 0 else b""
        return "expected plain bytes, got TLS" if first == _TLS_HELLO else str(error)

    def hand_over(self) -> bytes:
        """The bytes that are not yet taken, for a native pump to take. The clock of a document goes
        on."""
        data, at = self.splitter.gathered()
        self.splitter.skip_to(len(data))
        self._is_cut = False
        return bytes(data[at:])

    def hand_back(self, data: bytes, began: float | None) -> None:
        """Takes what the native pump has left of that, and of what it has received behind it.

        Args:
            began: when the first byte of `data` came; None when that was before `hand_over`, and
                the clock of its document goes on.
        """
        self.feed(data)
        self._watched = self.splitter.position
        if not data:
            self.deadline = math.inf
        elif began is not None:
            self.deadline = began + FRAME_SECONDS

    def next_run(self, cid_document: bytes, payload_max: int) -> FrameRun | None:
        """The frames of one handler that come next, as far as they are whole and of usual shape.

        Raises:
            WireError: there is no next document to be found.
        """
        if not self.splitter.next_is_whole:
            return None
        data, at = self.splitter.gathered()
        found = kernel.scan_frames(data, at, cid_document, payload_max=payload_max)
        if found is None:
            cid_end = at + len(cid_document)
            self._is_cut = data[at:cid_end] == cid_document and self.splitter.is_cut_behind(
                len(cid_document)
            )
            return None
        assert at < found.offsets[0]
        assert found.offsets[-1] + found.lengths[-1] < found.end <= len(data)
        self.splitter.skip_to(found.end)
        batch = ExcerptBatch(Index(found.index_first), data, found.offsets, found.lengths)
        return FrameRun(batch, found.ns_last)

    def next_document(self) -> Document | None:
        """The next document; None while more bytes are needed.

        Raises:
            WireError: there is no next document to be found.
        """
        return None if self._is_cut else self.splitter.next_document()

    def watch(self, now: float) -> None:
        """Starts the clock of a document that has begun and is not whole; whole ones may wait."""
        if not self._is_mid_document:
            self.deadline = math.inf
        elif self.deadline == math.inf or self._watched != self.splitter.position:
            self.deadline = now + FRAME_SECONDS
            self._watched = self.splitter.position

    @property
    def _is_mid_document(self) -> bool:
        try:
            return self._is_cut or (
                self.splitter.pending_bytes > 0 and not self.splitter.next_is_whole
            )
        except WireError:
            return False  # an error that is raised when the document is asked for
