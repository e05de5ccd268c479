"""The threads that trio keeps for the next work."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from trio._core._thread_cache import THREAD_CACHE


@contextmanager
def none_kept() -> Iterator[None]:
    """Takes the idle threads of trio away for the length of a block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(THREAD_CACHE, "_idle_workers", {})
        yield
