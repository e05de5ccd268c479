"""The order in which trio runs its tasks, from a seed: the one place that reaches into trio.

trio shuffles the tasks that are ready, with a generator of its own. For Hypothesis it can be had in
the order in which they were made, shuffled by a generator that Hypothesis seeds; the same switch
serves here. `tests/laboratory/test_order.py` fails when a trio is installed that has it no more.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio


@contextmanager
def ordered_by(seed: str) -> Iterator[None]:
    """Runs that begin in the block take their tasks in an order that follows from the seed."""
    # private, and not in the types: see above
    scheduler: Any = trio._core._run
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r = random.Random(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r = before
