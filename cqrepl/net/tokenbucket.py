"""The bound on the bytes of excerpts that a connection sends: a token bucket, one token a byte.

Tokens come evenly, and a tenth of a second's worth is kept. Queues that have nothing left to catch
up with may use all of them, the others only what is above half: so what is live goes out at once
while much else waits. Where too few are left, nothing goes until an eighth has come: many small
sends would cost more than they bring.

One excerpt goes out whole, however long it is. What it takes too much is owed. What is not of an
excerpt, as heartbeats and acknowledgements, takes no tokens and waits for none.

A native pump counts in the same way (`native/kernel/src/live/token_bucket.rs`): it gets the tokens
with the socket, and gives back what is left.
"""

import math
from typing import Final, NamedTuple

_KEPT_PARTS: Final = 10  # so much of a second's tokens is kept
_RESERVE_PARTS: Final = 2  # queues that have much leave one half of what is kept
_STEP_PARTS: Final = 8  # so much of it comes before anything goes out again
_CLOCK_SECONDS: Final = 1e-6  # a clock that stands still moves on by that
NO_LIMIT: Final = 1 << 62


class Rooms(NamedTuple):
    """The numbers of bytes that may go out now: of queues that have nothing to catch up with, and
    of those that have."""

    live: int
    much: int


UNLIMITED: Final = Rooms(NO_LIMIT, NO_LIMIT)


class TokenBucket:
    """One connection's. `now` is a monotonic time in seconds everywhere.

    Attributes:
        bytes_per_s: how many tokens come; 0: there is no limit.
    """

    def __init__(self) -> None:
        self.bytes_per_s = 0
        self._tokens = 0.0  # below zero what is owed
        self._filled_at = -math.inf
        self._is_shut = [True, True]  # for queues without and with much, after tokens were too few

    def limit(self, bytes_per_s: int, now: float) -> None:
        """So many tokens come a second from now on; 0: there is no limit."""
        self._fill(now)
        self.bytes_per_s, self._filled_at = bytes_per_s, now
        self._tokens = min(self._tokens, 0.0)

    def rooms(self, now: float) -> Rooms:
        """The numbers of bytes that may go out now."""
        if not self.bytes_per_s:
            return UNLIMITED
        self._fill(now)
        return Rooms(self._room(of_much=False), self._room(of_much=True))

    def spend(self, count: int) -> None:
        """So many bytes go out."""
        if self.bytes_per_s:
            self._tokens -= count

    def pause(self, now: float, *, of_much: bool = False) -> float:
        """In how many seconds anything may go out, or with `of_much` anything of a queue that has
        much; 0.0 when it may now."""
        rooms = self.rooms(now)
        if rooms.much if of_much else rooms.live:
            return 0.0
        wait = (self._least(of_much=of_much) - self._tokens) / self.bytes_per_s
        return wait + _CLOCK_SECONDS

    def lend(self, now: float) -> int:
        """The tokens there are, below zero for what is owed: for a native pump."""
        self._fill(now)
        return math.floor(self._tokens)

    def take_back(self, tokens: int, now: float) -> None:
        """A native pump has left so many."""
        self._tokens, self._filled_at = float(tokens), now

    def _fill(self, now: float) -> None:
        if self.bytes_per_s and now > self._filled_at:
            come = (now - self._filled_at) * self.bytes_per_s
            self._tokens = min(self._tokens + come, max(self._kept, self._tokens))
        self._filled_at = max(self._filled_at, now)

    def _room(self, *, of_much: bool) -> int:
        self._is_shut[of_much] = self._tokens < self._least(of_much=of_much)
        return 0 if self._is_shut[of_much] else int(self._tokens) - self._floor(of_much=of_much)

    @property
    def _kept(self) -> int:
        return max(self.bytes_per_s // _KEPT_PARTS, 1)

    def _floor(self, *, of_much: bool) -> int:
        return self._kept // _RESERVE_PARTS if of_much else 0

    def _least(self, *, of_much: bool) -> int:
        """The number of tokens with fewer than which nothing goes out."""
        step = max(self._kept // _STEP_PARTS, 1) if self._is_shut[of_much] else 1
        return self._floor(of_much=of_much) + step
