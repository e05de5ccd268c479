"""Starts and ends the FIX engine beside a host, as the command `onRole` of the demonstration.

    python -m cqrepl.fixengine FOLDER HOST_ID JAR DIRECTORY PORT SESSIONS RATE TIMEOUT_MS \
        QUEUE ROLE EPOCH

A host that comes to lead has its engine started, one that follows has it ended: so at each time at
most one engine of this host has the queue open. `engineN.pid` names it; a line of `roles` is a
change of a role.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import trio

JVM_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dchronicle.analytics.disable=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
TERM_SECONDS: Final = 3.0  # then it is killed
_LOOK_SECONDS: Final = 0.02


def is_running(pid: int) -> bool:
    """True while a process has not ended, whether its parent has asked for that or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def engine_pid(folder: Path, host_id: int) -> int | None:
    """The process of the engine beside a host; None where none runs."""
    try:
        pid = int((folder / f"engine{host_id}.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if is_running(pid) else None


def end_engine(folder: Path, host_id: int) -> None:
    """Ends the engine beside a host, and waits until it is gone."""
    pid = engine_pid(folder, host_id)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    began = time.monotonic()
    while is_running(pid):
        if time.monotonic() - began > TERM_SECONDS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


async def _start(folder: Path, host_id: int, jar: str, words: list[str], epoch: str) -> None:
    command = ["java", *JVM_OPTIONS, "-jar", jar, "acceptor", *words, f"{host_id}.{epoch}"]
    said, errors = folder / f"engine{host_id}.{epoch}.out", folder / "engines.err"
    with said.open("ab") as out, errors.open("ab") as err:
        engine = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    (folder / f"engine{host_id}.pid").write_text(str(engine.pid))


def main() -> None:
    """Does what the role of the host asks for."""
    folder, host_id = Path(sys.argv[1]), int(sys.argv[2])
    jar, *words = sys.argv[3:9]
    queue, role, epoch = sys.argv[9:]
    if queue != Path(words[0]).name:
        return  # of no engine
    end_engine(folder, host_id)
    if role == "leading":
        trio.run(_start, folder, host_id, jar, words, epoch)
    with (folder / "roles").open("a") as roles:
        roles.write(f"{host_id} {role} {epoch}\n")


if __name__ == "__main__":
    main()
