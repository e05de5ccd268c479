"""Points of a job at which it can be killed or stopped: each file that it touches is one.

A driver that runs with `environment` counts, in itself and in all Python processes that Spark
starts for it, the calls that open, name, make or remove something below one folder. A plan, which
the test writes, says at which of them something happens, once:

    kill driver    the driver and its Java process get signal 9, whichever process got there
    kill worker    the process that got there gets it; the driver itself does not count then
    kill executor  the Java process gets it for which that process works; only tasks count then
    pause          the process that got there waits until the file `go` is there

Only the standard library is imported here: every Python process of Spark begins with this.
"""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "CQREPL_TEST_POINTS"
_EVENTS: Final = frozenset(
    (
        "open",
        "os.rename",
        "os.link",
        "os.mkdir",
        "os.remove",
        "os.rmdir",
        "os.scandir",
        "os.listdir",
    )
)
_PAUSE_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to happen. `at` counts from 1; 0: nothing, the points are counted only.

    Args:
        delay_ms: how long after the point, for what the kernel does without asking Python.
        pids: the driver's process, and its Java's.
    """

    what: str
    at: int
    pids: Sequence[int]
    delay_ms: float = 0


def environment(folder: Path) -> Mapping[str, str]:
    """What a driver needs around it so that points below `work` in this folder are counted."""
    root = Path(__file__).parents[2]
    paths = [str(Path(__file__).with_name("atstart")), str(root), os.environ.get("PYTHONPATH", "")]
    return {VARIABLE: str(folder), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def set_plan(folder: Path, plan: Plan) -> None:
    """Has points counted from the first on; for a driver that does nothing at the moment."""
    for name in ("count", "paused", "go", "done"):
        (folder / name).unlink(missing_ok=True)
    new = folder / "plan.new"
    new.write_text(json.dumps(asdict(plan)))
    new.rename(folder / "plan")


def counted(folder: Path) -> int:
    """How many points there were since the plan was made."""
    path = folder / "count"
    return path.stat().st_size if path.exists() else 0


def install() -> None:
    """Has this process, and those that it forks, count its points."""
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        sys.addaudithook(_Points(folder).take)


class _Points:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._prefix = f"{folder}/work/"
        self._within = threading.local()

    def take(self, event: str, arguments: tuple[object, ...]) -> None:
        """Looks whether this is a point, and whether it is the one."""
        if event not in _EVENTS or getattr(self._within, "is", False):
            return
        names = [each for each in arguments[:2] if isinstance(each, str | bytes | os.PathLike)]
        if any(os.fsdecode(each).startswith(self._prefix) for each in names):
            self._within.__dict__["is"] = True
            try:
                self._reached()
            finally:
                self._within.__dict__["is"] = False

    def _reached(self) -> None:
        try:
            with open(f"{self._folder}/plan") as file:
                plan = Plan(**json.load(file))
        except FileNotFoundError:
            return
        if plan.what == "kill worker" and os.getpid() in plan.pids:
            return
        if plan.what == "kill executor" and not {os.getpid(), _java_above()}.isdisjoint(plan.pids):
            return  # of the driver, or of its Java process, which plans and commits
        if self._next() == plan.at:
            self._act(plan)

    def _next(self) -> int:
        """The number of this point."""
        descriptor = os.open(f"{self._folder}/count", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, b".")
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _act(self, plan: Plan) -> None:
        with open(f"{self._folder}/done", "w"):
            pass
        if plan.what == "pause":
            with open(f"{self._folder}/paused", "w"):
                pass
            while not os.path.exists(f"{self._folder}/go"):
                time.sleep(_PAUSE_S)
        else:
            pids = {
                "kill driver": plan.pids,
                "kill worker": [os.getpid()],
                "kill executor": [_java_above()],
            }[plan.what]
            if plan.delay_ms:
                threading.Thread(target=_kill, args=(pids, plan.delay_ms / 1000)).start()
            else:
                _kill(pids, 0)


def _java_above() -> int:
    """The Java process of this one: the parent of the daemon that has forked it."""
    with open(f"/proc/{os.getppid()}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("PPid:"))


def _kill(pids: Sequence[int], delay_s: float) -> None:
    time.sleep(delay_s)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
