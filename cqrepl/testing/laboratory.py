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
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from trio.testing import MockClock

from cqrepl.replicator.source import Source
from cqrepl.testing.bystander import Bystander
from cqrepl.testing.checker import (
    PATIENCE_SECONDS,
    BrokenPromiseError,
    check_agreed,
    check_arrived,
    check_invented,
    check_kept,
    check_mark,
    check_moving,
    check_patience,
    content,
    difference,
    is_readable,
    last_index,
)
from cqrepl.testing.cluster import Cluster, running_cluster
from cqrepl.testing.faults import Injector
from cqrepl.testing.labhosts import QUEUE, LabHost
from cqrepl.testing.order import ordered_by
from cqrepl.testing.plan import SOURCE, Kind, RunPlan
from cqrepl.testing.standstill import Standstill
from cqrepl.testing.story import Carried, Happening, Story

QUIET_SECONDS: Final = 60.0  # so long may copies take to be equal, once no faults come
CHECK_SECONDS: Final = 1.0
WRITE_BACK_SECONDS: Final = 5.0
AFTER_FAULT_SECONDS: Final = 5.0  # to start again, to notice, to dial: not counted as waiting
LATE_SECONDS: Final = 15.0  # until a file that was lost at last is missed
_LATE: Final = {Kind.FILE_GONE, Kind.FILE_OLD}
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
        self._ends: deque[tuple[float, int]] = deque()  # of the source, and when that was so
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
            standstill = Standstill(nursery.cancel_scope)
            trio.lowlevel.add_instrument(standstill)
            nursery.start_soon(self._cluster.application.run)
            nursery.start_soon(self._check_now_and_then)
            nursery.start_soon(self._write_back)
            for each in self._hosts.values():
                nursery.start_soon(Bystander(each, self._cluster.application.written).run)
            injector = Injector(plan, self._cluster)
            self.injected = injector.injected
            for fault in plan.faults:
                nursery.start_soon(injector.inject, fault)
            await trio.sleep(plan.seconds)
            await self._become_quiet()
            self._judge()
            nursery.cancel_scope.cancel()
        check_moving(standstill.busy)

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
            self._check_waiting()

    def _check_waiting(self) -> None:
        """Nobody waits longer than a limit where nothing has been in the way for so long."""
        now = trio.current_time()
        application = self._cluster.application
        source = self._hosts[SOURCE]
        self._ends.append((now, last_index(source.path)))
        if application.refused_since is not None:
            since = max(application.refused_since, self._fine_since(SOURCE))
            check_patience("the application", now - since)
        while self._ends[0][0] < now - PATIENCE_SECONDS:
            _, end = self._ends.popleft()
            for sink in self._cluster.sinks:
                if now - self._fine_since(sink.host) > PATIENCE_SECONDS and not self._has_told(
                    sink
                ):
                    check_arrived(sink.machine.name, end, last_index(sink.path))

    def _fine_since(self, host: int) -> float:
        """When the last fault was over that such a host feels; the source feels all."""
        felt = {SOURCE, host} if host != SOURCE else set(self._hosts)
        now = trio.current_time()
        return max(
            (
                fault.at + fault.lasting + AFTER_FAULT_SECONDS
                for fault in self.plan.faults
                if fault.at <= now and {fault.host, fault.peer or fault.host} <= felt
            ),
            default=0.0,
        )

    def _check_marks(self) -> None:
        node = self._hosts[SOURCE].node
        if not isinstance(node, Source):
            return
        own = self._hosts[SOURCE].path
        for host, marks in sorted(node.queues[QUEUE].marks.items()):
            there = self._hosts.get(host)
            if there is not None and not there.was_cut and not there.holds_others:
                check_mark(f"host {host}", marks.acknowledged, there.path)
            check_mark("the source itself", marks.acknowledged, own)

    async def _become_quiet(self) -> None:
        """No more faults, all hosts up, nothing appended: copies become equal, or say why not."""
        self._story.tell("laboratory", "no more faults")
        self._cluster.application.end_writing()
        longest = max((fault.lasting for fault in self.plan.faults), default=0.0) + 4.0
        if any(fault.kind in _LATE for fault in self.plan.faults):
            longest += LATE_SECONDS
        await trio.sleep(longest)  # those that last end by themselves
        for each in self._hosts.values():
            each.start()
        with trio.move_on_after(QUIET_SECONDS):
            while not self._is_settled():
                await trio.sleep(0.5)

    def _is_settled(self) -> bool:
        return all(
            self._has_told(each) or (self._cluster.is_settled(each) and not _is_astray(each))
            for each in self._cluster.sinks
        )

    def _has_told(self, sink: LabHost) -> bool:
        """Why this copy goes no further was said: by both sides, or by a process that has ended
        and says so each time that it is started."""
        source = self._cluster.source
        if sink.node is None or source.node is None:
            return bool(sink.ends if sink.node is None else source.ends)
        return bool(sink.node.stops) and source.has_told_of(sink)

    def _judge(self) -> None:
        check_agreed(entry.text for entry in self._story.entries)
        written = self._cluster.application.written
        source = self._cluster.source
        if all(map(self._has_told, self._cluster.sinks)) and not is_readable(source.path):
            self._story.tell("laboratory", "the source's queue is damaged, as all were told")
            return
        found = content(source.path)
        # what was deleted because all sinks have it is asked of them
        first = min(found, default=0) if self.injected[Kind.GC.value] else 0
        if not (source.was_cut and any(map(self._has_told, self._cluster.sinks))):
            check_invented("the source", found, written)
        if not source.was_cut:
            check_kept("the source", found, written.newest, first=first)
        for each in self._cluster.sinks:
            if not self._has_told(each):
                self._judge_copy(each, found, first)
        self.appended = self._cluster.application.count
        self._story.tell("laboratory", f"{len(found)} excerpts, copies are equal or say why not")

    def _judge_copy(self, sink: LabHost, found: dict[int, bytes], first: int) -> None:
        written = self._cluster.application.written
        if _is_astray(sink):
            why = f"{sink.machine.name} goes on in the source's own directory"
            raise BrokenPromiseError("refused", why)
        copy = content(sink.path)
        check_invented(sink.machine.name, copy, written)
        if not sink.holds_others:  # an operator removed the copy, for what did not come to be
            check_kept(sink.machine.name, copy, written.collected)
        text = difference(found, {index: copy[index] for index in copy if index >= first})
        if text is not None:
            raise BrokenPromiseError("equal", f"{sink.machine.name} differs silently: {text}")
        if self._cluster.source.known_of(sink) != max(found, default=-1):
            text = f"{sink.machine.name} has all, and the source was not told so"
            raise BrokenPromiseError("acknowledged", text)


def _is_astray(sink: LabHost) -> bool:
    """True when an operator has led its path into the source's directory."""
    return sink.path.is_symlink()


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
