"""The pauses after polls that found nothing: spins, then yields, then longer and longer sleeps."""

import time

from cqrepl.queue.read.pauser import Pauser


def test_spins_then_yields_then_sleeps_that_double_up_to_a_cap() -> None:
    pauser = Pauser(spins=2, yields=3, sleep_min_s=0.001, sleep_max_s=0.005)
    for _ in range(2):
        delays = [pauser.next_delay() for _ in range(10)]
        assert delays == [None, None, 0.0, 0.0, 0.0, 0.001, 0.002, 0.004, 0.005, 0.005]
        pauser.reset()


def test_a_pause_is_no_longer_than_its_limit() -> None:
    pauser = Pauser(spins=1, yields=1, sleep_min_s=1000.0, sleep_max_s=1000.0)
    started = time.monotonic()
    for limit_s in (0.0, 0.0, 0.001, -1.0):
        pauser.pause(limit_s)
    assert time.monotonic() - started < 1000
