"""A thread that asks for short turns."""

import os
import re
import threading
from pathlib import Path

import pytest

from cqrepl.net.scheduler import wake_soon


def in_a_thread(look: list[str], nice: int) -> None:
    own = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, own, nice)
    for _ in range(2):
        wake_soon()
    look.append(str(os.getpriority(os.PRIO_PROCESS, own)))
    look.append(str(os.sched_getscheduler(own) & ~os.SCHED_RESET_ON_FORK))
    told = Path(f"/proc/self/task/{own}/sched")
    look.append(told.read_text() if told.exists() else "")


def test_its_turns_are_short_and_its_priority_is_what_it_was() -> None:
    look: list[str] = []
    thread = threading.Thread(target=in_a_thread, args=(look, 5))
    thread.start()
    thread.join()
    nice, policy, told = look
    assert (nice, policy) == ("5", "0")
    slice_ns = re.search(r"slice\s*:\s*([0-9]+)", told)
    if slice_ns is None:
        pytest.skip("this Linux does not tell the length of turns")
    assert int(slice_ns[1]) == 100_000


def test_a_system_that_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    thread = threading.Thread(target=wake_soon)
    thread.start()
    thread.join()
