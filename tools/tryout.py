"""Tries a cqrepl that was installed, as a user does: one command after the other, as processes.

    FOLDER/bin/python -P -W error tools/tryout.py

The commands are those beside the interpreter that runs this. Each one must end as it should and
print no warning; with PYTHONWARNINGS=error a warning ends it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cqrepl.console.loglines import port_told

PROGRAM: Final = Path(sys.executable).with_name("cqrepl")
SECONDS: Final = 120.0
LINES: Final = [f"line {number}" for number in range(1000)]
LISTEN: Final = ("--listen", "127.0.0.1:0")
HOSTS: Final = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext {{baseSourcePath: {0}, baseSinkPath: {0}/copies}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:2"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:1"}}
queues:
  q: {{masterId: 1}}
"""


def checked(words: Sequence[object], code: int, said: str) -> None:
    """Ends this program unless a command has ended in order and warned of nothing."""
    if code or "Warning" in said or "Traceback" in said:
        sys.exit(f"{' '.join(map(str, words))}: exit code {code}: {said}")


def run(*words: object, given: str = "") -> str:
    """All that a command prints, once it has ended."""
    done = subprocess.run(
        [PROGRAM, *map(str, words)],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    checked(words, done.returncode, done.stderr)
    return done.stdout


@contextmanager
def running(folder: Path, *words: object, ends_itself: bool) -> Iterator[Callable[[], str]]:
    """A command in the background, and what it has said so far; it has ended after the block."""
    said = folder / f"said by {words[0]}"
    with said.open("w") as log:
        process = subprocess.Popen([PROGRAM, *map(str, words)], stderr=log)
    try:
        yield said.read_text
        if not ends_itself:
            process.terminate()
        code = process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
    checked(words, code, said.read_text())


def awaited(said: Callable[[], str]) -> int:
    """The port of a command that listens."""
    deadline = time.monotonic() + SECONDS
    while (port := port_told(said())) is None:
        if time.monotonic() > deadline:
            sys.exit(f"expected a line with a port, got: {said()}")
        time.sleep(0.02)
    return port


def equal(what: str, expected: object, found: object) -> None:
    """Ends this program unless both are the same."""
    if expected != found:
        sys.exit(f"{what}: expected {expected!r}, got {found!r}")


def main() -> None:
    """Tries both demos that take seconds, append, tail, source, sink, verify, run and status."""
    with tempfile.TemporaryDirectory(prefix="cqrepl-tryout-") as name:
        folder = Path(name)
        os.chdir(folder)
        equal("demo", "identical", run("demo", "--count", 2000).splitlines()[-1])
        typed = run("demo", "--typed").splitlines()[-1]
        equal("demo --typed", "as the plain values say", typed.partition("; ")[2])
        run("append", "q", "--create", "FAST_DAILY", given="".join(f"{each}\n" for each in LINES))
        source = ("source", "q", *LISTEN, "--until-caught-up")
        with running(folder, *source, ends_itself=True) as said:
            run("sink", "q=copy", "--connect", f"127.0.0.1:{awaited(said)}", "--once")
        shown = run("tail", "copy", "--from", "first").splitlines()
        equal("tail", LINES, [line.split(maxsplit=1)[-1] for line in shown])
        run("verify", "q", "copy")
        Path("hosts").write_text(HOSTS.format(folder))
        at = ("--run-dir", "run")
        host = ("run", "-c", "hosts", "--host-id", 1, *LISTEN, *at)
        with running(folder, *host, ends_itself=False) as said:
            awaited(said)
            if "q" not in run("status", *at):
                sys.exit("status names no queue")


if __name__ == "__main__":
    main()
