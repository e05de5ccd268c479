"""Chooses the codec that reads documents: the native one, or the one in plain Python alone.

The native one, `wire._codec` (native/document, in Rust), reads what is usual, and leaves all else
to the plain one in `wire.objects`, which is the reference: both give the same for every input,
errors included. CQREPL_KERNEL picks, as it does for the kernel of `cqrepl`:

    auto     the native one if it is there; so it is without the variable
    native   the native one, or ImportError
    python   the plain one

Both state the number of their interface; a native codec with another one is a leftover of an older
build, and is not used.
"""

import os
import warnings
from types import ModuleType
from typing import Final

INTERFACE: Final = 4
_SWITCH: Final = "CQREPL_KERNEL"


def chosen(choice: str) -> ModuleType | None:
    """The native codec; None where the plain one is to do all.

    Raises:
        ImportError: the native one is wanted, and cannot be used.
    """
    if choice == "python":
        return None
    try:
        import wire._codec as native

        if native.INTERFACE != INTERFACE:
            raise ImportError(
                f"expected a native codec with interface {INTERFACE}, found {native.INTERFACE};"
                " install cqrepl again"
            )
    except ImportError as error:
        if choice == "native":
            raise ImportError(f"{_SWITCH} wants the native codec: {error}") from error
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(f"plain Python codec in use: {error}", RuntimeWarning, stacklevel=2)
        return None
    return native


NATIVE: Final = chosen(os.environ.get(_SWITCH, "auto"))
NAME: Final = "python" if NATIVE is None else "native"
