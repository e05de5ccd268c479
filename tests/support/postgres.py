"""A PostgreSQL of its own for a test: its server listens at a socket in its directory."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.requirements import require

_OWNER = "postgres"  # it does not run as root
_PLAIN = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "listen_addresses=")


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        require("postgres", "no PostgreSQL is installed")
    if importlib.util.find_spec("psycopg") is None:
        require("postgres", "psycopg is not installed")
    return found[-1].parent


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of its database, as SQLAlchemy has it. Skips the test where there is none."""
    programs = _programs()
    owner = _OWNER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="cq-pg-"))  # a short path: it has a socket
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data = str(folder / "data")
        made = [
            str(programs / "initdb"),
            "-D",
            data,
            "-U",
            _OWNER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "-N",
        ]
        subprocess.run([*made, "--locale=C"], check=True, user=owner, capture_output=True)
        command = [str(programs / "postgres"), "-D", data, "-k", str(folder), *_PLAIN]
        log = (folder / "log").open("wb")
        with log, subprocess.Popen(command, user=owner, stdout=log, stderr=log) as server:
            try:
                ready = [str(programs / "pg_isready"), "-h", str(folder), "-t", "30", "-q"]
                while subprocess.run(ready, check=False).returncode:
                    assert server.poll() is None, (folder / "log").read_text()
                yield f"postgresql+psycopg://{_OWNER}@/postgres?host={folder}"
            finally:
                server.send_signal(signal.SIGINT)  # it waits for no client
    finally:
        shutil.rmtree(folder)
