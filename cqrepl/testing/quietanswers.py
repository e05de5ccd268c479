"""Once all is quiet, hosts answer. No check of safety asks for that: silence is never unsafe.

A copy that holds all, and said nothing against it, is waited for at each level. It reads from its
files what it has stored, and neither side holds anything unproved: else nothing is scrubbed, and no
copy is passed on.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, From, OnTimeout
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.leadership import AckUnknown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError
from cqrepl.testing.labhosts import Copy

ANSWER_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.25


class Pair(NamedTuple):
    """A copy, and where it is taken from."""

    giver: Copy
    sink: Copy

    @property
    def queues(self) -> tuple[SourceQueue, SinkQueue] | None:
        """The queue at both hosts; None while either does not run it."""
        source, sink, name = self.giver.host.source, self.sink.host.sink, self.sink.name
        streamed = None if source is None else source.queues.get(name)
        taken = None if sink is None else sink.queues.get(name)
        return (streamed, taken) if streamed and taken and taken.is_open else None


async def check_answers(pairs: Iterable[Pair], *, applies: bool = True) -> None:
    """Asks all of them, and waits so long.

    Args:
        applies: each copy is told as applied here; else a program of a user tells it.

    Raises:
        BrokenPromiseError: one does not answer.
    """
    async with trio.open_nursery() as nursery:
        for pair in pairs:
            if pair.queues is not None:
                nursery.start_soon(partial(_check_pair, pair, *pair.queues, applies=applies))


async def _check_pair(
    pair: Pair, streamed: SourceQueue, taken: SinkQueue, *, applies: bool
) -> None:
    last = taken.known_last
    if last is None or last < 0:
        return
    sink, process = pair.sink.host.sink, pair.sink.host.process
    assert sink is not None
    assert process is not None
    if applies:
        with within(process):
            sink.applied(last, pair.sink.name)
    levels = [AckLevel.APPENDED, AckLevel.APPLIED]
    if taken.disk.trouble is None:  # its disk has failed, and it says so
        levels.append(AckLevel.SYNCED)
    async with trio.open_nursery() as bells:
        bells.start_soon(_ring, pair)
        async with trio.open_nursery() as nursery:
            for level in levels:
                nursery.start_soon(_check_level, pair, streamed, last, level)
            nursery.start_soon(_check_proved, pair)
        bells.cancel_scope.cancel()


async def _ring(pair: Pair) -> None:
    """No bell of a source is heard in the laboratory: this stands for it while nothing comes."""
    while True:
        if pair.giver.host.source is not None:
            pair.giver.host.source.changed.set()
        await trio.sleep(LOOK_SECONDS)


async def _check_level(pair: Pair, streamed: SourceQueue, last: int, level: AckLevel) -> None:
    host = pair.sink.host.host
    policy = AckPolicy(
        level=level,
        from_=From.ALL,
        hosts=frozenset({host}),
        timeout_seconds=ANSWER_SECONDS,
        on_timeout=OnTimeout.FAIL,
    )
    try:
        await streamed.leading.wait_acked(last, policy)
    except AckUnknown as error:
        raise BrokenPromiseError("answers", f"{pair.sink.title}: {error}") from error
    except WaitEnded as error:
        text = f"{pair.sink.title}: a wait for {format_index(last)} has ended: {error}"
        raise BrokenPromiseError("answers", text) from error


async def _check_proved(pair: Pair) -> None:
    """Both sides go on to read what they hold."""
    with trio.move_on_after(ANSWER_SECONDS):
        while _unproved(pair) is not None:
            await trio.sleep(LOOK_SECONDS)
    text = _unproved(pair)
    if text is not None:
        raise BrokenPromiseError("answers", text)


def _unproved(pair: Pair) -> str | None:
    if pair.queues is None:
        return None  # a process has ended, and is judged by what it said
    streamed, taken = pair.queues
    for copy, disk in ((pair.giver, streamed.disk), (pair.sink, taken.disk)):
        if disk.unproved_from is not None:
            where = format_index(disk.unproved_from)
            return f"{copy.title} is unproved from {where} on, with nothing in its way"
    if taken.disk.audited < taken.next_index:
        read = format_index(taken.disk.audited)
        return f"{pair.sink.title} has read what it stored up to {read} only"
    return None
