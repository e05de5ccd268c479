"""Commands run in this process, and a small queue for them."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.invoke import invoke, queue

__all__ = ["hang_up_is_not_ignored", "invoke", "queue"]


@pytest.fixture(autouse=True)
def hang_up_is_not_ignored() -> Iterator[None]:
    """Under `nohup` the tests' own processes would ignore SIGHUP, as they should."""
    before = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
