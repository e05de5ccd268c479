"""Programs that the peers are made of: where they are, how they are built, what they say.

A peer prints `name number` pairs on one line. What is built is kept in the folder of the run.
"""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

WAIT_SECONDS = 180
_PAIR = re.compile(r"([a-z0-9_]+) (-?[0-9.]+)")


def missing_program(*names: str) -> str | None:
    """A text that names those of these that are not installed; None when all are."""
    absent = [name for name in names if shutil.which(name) is None]
    return f"{', '.join(absent)} not on the path" if absent else None


def said_numbers(text: str) -> dict[str, float]:
    """The pairs in the last line of what a peer has said."""
    lines = text.strip().splitlines()
    found = {name: float(value) for name, value in _PAIR.findall(lines[-1] if lines else "")}
    if not found:
        raise RuntimeError(f"numbers expected, the peer said {text[-200:]!r}")
    return found


def run(command: Sequence[object]) -> str:
    """The output of a program; an error when the program fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def connected(port: int) -> socket.socket:
    """A connection to a server on this host, which may still be starting."""
    for _ in range(400):
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        except ConnectionRefusedError:
            time.sleep(0.025)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise RuntimeError(f"no process listens on port {port}")


def kept(folder: Path, name: str) -> Path:
    """A folder of this name, made if it is not there."""
    place = folder / name
    place.mkdir(exist_ok=True)
    return place
