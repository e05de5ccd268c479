"""Hosts that take a queue in and pass it on, from seeds and with faults on purpose."""

from functools import partial

import pytest

from cqrepl.testing.cluster import Stream
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import Fault, Kind, Route, RunPlan
from tests.support.schedules import schedule

CHAIN = (Route(1, 3, 2), Route(1, 4, 3))  # from host 1 by hosts 2 and 3 to host 4
SECONDS = 6.0


plan = partial(
    schedule, seed=1, seconds=SECONDS, hosts=4, roll_cycle="TEST4_DAILY", rate=4.0,
    both_ways=True, routes=CHAIN,
)  # fmt: skip


def test_new_copies_along_a_chain() -> None:
    """They are like the source's, however soon the last one hears of the queue."""
    assert run(plan()).broken is None


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.POWER_CUT, Kind.MOVED_AWAY], ids=str)
def test_a_host_that_passes_on_is_away(kind: Kind) -> None:
    fault = Fault(3.0, kind, 2, 0, 1.0, queue=1)
    outcome = run(plan(fault, roll_cycle="TEST_SECONDLY"))
    assert outcome.broken is None
    assert outcome.injected[kind.value] == 1


def test_a_sink_at_the_end_of_a_chain_is_led_into_the_directory_of_the_first_source() -> None:
    """The host that passes the queue on has it in another directory."""
    assert run(plan(Fault(3.0, Kind.SAME_DIRECTORY, 4, 0, 0.3, queue=1))).broken is None


def test_what_never_comes_to_the_end_of_a_chain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are judged by who gives them: not by the source, which knows nothing of them."""
    giver = Stream.giver
    monkeypatch.setattr(Stream, "giver", lambda self, sink: giver(self, giver(self, sink)))
    assert run(plan()).check == "acknowledged"


def test_which_copies_are_passed_on_is_drawn_for_some_seeds() -> None:
    plans = [RunPlan.of(seed, SECONDS, both_ways=True) for seed in range(90)]
    with_routes = [each for each in plans if each.routes]
    assert 20 < len(with_routes) < 40
    for each in with_routes:
        for route in each.routes:
            assert len({route.queue, route.host, route.via}) == 3
        asked = RunPlan.of(each.seed, SECONDS, both_ways=True, passed_on=True)
        assert asked == each
        assert RunPlan.of(each.seed, SECONDS, both_ways=True, passed_on=False).routes == ()
