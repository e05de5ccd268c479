"""Options, turns and verdicts, as the measuring programs of this folder share them."""

import argparse
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from cqrepl.bench.processes import WAIT_SECONDS, Running
from cqrepl.queue import Queue, QueueError

LOOK_SECONDS = 0.05
Case = TypeVar("Case")


def asked(text: str | None, **defaults: bool | float | str) -> argparse.Namespace:
    """The options of a program that this text describes: one for each name, of the default's
    type."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    """Numbers with commas between them."""
    return [int(each) for each in text.split(",")]


def in_turn(cases: Iterable[Case], nth: int) -> list[Case]:
    """The order of cases in a round: each second one goes backwards."""
    return list(cases)[:: -1 if nth % 2 else 1]


def verdict(ratios: Sequence[float], goal: float | None = None, *, wants_more: bool = False) -> str:
    """The middle ratio, all of them from the least to the greatest, and whether that is enough."""
    middle = statistics.median(ratios)
    text = f"x{middle:.2f} ({min(ratios):.2f} .. {max(ratios):.2f})"
    if goal is None:
        return text
    is_met = middle >= goal if wants_more else middle <= goal
    return f"{text}, {'goal met' if is_met else 'missed'}"


def loaded() -> str:
    """The load of one minute, as it stands beside a round."""
    return f"load {os.getloadavg()[0]:.2f}"


def last_index(path: Path) -> int | None:
    try:
        with Queue.open(path) as queue:
            return queue.last_index()
    except QueueError:
        return -1


def await_copies(
    pairs: Iterable[tuple[Path, Path]], *processes: Running, seconds: float = WAIT_SECONDS
) -> None:
    """Returns when each copy has all of its queue; looks after the processes meanwhile."""
    deadline = time.monotonic() + seconds
    for queue, copy in pairs:
        while last_index(copy) != last_index(queue):
            for each in processes:
                each.check()
            if time.monotonic() > deadline:
                raise QueueError("the copy was not complete in time", path=copy)
            time.sleep(LOOK_SECONDS)
