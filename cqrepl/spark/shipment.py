"""Puts this installation into an archive that executors unpack, the native kernel included.

An executor needs Python of the same minor version and pyarrow; what it runs of ours comes with the
job. The archive is unpacked beside the executor, so a native library in it can be loaded, which is
not so for a zip file on the Python path.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import cqrepl
import wire

FOLDER: Final = "cqrepl_shipped"
_ARCHIVES: Final = "spark.archives"
_PATH: Final = "spark.executorEnv.PYTHONPATH"
_SUFFIXES: Final = (".py", ".so", ".pyi", ".lua", ".typed")


def ship_settings(folder: Path) -> dict[str, str]:
    """Settings for executors that run this installation; the archive is made in `folder`."""
    archive = folder / "cqrepl.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for package in (cqrepl, wire):
            assert package.__file__ is not None
            root = Path(package.__file__).parent
            for path in sorted(root.rglob("*")):
                if path.suffix in _SUFFIXES:
                    out.write(path, path.relative_to(root.parent))
    return {_ARCHIVES: f"{archive}#{FOLDER}", _PATH: f"./{FOLDER}"}


def beside(ours: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Our settings together with those of the same names that the user chose: both are lists, of
    archives and of folders, and what is shipped comes first."""
    joined = {}
    for name, value in ours.items():
        sign = "," if name == _ARCHIVES else ":"
        others = [each for each in chosen.get(name, "").split(sign) if each and each != value]
        joined[name] = sign.join([value, *others])
    return joined
