"""The directory where the hosts of this machine can be asked: one socket for each of them.

A socket says by its rights who may ask. So a directory that another user could have made, as in a
place for what is temporary, is used only if it is ours alone.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Final

_NAME: Final = "cqrepl"


class NotOurs(Exception):
    """Others may write to the directory."""


def usual_directory(environ: Mapping[str, str]) -> Path:
    """The one that is used if none is named: that of the service, of the login, or one in the
    place for what is temporary."""
    if environ.get("RUNTIME_DIRECTORY"):
        return Path(environ["RUNTIME_DIRECTORY"].partition(":")[0])
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"]) / _NAME
    return Path(gettempdir()) / f"{_NAME}-{os.getuid()}"


def usual_run_dir() -> Path:
    """The directory where `cqrepl status` and the commands that tell a host what to do look for it,
    if they are given none: `CQREPL_RUN_DIR`, else that of the service, of the login, or one in the
    place for temporary files."""
    named = os.environ.get("CQREPL_RUN_DIR")
    return Path(named) if named else usual_directory(os.environ)


def make_directory(path: Path) -> None:
    """Makes it, for its owner alone; one that is there has to be so.

    Raises:
        NotOurs: others may write to it.
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0) or stat.S_IMODE(found.st_mode) & 0o022:
        raise NotOurs(f"{path}: a directory that only its owner writes to expected")


def socket_path(directory: Path, host_id: int) -> Path:
    """The path of the socket at which a host is asked."""
    return directory / f"host-{host_id}.sock"


def lock_path(directory: Path, host_id: int) -> Path:
    """The path of the file that a living host has locked, so that no other takes its place."""
    return directory / f"host-{host_id}.lock"


def known_hosts(directory: Path) -> list[int]:
    """The hosts that have, or had, a socket there."""
    found = (path.stem.partition("-")[2] for path in directory.glob("host-*.sock"))
    return sorted(int(each) for each in found if each.isdigit())
