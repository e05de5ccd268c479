"""Liveness: once faults have healed, what is appended arrives, and what is waited for is answered.

Each fault is planted so that all copies are equal and nothing is lost: only that nothing goes on.
"""

from typing import Any

import pytest
import trio

from cqrepl.host import Host
from cqrepl.net import dialer
from cqrepl.replicator.leadership import Leading
from cqrepl.testing import livecheck
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan
from tests.support.schedules import schedule

Patch = pytest.MonkeyPatch
SECONDS = 8.0
QUIET = schedule(seconds=SECONDS, rate=1.0)
CUT = Fault(SECONDS - 0.5, Kind.CUT, 2, SOURCE, 0.0)  # with little to come behind it


def roles(plan: RunPlan) -> list[RunPlan]:
    changed: list[dict[str, Any]] = [{}, {"both_ways": True}, {"changing": True, "hosts": 3}]
    return [schedule(*plan.faults, seconds=SECONDS, rate=0.5, **each) for each in changed]


@pytest.mark.parametrize("plan", roles(QUIET.only([CUT])), ids=["one way", "both ways", "changing"])
def test_a_host_that_dials_once_is_found(plan: RunPlan, monkeypatch: Patch) -> None:
    once = dialer._dial_once

    async def never_again(address: Any, *rest: Any) -> Any:
        if trio.current_time() > 2.0:
            await trio.sleep_forever()
        return await once(address, *rest)

    assert run(plan).broken is None
    monkeypatch.setattr(dialer, "_dial_once", never_again)
    outcome = run(plan)
    assert outcome.check in ("live", "waiting", "equal"), outcome.broken


@pytest.mark.parametrize("plan", roles(QUIET), ids=["one way", "both ways", "changing"])
def test_hosts_that_fall_asleep_in_the_end_are_found(plan: RunPlan, monkeypatch: Patch) -> None:
    """Nothing is told any more, though all that there was has been."""
    within = livecheck._within

    async def asleep(is_so: Any) -> bool:
        monkeypatch.setattr("cqrepl.net.pump.Pump.wake", lambda self: None)
        monkeypatch.setattr("cqrepl.net.pump.Pump.look", lambda self: None)
        return await within(is_so)

    assert run(plan).broken is None
    monkeypatch.setattr(livecheck, "_within", asleep)
    outcome = run(plan)
    assert outcome.check == "live"
    assert "something new comes not" in str(outcome.broken)


def test_a_wait_that_is_not_answered_is_found(monkeypatch: Patch) -> None:
    wait = Leading.wait_acked

    async def late(self: Leading, *arguments: Any) -> Any:
        outcome = await wait(self, *arguments)
        await trio.sleep(5.0)
        return outcome

    plan = schedule(seconds=SECONDS, hosts=3, rate=4.0, changing=True)
    assert run(plan).broken is None
    monkeypatch.setattr(Leading, "wait_acked", late)
    outcome = run(plan)
    assert outcome.check == "timed"
    assert "goes on though all that it waits for have it" in str(outcome.broken)


STEPS_DOWN = schedule(
    Fault(4.0, Kind.STEP_DOWN, 2, 0, 1.0), Fault(7.0, Kind.STEP_DOWN, 3, 0, 0.3),
    seconds=10.0, hosts=3, rate=4.0, changing=True,
)  # fmt: skip


def test_a_leader_steps_down_and_a_host_is_promoted() -> None:
    outcome = run(STEPS_DOWN)
    assert outcome.broken is None, outcome.broken
    said = [each.text for each in outcome.story if each.where == "operator"]
    assert sum("step down: it leads no more" in each for each in said) == 2
    assert sum("promote q False: queue 'q': host" in each for each in said) == 2


def test_a_leader_that_only_says_that_it_steps_down_is_found(monkeypatch: Patch) -> None:
    async def stays(*_: Any) -> None:
        pass

    monkeypatch.setattr(Host, "step_down", stays)
    outcome = run(STEPS_DOWN)
    assert outcome.check == "promotion"
    assert "host 1 has stepped down, and leads on" in str(outcome.broken)
