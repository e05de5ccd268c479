"""The signals that end a command in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C's, SIGTERM, and SIGHUP, unless that is ignored, as under `nohup`."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


@contextmanager
def held_back() -> Iterator[None]:
    """For the length of a block these signals wait: what begins or ends there is not torn."""
    with _masked(signal.SIG_BLOCK):
        yield


@contextmanager
def let_in() -> Iterator[None]:
    """For the length of a block in `held_back` they come all the same."""
    with _masked(signal.SIG_UNBLOCK):
        yield


@contextmanager
def _masked(how: int) -> Iterator[None]:
    before = signal.pthread_sigmask(how, ending_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """For the length of a block each of these raises `KeyboardInterrupt`, as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in ending_signals()}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
