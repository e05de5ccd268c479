"""A store that speaks S3, on loopback: versitygw where it is installed, else moto's server.

versitygw is a real server over a directory (`go install` of github.com/versity/versitygw's
cmd/versitygw); moto's keeps all in memory, and is made for tests.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.support.ports import reserved_port

PATIENCE_S = 120
_GO = Path.home() / "go" / "bin" / "versitygw"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A running server; `environment` is what clients need of credentials."""

    kind: str
    endpoint: str
    environment: dict[str, str]

    def url(self, bucket: str, prefix: str) -> str:
        """The URL of an archive there."""
        return f"s3://{bucket}/{prefix}?endpoint_override={self.endpoint}&region=us-east-1"


@contextmanager
def store(folder: Path) -> Iterator[Store]:
    """A server for the length of a block."""
    port = reserved_port()
    endpoint = f"http://127.0.0.1:{port}"
    program = shutil.which("versitygw") or (str(_GO) if _GO.exists() else None)
    environment = dict(CREDENTIALS)
    if program is not None:
        (folder / "buckets").mkdir()
        words = [program, "--port", f"127.0.0.1:{port}", "posix", str(folder / "buckets")]
        root = {"ROOT_ACCESS_KEY": "tester", "ROOT_SECRET_KEY": "tester-secret"}
    else:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        root = {}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words, env={**os.environ, **environment, **root}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            _wait_for(endpoint, process, folder / "log")
            kind = "moto" if program is None else "versitygw"
            yield Store(kind=kind, endpoint=endpoint, environment=environment)
        finally:
            process.terminate()
            process.wait()


def _wait_for(endpoint: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            urlopen(endpoint).close()
            return
        except HTTPError as error:  # it answers, though not without a name
            error.close()
            return
        except (URLError, OSError):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
