"""A process that gets no thread, as where a limit of processes is reached."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STACK_BYTES = 1 << 47  # more than there are addresses: the system refuses it with EAGAIN


@contextmanager
def no_threads() -> Iterator[None]:
    """Lets no thread start within the block; those that there are go on."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)
