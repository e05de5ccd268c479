"""Runs one plan: hosts, network, disks and clocks in one thread, and what must be true of it.

outcome = run(RunPlan.of(seed=7, seconds=60))
outcome.broken      what was not true; None when all was
outcome.digest      of all that happened: equal plans give equal ones
"""

import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from trio.testing import MockClock

from cqrepl.testing.bystander import Bystander
from cqrepl.testing.checker import BrokenPromiseError, check_agreed, check_moving, last_index
from cqrepl.testing.cluster import Cluster, running_cluster
from cqrepl.testing.electedjudge import ElectedJudge
from cqrepl.testing.electedqueue import ElectedQueue
from cqrepl.testing.experiment import NOTHING, Check, Experiment, MakeProgram, OwnFault
from cqrepl.testing.faults import Injector
from cqrepl.testing.history import History
from cqrepl.testing.judge import Judge
from cqrepl.testing.labhosts import LabHost
from cqrepl.testing.labmachine import NO_CALL, Machine
from cqrepl.testing.ledjudge import LedJudge
from cqrepl.testing.ledqueue import LedQueue
from cqrepl.testing.ledwaits import LedWaits
from cqrepl.testing.livecheck import check_live
from cqrepl.testing.operators import Operator
from cqrepl.testing.order import ordered_by
from cqrepl.testing.plan import Kind, RunPlan
from cqrepl.testing.quietanswers import check_answers
from cqrepl.testing.rundisks import folder_of_a_run
from cqrepl.testing.safewaits import SafeWaits
from cqrepl.testing.site import Work
from cqrepl.testing.standstill import Standstill
from cqrepl.testing.story import Carried, Happening, Story

QUIET_SECONDS: Final = 60.0  # so long may copies take to be equal, once no faults come
REST_SECONDS: Final = 2.0  # without another excerpt, where programs append what is left to do
CHECK_SECONDS: Final = 1.0
WRITE_BACK_SECONDS: Final = 5.0
LATE_SECONDS: Final = 15.0  # until a file that was lost at last is missed
_LATE: Final = {Kind.FILE_GONE, Kind.FILE_OLD}
_WITH_POWER_CUTS: Final = {Kind.POWER_CUT, Kind.POWER_CUT_AT_CALL, Kind.FAIL_OVER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run.

    Args:
        broken: what was not true; None when all was.
        check: the name of the check that found it.
        injected: how many faults of each kind there were.
        real_seconds: how long the run took.
        waits: whether programs waited as policies say.
        called_safe: how many waits called something safe, by the level of their policy.
        timed_out: how many ended with the time of their policy.
        admitted: how many appends were let through once others were safe.
    """

    plan: RunPlan
    broken: str | None
    check: str | None
    digest: str
    story: list[Happening]
    carried: list[Carried]
    injected: dict[str, int]
    appended: int
    real_seconds: float
    called_safe: Mapping[str, int]
    timed_out: int
    admitted: int
    waits: bool
    experiment: Experiment = field(default=NOTHING, repr=False)
    history: History = field(default_factory=History, repr=False)


def run(
    plan: RunPlan,
    *,
    waits: bool = False,
    programs: Sequence[MakeProgram] = (),
    workload: Work | None = None,
    services: Sequence[Work] = (),
    checks: Sequence[Check] = (),
    faults: Mapping[str, OwnFault] | None = None,
    writes: bool = False,
    applies: bool = False,
    settings: str = "",
) -> Outcome:
    """Runs a plan, with parts of a user (`cqrepl.testing.experiment`).

    Args:
        waits: programs wait as policies say, and what they called safe has to be there in the end;
            not with faults that no policy covers (`safewaits.NOT_COVERED`).
        programs: make the programs of each start of a host.
        workload: runs beside each host.
        services: run on machines of their own. `RunPlan.with_parts` draws faults for them.
        checks: find what is not as it must be.
        faults: by their names, those that the plan has of a user.
        writes: programs or workloads append to the queues of the run, too.
        applies: programs tell what they have applied of a queue whose leader changes.
        settings: what stands in the file of the cluster besides.
    """
    experiment = Experiment(
        programs=programs,
        workload=workload,
        services=services,
        checks=checks,
        faults=faults or {},
        writes=writes,
        applies=applies,
        settings=settings,
    )
    return run_experiment(plan, experiment, waits=waits)


def run_experiment(plan: RunPlan, experiment: Experiment, *, waits: bool = False) -> Outcome:
    """Runs a plan with the parts of a user; the arguments are those of `run`."""
    story = Story()
    started = time.perf_counter()
    laboratory = _Laboratory(plan, story, experiment, waits=waits)
    broken = None
    try:
        # no path of this machine, which another run would not have, gets into what hosts say
        with (
            folder_of_a_run() as folder,
            chdir(folder),
            ordered_by(f"order {plan.seed}"),
            _quiet_logs(story),
        ):
            trio.run(laboratory.run, clock=MockClock(autojump_threshold=0.0))
    except BaseException as error:
        if not isinstance(error, Exception):
            if _is_interrupt(error):
                raise KeyboardInterrupt from None
            raise
        # whatever a host ends with is a finding
        broken = _promise_of(error) or BrokenPromiseError("crash", _last_words(error))
        story.end(str(broken))
    return Outcome(
        plan=plan,
        broken=None if broken is None else str(broken),
        check=None if broken is None else broken.check,
        digest=story.digest,
        story=story.entries,
        carried=story.carried,
        injected=dict(laboratory.injected),
        appended=laboratory.appended,
        real_seconds=time.perf_counter() - started,
        waits=waits,
        experiment=experiment,
        history=laboratory.history,
        called_safe=sum((each.called for each in laboratory.waits), Counter()),
        timed_out=sum(each.timed.ended for each in laboratory.waits),
        admitted=sum(each.admitted for each in laboratory.waits if isinstance(each, SafeWaits)),
    )


class _Laboratory:
    """One run of one plan."""

    def __init__(self, plan: RunPlan, story: Story, experiment: Experiment, *, waits: bool) -> None:
        self.plan = plan
        self.history = History()  # until the run begins
        self._experiment = experiment
        self.waits: list[SafeWaits | LedWaits] = []
        self._has_waits = waits
        self.injected: Counter[str] = Counter()
        self.appended = 0
        self._story = story
        self._hosts: dict[int, LabHost] = {}
        self._judges: list[Judge] = []
        self._led_judges: list[LedJudge] = []  # of queues whose leaders change
        self._cluster: Cluster

    async def run(self) -> None:
        """The run, from the first start to the last check."""
        plan = self.plan
        async with (
            running_cluster(
                Path(),
                plan.hosts,
                seed=plan.seed,
                roll_cycle=plan.roll_cycle,
                rate=plan.rate,
                story=self._story,
                both_ways=plan.both_ways,
                changing=plan.changing,
                bursts=plan.bursts,
                with_frames=plan.with_frames,
                routes=plan.routes,
                acks=plan.acks,
                groups=plan.groups,
                experiment=self._experiment,
                plan=plan,
            ) as self._cluster,
            trio.open_nursery() as nursery,
        ):
            self._hosts = self._cluster.hosts
            self.history = self._cluster.scene.history
            for machine in self._machines:
                machine.loses_power = self._loses_power
                if plan.rare:
                    machine.rare = random.Random(f"rare {machine.host} {plan.seed}")
            standstill = Standstill(nursery.cancel_scope)
            trio.lowlevel.add_instrument(standstill)
            streams = self._cluster.streams.values()
            self._judges = [Judge(self._cluster, each, plan.faults) for each in streams]
            if self._has_waits:
                self.waits = [SafeWaits(stream, plan.seed) for stream in streams]
            for each_wait in self.waits:
                nursery.start_soon(each_wait.run)
            for stream in streams:
                nursery.start_soon(stream.application.run)
            nursery.start_soon(self._check_now_and_then)
            nursery.start_soon(self._write_back)
            for stream in streams:
                for copy in (stream.source, *stream.sinks):
                    nursery.start_soon(Bystander(copy, stream).run)
            injector = Injector(plan, self._cluster, self._experiment.faults)
            self.injected = injector.injected
            for group, led in self._cluster.led.items():
                self._begin_led(nursery, led, injector.operators[group])
            for fault in plan.faults:
                nursery.start_soon(injector.inject, fault)
            await trio.sleep(plan.seconds)
            await self._become_quiet()
            self._judge()
            nursery.cancel_scope.cancel()
        check_moving(standstill.busy)

    def _begin_led(self, nursery: trio.Nursery, led: LedQueue, operator: Operator) -> None:
        """Applications, and programs that wait, at the hosts of a queue whose leader changes."""
        applies = not self._experiment.applies
        waits = LedWaits(led, self.plan.acks, is_timed=self._has_waits, applies=applies)
        self.waits.append(waits)
        if isinstance(led, ElectedQueue):
            self._led_judges.append(ElectedJudge(led, operator, waits, self._story))
        else:
            self._led_judges.append(LedJudge(led, operator, waits, self._story))
        for application in led.applications.values():
            nursery.start_soon(application.run)
        nursery.start_soon(waits.run)

    @property
    def _loses_power(self) -> bool:
        return any(fault.kind in _WITH_POWER_CUTS for fault in self.plan.faults)

    @property
    def _machines(self) -> list[Machine]:
        services = self._cluster.scene.services.values()
        return [*(each.machine for each in self._hosts.values()), *(s.machine for s in services)]

    async def _write_back(self) -> None:
        if not self._loses_power:
            return
        while True:
            await trio.sleep(WRITE_BACK_SECONDS)
            for machine in self._machines:
                machine.write_back()

    # ---- checks ----------------------------------------------------------------------------------

    async def _check_now_and_then(self) -> None:
        while True:
            await trio.sleep(CHECK_SECONDS)
            for judge in self._judges:
                judge.check_marks()
                judge.check_waiting()
            for led_judge in self._led_judges:
                led_judge.check()
            for each in self.waits:
                each.timed.look()
            for host in self._hosts.values():
                if self.waits and host.source is not None:
                    host.source.changed.set()  # for the bell, which is not heard here

    async def _become_quiet(self) -> None:
        """No more faults, all hosts up, nothing appended: copies become equal, or say why not."""
        self._story.tell("laboratory", "no more faults")
        self._cluster.scene.quiet.set()
        for stream in self._cluster.streams.values():
            stream.application.end_writing()
        for led in self._cluster.led.values():
            led.is_writing = False
        for machine in self._machines:
            machine.fail_in(NO_CALL)  # a call that did not come by now fails no more
        longest = max((fault.lasting for fault in self.plan.faults), default=0.0) + 4.0
        if any(fault.kind in _LATE for fault in self.plan.faults):
            longest += LATE_SECONDS
        await trio.sleep(longest)  # those that last end by themselves
        for site in self._cluster.scene.services.values():
            site.life.start()
        for each in self._hosts.values():
            each.start()
        for led_judge in self._led_judges:
            await led_judge.make_good()
        with trio.move_on_after(QUIET_SECONDS):
            while not all(judge.is_settled for judge in self._all_judges):
                await trio.sleep(0.5)
        await check_live(self._all_judges)
        answering = (pair for judge in self._all_judges for pair in judge.answering)
        await check_answers(answering, applies=not self._experiment.applies)
        if self._experiment.writes:
            await self._come_to_rest()

    async def _come_to_rest(self) -> None:
        """Programs append what clients asked for before, maybe only once a host leads again: waits
        until they have done so, and copies are equal once more."""
        before, since = self._ends, trio.current_time()
        with trio.move_on_after(QUIET_SECONDS):
            while trio.current_time() < since + REST_SECONDS:
                await trio.sleep(0.5)
                now = self._ends
                if now != before or not all(judge.is_settled for judge in self._all_judges):
                    before, since = now, trio.current_time()

    @property
    def _ends(self) -> list[int]:
        """The last index of each copy that applications append to."""
        led = (copy for led in self._cluster.led.values() for copy in led.copies.values())
        own = (stream.source for stream in self._cluster.streams.values())
        return [last_index(copy.path) for copy in (*own, *led)]

    @property
    def _all_judges(self) -> list[Judge | LedJudge]:
        return [*self._judges, *self._led_judges]

    def _judge(self) -> None:
        for check in self.END_CHECKS:
            check(self)
        for own in self._experiment.checks:
            for text in own(self._cluster.scene):
                raise BrokenPromiseError(getattr(own, "__name__", type(own).__name__), text)
        streams = self._cluster.streams.values()
        self.appended = sum(stream.application.count for stream in streams)
        self.appended += sum(len(led.appended) for led in self._cluster.led.values())

    def _check_said(self) -> None:
        check_agreed(entry.text for entry in self._story.entries)

    def _check_streams(self) -> None:
        for judge in self._judges:
            judge.judge(was_collected=bool(self.injected[Kind.GC.value]))

    def _check_waits(self) -> None:
        for waits in self.waits:
            if isinstance(waits, SafeWaits):
                waits.check()

    def _check_led(self) -> None:
        for judge in self._led_judges:
            judge.judge()

    END_CHECKS: Final[tuple[Callable[["_Laboratory"], None], ...]] = (
        _check_said,
        _check_streams,
        _check_waits,
        _check_led,
    )


def _is_interrupt(error: BaseException) -> bool:
    """True for Ctrl-C, and for a tree of errors in which that is."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_interrupt, error.exceptions))
    return isinstance(error, KeyboardInterrupt)


def _promise_of(error: BaseException) -> BrokenPromiseError | None:
    """The broken promise in a tree of errors, whatever came of it besides; None without one."""
    if isinstance(error, BrokenPromiseError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_promise_of, error.exceptions)), None)
    return None


def _last_words(error: BaseException) -> str:
    """The words of an error, and the place where it was raised; of a group, its first error's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


@contextmanager
def _quiet_logs(story: Story) -> Iterator[None]:
    """The log lines of the product become part of the story, and go nowhere else."""

    class LogTeller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            story.tell("log", f"{record.levelname.lower()}: {record.getMessage()}")

    logger = logging.getLogger("cqrepl")
    handler, level, passes = LogTeller(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = passes
