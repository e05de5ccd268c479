"""Runs one plan: hosts, network, disks and clocks in one thread, and what must be true of it.

outcome = run(RunPlan.of(seed=7, seconds=60))
outcome.broken      what was not true; None when all was
outcome.digest      of all that happened: equal plans give equal ones
"""

import logging
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from trio.testing import MockClock

from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.testing.checker import (
    BrokenPromiseError,
    check_agreed,
    check_invented,
    check_kept,
    check_mark,
    content,
    difference,
)
from cqrepl.testing.cluster import Cluster, running_cluster
from cqrepl.testing.labhosts import QUEUE, LabHost, fill_with_others
from cqrepl.testing.order import ordered_by
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan
from cqrepl.testing.story import Carried, Happening, Story

QUIET_SECONDS: Final = 60.0  # so long may copies take to be equal, once no faults come
CHECK_SECONDS: Final = 1.0
WRITE_BACK_SECONDS: Final = 5.0
_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Args:
        broken: what was not true; None when all was.
        check: the name of the check that found it.
        injected: how many faults of each kind there were.
        real_seconds: how long the run took.
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


def run(plan: RunPlan) -> Outcome:
    """Runs a plan."""
    story = Story()
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="cqrepl-", dir=_MEMORY if _MEMORY.is_dir() else None))
    laboratory = _Laboratory(plan, story)
    broken = None
    try:
        # no path of this machine, which another run would not have, gets into what hosts say
        with chdir(folder), ordered_by(f"order {plan.seed}"), _quiet_logs(story):
            trio.run(laboratory.run, clock=MockClock(autojump_threshold=0.0))
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        # whatever a host ends with is a finding
        broken = _promise_of(error) or BrokenPromiseError("crash", _last_words(error))
        story.end(str(broken))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
    )


class _Laboratory:
    """One run of one plan."""

    def __init__(self, plan: RunPlan, story: Story) -> None:
        self.plan = plan
        self.injected: Counter[str] = Counter()
        self.appended = 0
        self._story = story
        self._hosts: dict[int, LabHost] = {}
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
            ) as self._cluster,
            trio.open_nursery() as nursery,
        ):
            self._hosts = self._cluster.hosts
            nursery.start_soon(self._cluster.application.run)
            nursery.start_soon(self._check_now_and_then)
            nursery.start_soon(self._write_back)
            for fault in plan.faults:
                nursery.start_soon(self._inject, fault)
            await trio.sleep(plan.seconds)
            await self._become_quiet()
            self._judge()
            nursery.cancel_scope.cancel()

    # ---- faults ----------------------------------------------------------------------------------

    async def _inject(self, fault: Fault) -> None:
        await trio.sleep_until(fault.at)
        self.injected[fault.kind.value] += 1
        self._story.tell("fault", str(fault))
        host = self._hosts[fault.host]
        match fault.kind:
            case Kind.KILL:
                host.kill()
                await trio.sleep(fault.lasting)
                host.start()
            case Kind.STOP:
                host.stop()
                await trio.sleep(fault.lasting + 3.0)
                host.start()
            case Kind.ANEW:
                host.kill()
                shutil.rmtree(host.path)
                self._cluster.application.restart()
                self._cluster.application.written.begin_anew()
                self._cluster.application.append()
                await trio.sleep(fault.lasting)
                host.start()
            case Kind.FOREIGN:
                host.kill()
                shutil.rmtree(host.path, ignore_errors=True)
                fill_with_others(host.machine, self.plan.roll_cycle)
                await trio.sleep(fault.lasting)
                host.start()
            case Kind.KILL_APPLICATION:
                self._cluster.application.kill()
            case Kind.POWER_CUT:
                host.power_cut()
                await trio.sleep(fault.lasting)
                if fault.host == SOURCE:
                    self._cluster.application.restart()
                host.start()
            case Kind.DISK_FULL:
                host.machine.is_full = True
                await trio.sleep(fault.lasting)
                host.machine.is_full = False
            case Kind.CLOCK_STEP:
                host.machine.skew_ns += int(fault.step_s * 1e9)
            case Kind.CUT:
                self._cut(fault)
            case _:
                await self._weather(fault)

    async def _weather(self, fault: Fault) -> None:
        there = self._cluster.network.weather(fault.host, fault.peer)
        back = self._cluster.network.weather(fault.peer, fault.host)
        match fault.kind:
            case Kind.STALL:
                there.stall()
                back.stall()
            case Kind.STALL_ONE_WAY:
                there.stall()
            case Kind.SWALLOW:
                there.is_swallowing = True
            case Kind.SPLIT:
                there.is_splitting = True
            case Kind.SLOW:
                there.delay_s = back.delay_s = (0.05, 0.4)
        await trio.sleep(fault.lasting)
        there.clear()
        back.clear()
        if fault.kind is Kind.SWALLOW:  # what was lost on the way, the system would send again
            self._cut(fault)

    def _cut(self, fault: Fault) -> None:
        """Cuts what is between the two hosts, whichever dialled."""
        pair = {fault.host, fault.peer}
        self._cluster.network.cut(lambda link: set(link.hosts) == pair)

    async def _write_back(self) -> None:
        if all(fault.kind is not Kind.POWER_CUT for fault in self.plan.faults):
            return
        while True:
            await trio.sleep(WRITE_BACK_SECONDS)
            for each in self._hosts.values():
                each.machine.write_back()

    # ---- checks ----------------------------------------------------------------------------------

    async def _check_now_and_then(self) -> None:
        while True:
            await trio.sleep(CHECK_SECONDS)
            self._check_marks()

    def _check_marks(self) -> None:
        node = self._hosts[SOURCE].node
        if not isinstance(node, Source):
            return
        own = self._hosts[SOURCE].path
        for host, marks in sorted(node.queues[QUEUE].marks.items()):
            there = self._hosts[host]
            if not there.was_cut:
                check_mark(f"host {host}", marks.acknowledged, there.path)
            check_mark("the source itself", marks.acknowledged, own)

    async def _become_quiet(self) -> None:
        """No more faults, all hosts up, nothing appended: copies become equal, or say why not."""
        self._story.tell("laboratory", "no more faults")
        self._cluster.application.is_writing = False
        longest = max((fault.lasting for fault in self.plan.faults), default=0.0) + 4.0
        await trio.sleep(longest)  # those that last end by themselves
        for each in self._hosts.values():
            each.start()
        with trio.move_on_after(QUIET_SECONDS):
            while not self._is_settled():
                await trio.sleep(0.5)

    def _is_settled(self) -> bool:
        sinks = self._cluster.sinks
        return all(self._has_told(each) or self._cluster.is_settled(each) for each in sinks)

    def _has_told(self, sink: LabHost) -> bool:
        """Why this copy goes no further was said: by both sides, or by a process that has ended.

        A stop at the source does not tell of which sink it is: any counts.
        """
        node, source = sink.node, self._hosts[SOURCE].node
        if not isinstance(node, Sink) or not isinstance(source, Source):
            return bool(sink.ends) and sink.node is None
        return bool(node.stops) and bool(source.stops)

    def _judge(self) -> None:
        check_agreed(entry.text for entry in self._story.entries)
        written = self._cluster.application.written
        source = self._cluster.source
        found = content(source.path)
        check_invented("the source", found, written)
        if not source.was_cut:
            check_kept("the source", found, written)
        last = max(found, default=-1)
        for each in self._cluster.sinks:
            if self._has_told(each):
                continue
            copy = content(each.path)
            check_invented(each.machine.name, copy, written)
            text = difference(found, copy)
            if text is not None:
                raise BrokenPromiseError("equal", f"{each.machine.name} differs silently: {text}")
            if source.known_of(each) != last:
                text = f"{each.machine.name} has all, and the source was not told so"
                raise BrokenPromiseError("acknowledged", text)
        self.appended = self._cluster.application.count
        self._story.tell("laboratory", f"{len(found)} excerpts, copies are equal or say why not")


def _promise_of(error: BaseException) -> BrokenPromiseError | None:
    """The broken promise in a tree of errors, whatever came of it besides; None without one."""
    if isinstance(error, BrokenPromiseError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_promise_of, error.exceptions)), None)
    return None


def _last_words(error: BaseException) -> str:
    """What an error says, and where it was raised; of a group, its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


@contextmanager
def _quiet_logs(story: Story) -> Iterator[None]:
    """What the product logs becomes part of the story."""

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
