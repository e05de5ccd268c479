"""Chronicle Queue in Java, and a replication written by hand around it (the programs in `java/`).

Java compiles while it runs. Only what it does once that is over counts: the second half of a run,
or the last of several passes.
"""

import os
import subprocess
from pathlib import Path

from tests.bench.peers.programs import WAIT_SECONDS, kept, missing_program, run, said_numbers
from tests.support.javabuild import JavaUnavailableError, java_missing, queue_jar
from tests.support.ports import reserved_port

INSTALL = "a Java development kit, 17 or newer, and Maven"
COMMANDS = (
    "java Rate write DIR SIZE COUNT; java Rate sink DIR PORT COUNT & "
    "java Rate source DIR PORT COUNT",
    "java Delay sink DIR PORT COUNT & java Delay source DIR PORT COUNT & "
    "java Delay write DIR SIZE COUNT GAP_US",
    "java Local DIR SIZE COUNT PASSES",
)
HERE = Path(__file__).resolve().parent / "java"
PASSES = 3


def missing() -> str | None:
    """The reason why the programs cannot be run here; None when they can."""
    reason = java_missing() or missing_program("javac")
    if reason is None:
        try:
            queue_jar()
        except JavaUnavailableError as error:
            reason = str(error)
    return reason


def rate(folder: Path, size: int, count: int) -> dict[str, float]:
    """Catching up into fresh files: `whole_per_s`, `half_per_s`, `sink_cpu_ns`."""
    java, port = _command(folder), reserved_port()
    queue = folder / f"java-{size}-{count}"
    if not queue.exists():
        run([*java, "Rate", "write", queue, size, count])
        os.sync()  # as ours is
    copy = folder / "java-copy"
    with _started([*java, "Rate", "sink", str(copy), str(port), str(count)]) as sink:
        run([*java, "Rate", "source", queue, port, count])
        return _numbers(sink)


def delay(folder: Path, size: int, count: int, gap_us: int) -> dict[str, float]:
    """One-way delays while excerpts come one by one: `p50_us`, `p90_us`, `p99_us`."""
    java, port = _command(folder), reserved_port()
    queue, copy = folder / f"java-live-{port}", folder / "java-live-copy"
    with (
        _started([*java, "Delay", "sink", str(copy), str(port), str(count)]) as sink,
        _started([*java, "Delay", "source", str(queue), str(port), str(count)]) as source,
    ):
        assert source.stdout is not None
        if source.stdout.readline().strip() != "ready":
            raise RuntimeError("the Java source did not get ready")
        run([*java, "Delay", "write", queue, size, count, gap_us])
        return _numbers(sink)


def local(folder: Path, size: int, count: int) -> dict[str, float]:
    """One process, warm: `append_ns`, `copied_ns` and `viewed_ns` for each excerpt."""
    queue = folder / "java-local"
    return said_numbers(run([*_command(folder), "Local", queue, size, count, PASSES]))


def _command(folder: Path) -> list[str]:
    """The start of a command; the programs are compiled once for each folder."""
    jars, classes = queue_jar().parent / "lib", kept(folder, "java-classes")
    path = f"{jars}/*"
    if not any(classes.iterdir()):
        run(["javac", "-cp", path, "-d", classes, *HERE.glob("*.java")])
    return ["java", f"@{HERE / 'jvm-flags.txt'}", "-cp", f"{path}:{classes}"]


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _numbers(process: subprocess.Popen[str]) -> dict[str, float]:
    said, _ = process.communicate(timeout=WAIT_SECONDS)
    return said_numbers(said)
