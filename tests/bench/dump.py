"""`wire-dump` beside Java's `DumpMain` on one queue file, whole processes, interleaved.

    python -m tests.bench.dump [--rounds 5] [--count 200000] [--size 256] [--without-java]

The excerpts are random bytes. Both print to a file in memory; Java has its default heap. Time on
the clock, time of the processors (which load on the machine changes less), greatest resident
memory, until the first output; medians, and ratios of medians.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.javabuild import JAVA_FLAGS, java_missing, queue_jar

BATCH = 1000
LOOK_SECONDS = 0.005
NOW_MS = 1_700_000_000_000
DUMP_MAIN = "net.openhft.chronicle.queue.main.DumpMain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    seconds: float
    cpu_seconds: float
    memory_mib: float
    first_seconds: float


def peak_kib(pid: int) -> int:
    """Greatest resident memory so far; what `wait4` tells counts this process's own as well."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return 0 if found is None else int(found[1])


def make_store(folder: Path, count: int, size: int) -> Path:
    """A queue of random excerpts; gives its only store file."""
    numbers = random.Random(count)
    with Queue.open_for_append(folder, create=QueueLayout.of(by_name("FAST_DAILY"))) as queue:
        appender = queue.appender()
        for start in range(0, count, BATCH):
            payloads = [numbers.randbytes(size) for _ in range(min(BATCH, count - start))]
            appender.append(payloads, NOW_MS)
    (store,) = folder.glob("*.cq4")
    return store


def measure(command: Sequence[str], out: Path) -> Run:
    """Runs a command to its end, with its output in a file."""
    with out.open("wb") as file:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        first, memory_kib = None, 0
        while True:
            memory_kib = max(memory_kib, peak_kib(process.pid))
            if first is None and os.fstat(file.fileno()).st_size:
                first = time.monotonic() - started
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Run(
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_mib=memory_kib / 1024,
        first_seconds=first or seconds,
    )


def median(runs: Sequence[Run]) -> Run:
    def of(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in runs))

    return Run(
        seconds=of("seconds"),
        cpu_seconds=of("cpu_seconds"),
        memory_mib=of("memory_mib"),
        first_seconds=of("first_seconds"),
    )


def shown(name: str, run: Run) -> str:
    return (
        f"{name:<20} {run.seconds:6.2f} s   processor {run.cpu_seconds:6.2f} s   "
        f"memory {run.memory_mib:6.1f} MiB   first output {run.first_seconds:5.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--without-java", action="store_true")
    options = parser.parse_args()
    missing = "not asked for" if options.without_java else java_missing()
    with tempfile.TemporaryDirectory() as name:
        store = str(make_store(Path(name) / "queue", options.count, options.size))
        ours = [str(Path(sys.executable).with_name("wire-dump"))]
        commands = {"wire-dump": [*ours, store], "wire-dump --plain": [*ours, "--plain", store]}
        if missing is None:
            jars = queue_jar().parent / "lib"
            java = ["java", f"@{JAVA_FLAGS}", "-cp", f"{jars}/*", DUMP_MAIN, store]
            commands["DumpMain"] = java
        runs: dict[str, list[Run]] = {each: [] for each in commands}
        shared = Path("/dev/shm")
        out = (shared if shared.is_dir() else Path(name)) / f"cqrepl-dump-{os.getpid()}"
        try:
            for _ in range(options.rounds):
                for each, command in commands.items():
                    runs[each].append(measure(command, out))
        finally:
            out.unlink(missing_ok=True)
    print(
        f"{options.count:,} excerpts of {options.size} random bytes, {options.rounds} rounds, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    found = {each: median(of) for each, of in runs.items()}
    for each, run in found.items():
        print(shown(each, run))
    if missing is not None:
        print(f"DumpMain             left out: {missing}")
        return
    java_run = found.pop("DumpMain")
    for each, run in found.items():
        print(
            f"{each} / DumpMain: {run.seconds / java_run.seconds:.2f} of its time, "
            f"{run.cpu_seconds / java_run.cpu_seconds:.2f} of its processor time, "
            f"{run.memory_mib / java_run.memory_mib:.3f} of its memory"
        )


if __name__ == "__main__":
    main()
