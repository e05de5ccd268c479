"""Deletes old store files of a host's queues while it runs, as rules of its file say.

Theory of operation. What a rule may take is what `cqrepl gc --apply` would take with the same
numbers, by the same plan and under the same lock; a host that leads a queue also waits for hosts of
the file that have said nothing yet. A queue without a rule keeps all. Where a rule deletes only as
space is short, and nothing may go, the log says once what holds the first file.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.units import format_bytes
from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.write.retention import FileVerdict, Policy, plan, remove
from cqrepl.surroundings import surroundings

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """The files that a queue keeps.

    Args:
        queues: its name, or a pattern.
        keep: so many of the newest store files.
        keep_ms: what is younger; 0: for no time.
        free_below_bytes: nothing goes while more than so much of its disk is free; 0: whatever is.
        interval_seconds: between two looks.
    """

    queues: str
    keep: int = 1
    keep_ms: int = 0
    free_below_bytes: int = 0
    interval_seconds: float = 60.0

    def __str__(self) -> str:
        parts = [f"keep={self.keep}"]
        parts += [f"keepTime={self.keep_ms}ms"] if self.keep_ms else []
        parts += [f"freeBelow={self.free_below_bytes}"] if self.free_below_bytes else []
        return f"{self.queues}={' '.join([*parts, f'interval={self.interval_seconds:g}s'])}"


def rule_of(rules: Sequence[RetentionRule], name: str) -> RetentionRule | None:
    """The rule of a queue: the first that names it, else the first whose pattern it fits."""
    exact = [each for each in rules if each.queues == name]
    fits = [each for each in rules if fnmatchcase(name, each.queues)]
    return next(iter([*exact, *fits]), None)


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of one look at a queue.

    Args:
        gone: files that were deleted.
        held: why the first file stays, though space is short; or empty.
    """

    gone: tuple[FileVerdict, ...] = ()
    held: str = ""


def collect(path: Path, rule: RetentionRule, members: frozenset[int], now_ms: int) -> Collected:
    """Deletes what may go of one queue; in any thread.

    Args:
        members: hosts that have to have passed what goes, though nothing was heard of them yet.
        now_ms: since 1970.

    Raises:
        QueueError, OSError: it cannot be looked at, or a file not be deleted.
    """
    status = os.statvfs(path)
    free = status.f_bavail * status.f_frsize
    is_short = not rule.free_below_bytes or free < rule.free_below_bytes
    if not is_short:
        return Collected()
    policy = Policy(
        cycles_min=rule.keep,
        keep_from_ms=now_ms - rule.keep_ms if rule.keep_ms else None,
        members=members,
    )
    with Queue.open(path) as queue:
        verdicts = plan(queue.cycles, policy)
        gone = remove(queue.cycles, policy) if any(e.is_removable for e in verdicts) else []
    if gone or not rule.free_below_bytes or not verdicts:
        return Collected(tuple(gone))
    return Collected(held=f"{format_bytes(free)} are free, nothing may go: {verdicts[0]}")


class Retention:
    """The rules of one host at work.

    Args:
        paths: the directories of its queues, by name, as they are now.
        members: of a queue that is led here, the hosts that take it.
    """

    def __init__(
        self,
        rules: Sequence[RetentionRule],
        paths: Callable[[], Mapping[str, Path]],
        members: Callable[[str], frozenset[int]],
    ) -> None:
        self._rules = rules
        self._paths = paths
        self._members = members
        self._due: dict[str, float] = {}  # when a queue is looked at next
        self._said: dict[str, str] = {}  # what was said last of a queue

    async def run(self) -> None:
        """Looks for ever; returns at once without a rule."""
        while self._rules:
            for name, path in dict(self._paths()).items():
                rule = rule_of(self._rules, name)
                if rule is not None and trio.current_time() >= self._due.get(name, 0.0):
                    self._due[name] = trio.current_time() + rule.interval_seconds
                    await self._look(name, path, rule)
            await trio.sleep(min(each.interval_seconds for each in self._rules))

    async def _look(self, name: str, path: Path, rule: RetentionRule) -> None:
        now_ms = surroundings().wall_ms()
        try:
            found = await in_thread(partial(collect, path, rule, self._members(name), now_ms))
            problem = found.held
        except (QueueError, OSError) as error:
            found, problem = Collected(), str(error)
        for each in found.gone:
            size = format_bytes(each.size_bytes)
            _logger.info("queue %r: retention deleted %s, %s", name, each.path.name, size)
        if problem and self._said.get(name) != problem:
            _logger.warning("queue %r: retention: %s", name, problem)
        self._said[name] = problem
