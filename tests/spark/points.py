"""Points of a job at which it can be killed or stopped: each file that it touches is one.

A driver that runs with `environment` counts, in itself and in all Python processes that Spark
starts for it, the calls that open, name, make or remove something below `work` in a job's folder.
Each job has a folder of its own below one root, so several can run at once. A plan there, which
the test writes, says at which of the job's points something happens, once:

    count          nothing does: points are counted, those of the driver's own process apart
    kill worker    the process that got there gets signal 9; the driver itself does not count then
    kill executor  the Java process gets it for which that process works; only tasks count then
    pause          the process that got there waits until the file `go` is there

Only the standard library is imported here: every Python process of Spark begins with this.
"""

import fcntl
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "CQREPL_TEST_POINTS"
_EVENTS: Final = frozenset(
    f"os.{name}" for name in ("rename", "link", "mkdir", "remove", "rmdir", "scandir", "listdir")
)
WORK: Final = "work"  # in a job's folder, all that it touches
_PAUSE_S: Final = 0.01
_OF_DRIVER, _OF_OTHERS = b"d", b"w"  # what a point adds to the file `count`


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The event that is to happen. `at` counts from 1; 0: nothing happens.

    Args:
        delay_ms: how long after the point, for what the kernel does without asking Python.
        pids: the driver's process, and its Java's.
    """

    what: str
    at: int
    pids: Sequence[int]
    delay_ms: float = 0


def environment(root: Path) -> Mapping[str, str]:
    """The environment by which a driver has the points of jobs below this folder counted."""
    tree = Path(__file__).parents[2]
    paths = [str(Path(__file__).with_name("atstart")), str(tree), os.environ.get("PYTHONPATH", "")]
    return {VARIABLE: str(root), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def set_plan(folder: Path, plan: Plan) -> None:
    """Has a job's points counted from the first on; for a job that does not run at the moment."""
    for name in ("count", "paused", "go", "done", "ended"):
        (folder / name).unlink(missing_ok=True)
    new = folder / "plan.new"
    new.write_text(json.dumps(asdict(plan)))
    new.rename(folder / "plan")


def counted(folder: Path, *, of_driver: bool = True) -> int:
    """The number of points of a job since its plan was made.

    Args:
        of_driver: those of the driver's own process count as well.
    """
    path = folder / "count"
    found = path.read_bytes() if path.exists() else b""
    return len(found) if of_driver else found.count(_OF_OTHERS)


def install() -> None:
    """Has this process, and those that it forks, count its points."""
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        sys.addaudithook(_Points(folder).take)


class _Points:
    def __init__(self, root: str) -> None:
        self._job = re.compile(f"{re.escape(root)}/([^/]+)/{WORK}/")
        self._root = root
        self._within = threading.local()

    def take(self, event: str, arguments: tuple[object, ...]) -> None:
        """Looks whether this is a point, and whether it is the one."""
        if (event != "open" and event not in _EVENTS) or getattr(self._within, "is", False):
            return
        for each in arguments[:2]:
            if isinstance(each, str | bytes | os.PathLike):
                found = self._job.match(os.fsdecode(each))
                if found is not None:
                    break
        else:
            return
        self._within.__dict__["is"] = True
        try:
            self._reached(f"{self._root}/{found[1]}")
        finally:
            self._within.__dict__["is"] = False

    def _reached(self, folder: str) -> None:
        try:
            with open(f"{folder}/plan") as file:
                plan = Plan(**json.load(file))
        except FileNotFoundError:
            return
        is_driver = os.getpid() in plan.pids
        if plan.what == "kill worker" and is_driver:
            return
        if plan.what == "kill executor" and (is_driver or _java_above() in plan.pids):
            return  # of the driver, or of its Java process, which plans and commits
        if self._next(folder, _OF_DRIVER if is_driver else _OF_OTHERS) == plan.at:
            self._act(folder, plan)

    def _next(self, folder: str, mark: bytes) -> int:
        """The number of this point."""
        descriptor = os.open(f"{folder}/count", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, mark)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _act(self, folder: str, plan: Plan) -> None:
        with open(f"{folder}/done", "w"):
            pass
        if plan.what == "pause":
            with open(f"{folder}/paused", "w"):
                pass
            while not os.path.exists(f"{folder}/go"):
                time.sleep(_PAUSE_S)
        else:
            pid = {"kill worker": os.getpid, "kill executor": _java_above}[plan.what]()
            if plan.delay_ms:
                threading.Thread(target=_kill, args=(pid, plan.delay_ms / 1000)).start()
            else:
                _kill(pid, 0)


def _java_above() -> int:
    """The Java process of this one: the parent of the daemon that has forked it."""
    with open(f"/proc/{os.getppid()}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("PPid:"))


def _kill(pid: int, delay_s: float) -> None:
    time.sleep(delay_s)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
