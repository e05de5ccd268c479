"""Chooses the kernel that this process uses: the native one, or the one in plain Python.

Both give the same for every input: `cqrepl._native` (native/, in Rust) and `cqrepl.kernel.plain`.
CQREPL_KERNEL picks one when this module is imported:

    auto     the native one if it is there; so it is without the variable
    native   the native one, or `KernelUnavailable`
    python   the plain one

Both state the number of their interface; a native kernel with another one is a leftover of an older
build, and refused.
"""

import os
import warnings
from typing import Final

from cqrepl.kernel import plain
from cqrepl.kernel.errors import KernelUnavailable
from cqrepl.kernel.interface import INTERFACE, Kernel

_SWITCH: Final = "CQREPL_KERNEL"


def _native() -> Kernel:
    """The native kernel.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: there is one, and it cannot be used.
    """
    # `from cqrepl import _native` would ask `cqrepl.__getattr__`, which hides that no file is there
    import cqrepl._native as native

    if native.INTERFACE != INTERFACE:
        raise ImportError(
            f"expected a native kernel with interface {INTERFACE}, found"
            f" {native.INTERFACE}; install cqrepl again"
        )
    return native


def chosen(choice: str) -> Kernel:
    """The kernel to use.

    Raises:
        KernelUnavailable: it cannot be used, or the word is not known.
    """
    if choice not in ("auto", "native", "python"):
        raise KernelUnavailable(f"{_SWITCH}: expected auto, native or python, found {choice!r}")
    if choice == "python":
        return plain
    try:
        return _native()
    except ImportError as error:
        if choice == "native":
            raise KernelUnavailable(f"{_SWITCH} wants the native kernel: {error}") from error
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(f"plain Python kernel in use: {error}", RuntimeWarning, stacklevel=2)
        return plain


KERNEL: Kernel = chosen(os.environ.get(_SWITCH, "auto"))
NAME: Final = KERNEL.NAME
