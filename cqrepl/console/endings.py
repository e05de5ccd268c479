"""The signals that end a command in order, from its first moment on.

Theory of operation. Until a command has begun its work there is nothing to put in order, and an
exception that a signal raises while modules are loaded may get lost in a place that takes none. So
at first a signal ends the process at once, with the exit code that the command has for it
(`end_at_once`). Then the command takes them over: as an exception, or as what a task waits for.
When it is over they change nothing: while the interpreter takes itself apart it has given back what
it had set up for signals, and the system's way to end a process would hide the exit code.
"""

import atexit
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from cqrepl.console.exitcodes import INTERRUPTED


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C's, SIGTERM, and SIGHUP, unless that is ignored, as under `nohup`."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def end_at_once(code: int) -> None:
    """From now on each of these ends the process, without a word: it has not begun. Nothing of that
    is left once the interpreter ends.

    Args:
        code: for all but Ctrl-C's.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(INTERRUPTED if number == signal.SIGINT else code)

    for number in _heard(ending_signals()):
        signal.signal(number, end)
    atexit.register(_ignore)  # the first one that is registered is called last


def _ignore() -> None:
    """The exit code stands: what is left are moments."""
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)


def hold_hangup() -> None:
    """SIGHUP waits until `let_hangup_in`: a host that still starts is not ended by what has it read
    its file again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])


def let_hangup_in() -> None:
    """From now on SIGHUP comes, with the one that has waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])


def _heard(signals: Iterable[signal.Signals]) -> list[signal.Signals]:
    """The signals that this process does not ignore: a shell has background jobs ignore Ctrl-C."""
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]


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
def ended_as_by_ctrl_c(signals: Iterable[signal.Signals] | None = None) -> Iterator[None]:
    """For the length of a block each of these raises `KeyboardInterrupt`, as Ctrl-C does.

    Args:
        signals: all that end a command, if not given.
    """
    wanted = ending_signals() if signals is None else signals
    before = {number: signal.getsignal(number) for number in _heard(wanted)}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
