"""Replication rate of this project beside a hand-written Java replication, in one interleaved run.

    python -m tests.bench.rate [--rounds 5] [--count 1000000] [--size 256] [--without-java]

Ours: a real `cqrepl source` and a real `cqrepl sink` on loopback; the time is that from the first
    excerpt sent to the last one acknowledged, both on the source's clock, as its acknowledgement
    log has them. Java: the program in `java/`, whole run and second half, as it prints them.
    Medians, and ratios of medians.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cqrepl.demo import make_queue
from cqrepl.queue import Queue
from cqrepl.queue.ackentry import ENTRY
from tests.interop.build import java_missing, queue_jar

HERE = Path(__file__).resolve().parent
WAIT_SECONDS = 300


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def our_rate(queue: Path, folder: Path, count: int) -> float:
    """Excerpts a second through two processes into a fresh directory."""
    copy, log, port = folder / "copy", folder / "acks", free_port()
    command = [sys.executable, "-m", "cqrepl"]
    sink = subprocess.Popen(
        [*command, "sink", f"q={copy}", "--listen", f"127.0.0.1:{port}", "--once"],
        stderr=subprocess.DEVNULL,
    )
    source = [*command, "source", f"q={queue}", "--connect", f"127.0.0.1:{port}"]
    subprocess.run(
        [*source, "--until-caught-up", "--ack-log", str(log)],
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=WAIT_SECONDS,
    )
    if sink.wait(WAIT_SECONDS) != 0:
        raise RuntimeError(f"the sink ended with {sink.returncode}")
    with Queue.open(log) as acknowledged:
        tailer = acknowledged.tailer()
        entries = []
        while batch := tailer.next_batch():
            entries += [ENTRY.unpack(payload) for _, payload in batch]
    seconds = (entries[-1][2] - entries[0][1]) / 1e9
    assert sum(entry[3] for entry in entries) == count
    for path in (copy, log):
        shutil.rmtree(path)
    return float(count / seconds)


def java_command() -> list[str]:
    """The Java program, compiled against the jars that the interop tests use."""
    jars = queue_jar().parent / "lib"
    classes = Path(tempfile.gettempdir()) / f"cqrepl-bench-{os.getuid()}"
    classes.mkdir(exist_ok=True)
    source = HERE / "java" / "JRepl.java"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
    arguments = f"@{HERE / 'java' / 'jvm.args'}"
    return ["java", arguments, "-cp", f"{jars}/*:{classes}", "JRepl"]


def java_rate(
    java: list[str], queue: Path, folder: Path, count: int, size: int
) -> tuple[float, float]:
    """Excerpts a second of the Java program: whole run, and its second half."""
    copy, port = folder / "java-copy", str(free_port())
    shared = [port, "tuned", str(count), str(size)]
    sink = subprocess.Popen(
        [*java, "sink", str(copy), *shared],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    subprocess.run(
        [*java, "source", str(queue), *shared],
        capture_output=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    said, _ = sink.communicate(timeout=WAIT_SECONDS)
    shutil.rmtree(copy, ignore_errors=True)  # the program clears up after itself
    found = [float(each) * 1e6 for each in re.findall(r"([\d.]+) M/s", said)]
    return found[0], found[1]


def spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):>12,.0f} [{min(rates):,.0f} .. {max(rates):,.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--without-java", action="store_true")
    options = parser.parse_args()
    missing = "not asked for" if options.without_java else java_missing()
    java = None if missing else java_command()
    ours: list[float] = []
    whole: list[float] = []
    half: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_queue(folder / "queue", options.count, options.size)
        if java is not None:
            write = [
                *java,
                "write",
                str(folder / "java-queue"),
                str(options.size),
                str(options.count),
            ]
            subprocess.run(write, check=True, capture_output=True)
        for _ in range(options.rounds):
            ours.append(our_rate(folder / "queue", folder, options.count))
            if java is not None:
                rates = java_rate(java, folder / "java-queue", folder, options.count, options.size)
                whole.append(rates[0])
                half.append(rates[1])
    print(
        f"{options.count:,} excerpts of {options.size} bytes, {options.rounds} rounds, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"cqrepl            {spread(ours)} excerpts/s")
    if java is None:
        print(f"java              left out: {missing}")
        return
    print(f"java, whole run   {spread(whole)} excerpts/s")
    print(f"java, second half {spread(half)} excerpts/s")
    ratios = (statistics.median(ours) / statistics.median(each) for each in (whole, half))
    print("cqrepl / java     {:.2f} of the whole run, {:.2f} of its second half".format(*ratios))


if __name__ == "__main__":
    main()
