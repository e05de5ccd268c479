"""Descriptors, of any number: `select` takes none above 1,023."""

import select


def is_readable(descriptor: int, seconds: float = 0.0) -> bool:
    """True when the descriptor can be read within so many seconds."""
    waited = select.poll()
    waited.register(descriptor, select.POLLIN)
    return bool(waited.poll(seconds * 1000))
