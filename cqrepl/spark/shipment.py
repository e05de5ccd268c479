"""Puts this installation into an archive that executors unpack, the native kernel included.

An executor needs Python of the same minor version and pyarrow; what it runs of ours comes with the
job. The archive is unpacked beside the executor, so a native library in it can be loaded, which is
not so for a zip file on the Python path.
"""

import zipfile
from pathlib import Path
from typing import Final

import cqrepl
import wire

FOLDER: Final = "cqrepl_shipped"
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
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }
