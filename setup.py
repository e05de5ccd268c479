"""Adds the native kernel and codec, and the scan for Spark, to pyproject.toml, which says the rest.

CQREPL_BUILD_KERNEL says what is wanted:

    auto      both, if cargo is there and the build works; else plain Python (the default)
    require   both, or no installation
    skip      plain Python

CQREPL_SPARK_JARS names a directory with Spark's jars, as `pyspark/jars`: the scan in Java
(`native/spark`) is compiled against them. Without it the jar is left out, and queues are read in
Spark by the source in Python.
"""

import os
import runpy
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

_SWITCH = "CQREPL_BUILD_KERNEL"
_SPARK_JARS = "CQREPL_SPARK_JARS"
_HERE = Path(__file__).resolve().parent
_JAR = _HERE / "cqrepl" / "spark" / "cqrepl-spark.jar"


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


def make_spark_jar(jars: str | None) -> None:
    """Compiles the scan for Spark where jars are named; else says that it is left out.

    Raises:
        SystemExit: it does not compile.
    """
    if jars:
        runpy.run_path(str(_HERE / "native" / "spark" / "build.py"))["build"](Path(jars), _JAR)
    elif not _JAR.exists():
        print(f"cqrepl: {_SPARK_JARS} names no jars, so Spark reads queues by the Python source")


def manual_pages() -> list[tuple[str, list[str]]]:
    """The manual pages of all commands, made of the options that they have, for `man`."""
    sys.path.insert(0, str(_HERE))
    from cqrepl.cli.main import cli
    from cqrepl.commands.manpages import write_pages

    write_pages(cli, _HERE / "build" / "man")
    pages = sorted((_HERE / "build" / "man").glob("*.1"))
    return [("share/man/man1", [str(each.relative_to(_HERE)) for each in pages])]


make_spark_jar(os.environ.get(_SPARK_JARS))
wanted = os.environ.get(_SWITCH, "auto")
if wants_kernel(wanted):
    setup(
        data_files=manual_pages(),
        rust_extensions=[
            crate("cqrepl._native", "kernel", wanted),
            crate("wire._codec", "document", wanted),
        ],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    setup(data_files=manual_pages())
