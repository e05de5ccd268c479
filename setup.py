"""Adds the native kernel and the native codec to what pyproject.toml says, which is all the rest.

CQREPL_BUILD_KERNEL says what is wanted:

    auto      both, if cargo is there and the build works; else plain Python (the default)
    require   both, or no installation
    skip      plain Python
"""

import os
import shutil
import sys

from setuptools import setup
from setuptools_rust import Binding, RustExtension

_SWITCH = "CQREPL_BUILD_KERNEL"


def wants_kernel(wanted: str) -> bool:
    """True when the kernel is to be built; says so when it cannot be.

    Raises:
        SystemExit: the word is not known.
    """
    if wanted not in ("auto", "require", "skip"):
        sys.exit(f"{_SWITCH}: expected auto, require or skip, found {wanted!r}")
    if wanted == "auto" and shutil.which("cargo") is None:
        print("cqrepl: no cargo found, so this installation runs on the plain Python kernel")
        return False
    return wanted != "skip"


def crate(name: str, folder: str, wanted: str) -> RustExtension:
    """A crate; a failing build of one that is not required leaves it out."""
    return RustExtension(
        name,
        path=f"native/{folder}/Cargo.toml",
        binding=Binding.PyO3,
        args=["--locked"],
        debug=False,
        optional=wanted == "auto",
        py_limited_api=True,
    )


wanted = os.environ.get(_SWITCH, "auto")
if wants_kernel(wanted):
    setup(
        rust_extensions=[
            crate("cqrepl._native", "kernel", wanted),
            crate("wire._codec", "document", wanted),
        ],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    setup()
