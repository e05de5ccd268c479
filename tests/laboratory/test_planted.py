"""Faults put in on purpose: the laboratory finds each, and tells a story of it."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from cqrepl.net.livepump import LivePump, Streamed
from cqrepl.protocol.events import AppendExcerpts
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.sink import SinkHandler
from cqrepl.replicator.sinksession import SinkSession
from cqrepl.surroundings import monotonic
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import Kind, RunPlan
from cqrepl.testing.shortener import shortened
from cqrepl.testing.transcript import transcript

SEEDS = 200
SECONDS = 30.0

Patch = pytest.MonkeyPatch


def acknowledged_before_it_is_stored(patch: Patch) -> None:
    """What is on its way into the queue is acknowledged, whatever becomes of it."""
    store = SinkSession._store
    patch.setattr("cqrepl.net.pump.pump_for", lambda _: None)

    async def early(self: SinkSession, event: Any) -> None:
        if isinstance(event, AppendExcerpts):
            self._connection.stored(event.cid, event.batch.index_last, event.ns)
            vars(self._connection)["stored"] = lambda *_: None  # not again afterwards
            self._pump.wake()
            await trio.sleep(0.1)
        try:
            await store(self, event)
        finally:
            vars(self._connection).pop("stored", None)

    patch.setattr(SinkSession, "_store", early)


def unsent_bytes_are_lost(patch: Patch) -> None:
    """What a native pump could not send any more is forgotten."""
    stream = LivePump.stream

    async def careless(self: LivePump, *arguments: Any, **options: Any) -> Streamed:
        return (await stream(self, *arguments, **options))._replace(unsent=b"")

    patch.setattr(LivePump, "stream", careless)


def cids_come_from_a_clock(patch: Patch) -> None:
    """Two hosts that look at a clock in the same second choose the same."""
    patch.setattr(
        ConnectionConfig, "own_cid_first", property(lambda _: 1_700_000_000 + int(monotonic()))
    )


def the_last_acknowledgement_waits_for_ever(patch: Patch) -> None:
    """An acknowledgement goes out with the next one: a timer for the last one never fires."""
    patch.setattr("cqrepl.net.pump.pump_for", lambda _: None)
    stored = SinkHandler.stored
    waiting: dict[int, tuple[int, int]] = {}

    def late(self: SinkHandler, index_last: int, ns: int) -> None:
        before = waiting.pop(id(self), None)
        waiting[id(self)] = (index_last, ns)
        if before is not None:
            stored(self, *before)

    patch.setattr(SinkHandler, "stored", late)


PLANTED: list[tuple[Callable[[Patch], None], frozenset[Kind]]] = [
    (acknowledged_before_it_is_stored, LEFT_OUT),
    (unsent_bytes_are_lost, LEFT_OUT),
    (cids_come_from_a_clock, LEFT_OUT),
    (the_last_acknowledgement_waits_for_ever, LEFT_OUT),
]


def first_failing(without: frozenset[Kind]) -> Outcome | None:
    for seed in range(SEEDS):
        outcome = run(RunPlan.of(seed, SECONDS, without=without))
        if outcome.broken is not None:
            return outcome
    return None


@pytest.mark.parametrize(
    ("plant", "without"), [pytest.param(*each, id=each[0].__name__) for each in PLANTED]
)
def test_it_is_found(
    plant: Callable[[Patch], None], without: frozenset[Kind], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    found = first_failing(without)
    assert found is not None, "not found"
    short = shortened(found, runs_max=12)
    assert short.check == found.check
    assert len(short.plan.faults) <= len(found.plan.faults)
    lines = list(transcript(short))
    assert len(lines) > 3
    print(*lines[-30:], sep="\n")
