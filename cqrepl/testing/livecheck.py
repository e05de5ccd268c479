"""Once all is quiet, a queue that has not stopped is live: what is appended to it now arrives.

No copy that stands still differs from another, so that copies are equal says nothing of it.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import trio

from cqrepl.testing.checker import BrokenPromiseError
from cqrepl.testing.quietanswers import Pair

LIVE_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.25


class QuietQueue(Protocol):
    """A queue as its judge sees it."""

    @property
    def is_settled(self) -> bool:
        """True when its copies are equal, or it was said why not."""

    @property
    def answering(self) -> Iterable[Pair]:
        """Its copies that are equal, each with the copy that it is taken from."""

    @property
    def lacking(self) -> str:
        """A text on which copies are not equal, for people."""

    def append_one(self) -> bool:
        """An application appends an excerpt where the queue is streamed; false where it cannot."""


async def check_live(queues: Iterable[QuietQueue]) -> None:
    """Appends an excerpt to each queue, and looks for it in every copy.

    Raises:
        BrokenPromiseError: one cannot be appended to, or a copy does not get it, and has said
            nothing against it; or two hosts of one queue are not connected.
    """
    settled = [each for each in queues if each.is_settled and any(each.answering)]
    for each in settled:
        pairs = list(each.answering)
        for pair in pairs:
            if not _are_connected(pair):
                text = f"{pair.giver.host.machine.name} and {pair.sink.host.machine.name}"
                raise BrokenPromiseError("live", f"{text} are not connected")
        if not await _within(each.append_one):
            text = f"nothing can be appended for {LIVE_SECONDS:g} s"
            raise BrokenPromiseError("live", f"{pairs[0].giver.title}: {text}")
    if not await _within(lambda: all(each.is_settled for each in settled)):
        late = [each for each in settled if not each.is_settled]
        text = "; ".join(each.lacking for each in late)
        raise BrokenPromiseError("live", f"for {LIVE_SECONDS:g} s something new comes not: {text}")


async def _within(is_so: Callable[[], bool]) -> bool:
    with trio.move_on_after(LIVE_SECONDS):
        while not is_so():
            await trio.sleep(LOOK_SECONDS)
        return True
    return False


def _are_connected(pair: Pair) -> bool:
    giver, sink = pair.giver.host, pair.sink.host
    return sink.host in giver.connected_to and giver.host in sink.connected_to
