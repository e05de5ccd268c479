"""Builds the Java programs of tools/java when a test first needs them, and says why not."""

import fcntl
import functools
import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.support.requirements import require

JAVA = Path(__file__).resolve().parents[2] / "tools" / "java"
JAVA_FLAGS = JAVA / "java-flags.txt"

BUILD_TIMEOUT_S = 600

# what Maven says when it cannot get what a build needs, as against a mistake in the sources
OFFLINE = ("could not be resolved", "Could not resolve", "Could not transfer", "offline mode")


class JavaUnavailableError(Exception):
    """Java, Maven, or what Maven would have to fetch is not there."""


def java_missing() -> str | None:
    """The reason why the Java programs cannot be run or built here; None when they can."""
    if shutil.which("java") is None:
        return "no java on the path"
    if shutil.which("mvn") is None:
        unbuilt = [name for name in ("queue", "network") if not _is_built(JAVA / name)]
        if unbuilt:
            return f"no mvn on the path to build tools/java/{unbuilt[0]}"
    return None


def require_java() -> None:
    """Skips the running test (or fails it, see `require`) where the Java programs cannot be had."""
    reason = java_missing()
    if reason is None:
        try:
            queue_jar()
            peer_classpath()
        except JavaUnavailableError as error:
            reason = str(error)
    if reason is not None:
        require("java", reason)


def queue_jar() -> Path:
    """The jar of tools/java/queue, built if it is missing or older than its sources."""
    return _build(JAVA / "queue") / "queue-interop.jar"


def zookeeper_classpath() -> str:
    """The class path of tools/java/zookeeper, fetched likewise: a server of ZooKeeper."""
    return f"{_build(JAVA / 'zookeeper') / 'lib'}/*"


def fix_jar() -> Path:
    """The jar of tools/java/fix, built likewise: a pair of FIX engines, and their store. Skips the
    running test where it cannot be had (or fails it, see `require`)."""
    require_java()
    try:
        return fix_jar_of()
    except JavaUnavailableError as error:
        require("java", str(error))
        raise


def fix_jar_of() -> Path:
    """The same jar, for what is no test.

    Raises:
        JavaUnavailableError: it cannot be built.
    """
    return _build(JAVA / "fix") / "fix-store.jar"


def peer_classpath() -> str:
    """The class path of tools/java/network, built likewise; run it with the flags in JAVA_FLAGS."""
    target = _build(JAVA / "network")
    return f"{target / 'network-peer.jar'}:{target / 'lib'}/*"


def _is_built(project: Path) -> bool:
    """Compares with a stamp, since Maven leaves a jar alone whose content would not change."""
    stamp = project / "target" / "built.stamp"
    if not stamp.exists() or not (project / "target" / "lib").is_dir():
        return False
    sources = [project / "pom.xml", *project.glob("src/**/*.java")]
    return max(source.stat().st_mtime_ns for source in sources) < stamp.stat().st_mtime_ns


@functools.cache
def _build(project: Path) -> Path:
    target = project / "target"
    target.mkdir(exist_ok=True)
    with (target / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_built(project):
            started_ns = time.time_ns()
            _run_maven(project)
            stamp = target / "built.stamp"
            stamp.touch()
            os.utime(stamp, ns=(started_ns, started_ns))  # a source edited meanwhile is newer
    return target


def _run_maven(project: Path) -> None:
    if shutil.which("mvn") is None:
        raise JavaUnavailableError(f"no mvn on the path to build {project.name}")
    run = subprocess.run(
        ["mvn", "-q", "-B", "-Dstyle.color=never", "package"],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if run.returncode == 0:
        return
    if any(words in run.stdout for words in OFFLINE):
        raise JavaUnavailableError(f"Maven cannot fetch for {project.name}: {run.stdout[:500]}")
    raise RuntimeError(f"mvn package failed in {project}:\n{run.stdout}")
