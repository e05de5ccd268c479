"""Makes a failing run short: fewer faults, fewer hosts, fewer seconds, as long as it still fails.

A shorter plan counts only when the same check fails: another failure is another story.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from cqrepl.testing.laboratory import Outcome, run_experiment
from cqrepl.testing.plan import Fault, RunPlan

RUNS_MAX = 60
_AFTER_SECONDS = 2.0  # of the last fault


Shows = Callable[[Outcome], None]


def shortened(outcome: Outcome, runs_max: int = RUNS_MAX, shows: Shows = lambda _: None) -> Outcome:
    """The shortest run found that fails as this one does, after so many runs at most. Ctrl-C ends
    the search: then it is the shortest so far.

    Args:
        shows: is given each that is shorter than all before.
    """
    assert outcome.broken is not None
    shortening = _Shortening(outcome, runs_max, shows)
    with suppress(KeyboardInterrupt):
        shortening.run()
    return shortening.best


class _Shortening:
    def __init__(self, outcome: Outcome, runs_max: int, shows: Shows) -> None:
        self.best = outcome
        self._shows = shows
        self._left = runs_max

    def run(self) -> None:
        self._faults()
        fewest = 3 if self.best.plan.lease else 2  # two elect none
        self._try(lambda plan: replace(plan, hosts=fewest, faults=tuple(_about(plan, fewest))))
        self._try(_ends_with_the_last_fault)
        self._faults()
        self._try(lambda plan: replace(plan, rare=False))
        self._try(lambda plan: replace(plan, bursts=False))
        self._try(lambda plan: replace(plan, rate=min(plan.rate, 2.0)))
        self._try(lambda plan: replace(plan, faults=tuple(map(_shorter, plan.faults))))

    def _faults(self) -> None:
        """Leaves out halves, quarters, and so on, down to single ones."""
        size = max(1, len(self.best.plan.faults) // 2)
        while size:
            at = 0
            while at < len(self.best.plan.faults):
                if not self._try(partial(_without, at=at, size=size)):
                    at += size
            size //= 2

    def _try(self, change: Callable[[RunPlan], RunPlan]) -> bool:
        plan = change(self.best.plan)
        if plan == self.best.plan or self._left <= 0:
            return False
        self._left -= 1
        outcome = run_experiment(plan, self.best.experiment, waits=self.best.waits)
        if outcome.check != self.best.check:
            return False
        self.best = outcome
        self._shows(outcome)
        return True


def _shorter(fault: Fault) -> Fault:
    return replace(fault, lasting=min(fault.lasting, 1.0))


def _without(plan: RunPlan, *, at: int, size: int) -> RunPlan:
    return plan.only(plan.faults[:at] + plan.faults[at + size :])


def _about(plan: RunPlan, hosts: int) -> list[Fault]:
    return [fault for fault in plan.faults if max(fault.host, fault.peer) <= hosts]


def _ends_with_the_last_fault(plan: RunPlan) -> RunPlan:
    last = max((fault.at for fault in plan.faults), default=0.0)
    return replace(plan, seconds=min(plan.seconds, last + _AFTER_SECONDS))
