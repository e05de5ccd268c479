"""One direction of a TCP connection, put together from its segments.

Theory of operation. Sequence numbers are 32 bits and wrap, so a segment is placed by its distance
from the next byte that is wanted. What came before (a retransmission, a keep-alive probe) is
cut away, what comes too early waits. Waiting has a limit: when it is passed, and at the end of the
capture, what is missing is told, and nothing behind it is given, since the bytes of a stream mean
nothing without those before them.
"""

from heapq import heappop, heappush
from typing import Final

WAITING_MAX_BYTES: Final = 16 << 20
WAITING_MAX_SEGMENTS: Final = 1 << 14
_MODULUS: Final = 1 << 32


class HalfStream:
    """Takes segments in the order in which they were captured and gives bytes in theirs."""

    def __init__(self) -> None:
        self.given = 0  # bytes so far
        self._next: int | None = None
        self._waiting: dict[int, bytes] = {}  # by distance from the start of the stream
        self._waiting_bytes = 0
        self._places: list[int] = []  # the keys of what waits, as a heap

    @property
    def has_begun(self) -> bool:
        """True once a segment came."""
        return self._next is not None

    def begin(self, sequence: int) -> None:
        """The next byte has this number."""
        self._next = sequence % _MODULUS

    def is_start(self, sequence: int) -> bool:
        """True when the stream began, or would begin, with this number."""
        return self._next is not None and (self._next - self.given) % _MODULUS == sequence

    def add(self, sequence: int, payload: bytes) -> bytes:
        """The bytes that follow on those given, now that this segment has come."""
        if not payload:
            return b""
        if self._next is None:
            self.begin(sequence)
        assert self._next is not None
        distance = (sequence - self._next) % _MODULUS
        if distance >= _MODULUS // 2:
            distance -= _MODULUS
        if distance > 0:
            self._keep(self.given + distance, payload)
            return b""
        return self._give(payload[-distance:])

    @property
    def missing(self) -> tuple[int, int] | None:
        """The place and the number of missing bytes, while later bytes wait behind them."""
        if not self._waiting:
            return None
        return self.given, self._places[0] - self.given

    @property
    def waits_too_long(self) -> bool:
        """True when so much waits that what is missing will not come any more."""
        too_many = len(self._waiting) > WAITING_MAX_SEGMENTS
        return too_many or self._waiting_bytes > WAITING_MAX_BYTES

    def _keep(self, place: int, payload: bytes) -> None:
        known = self._waiting.get(place, b"")
        if len(payload) > len(known):
            if place not in self._waiting:
                heappush(self._places, place)
            self._waiting[place] = payload
            self._waiting_bytes += len(payload) - len(known)

    def _give(self, payload: bytes) -> bytes:
        """These bytes and those waiting right behind them."""
        parts = [payload]
        end = self.given + len(payload)
        while self._places and self._places[0] <= end:
            place = heappop(self._places)
            waiting = self._waiting.pop(place)
            self._waiting_bytes -= len(waiting)
            fresh = waiting[end - place :]
            parts.append(fresh)
            end += len(fresh)
        assert self._next is not None
        self._next = (self._next + end - self.given) % _MODULUS
        self.given = end
        return b"".join(parts)
