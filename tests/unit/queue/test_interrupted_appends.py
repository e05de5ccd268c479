"""A signal may end an append between any two steps: it leaves no lock held."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from tests.support.samples import fill, noon_index

_ENTER = contextlib._GeneratorContextManager.__enter__.__code__
STORED = 3


@contextmanager
def interrupted_after(nth: int) -> Iterator[None]:
    """Raises what a signal does at the nth time that a block has been entered."""
    entered = 0

    def at_return(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal entered
        if event == "return" and frame.f_code is _ENTER:
            entered += 1
            if entered == nth:
                raise KeyboardInterrupt
        return at_return

    before = sys.gettrace()
    sys.settrace(at_return)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("nth", range(1, 8))
def test_an_interrupted_append_leaves_no_lock(tmp_path: Path, nth: int, is_fenced: bool) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: STORED})
    batch = ExcerptBatch.of(noon_index(sequence=STORED), [b"<3>"])
    with contextlib.suppress(KeyboardInterrupt), Queue.open(path) as queue:
        appender = queue.appender()
        with interrupted_after(nth), appender.fenced(5.0) if is_fenced else nullcontext():
            appender.append_at(batch)
    with Queue.open(path) as queue:  # in the same process: no turn is left taken
        appender = queue.appender()
        index = appender.next_index
        appender.append_at(ExcerptBatch.of(index, [b"<more>"]))
        assert index >= noon_index(sequence=STORED)
