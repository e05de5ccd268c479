"""The number of safe writes a second where threads wait for their own, 64 of them against one.

    python -m tests.bench.waiters [--threads 1,64] [--levels appended,synced,applied] [--seconds 5]
                                  [--rounds 3] [--size 64] [--peers]

A source runs in this process, its event loop in a thread; a sink is a process of its own. Each of
the threads appends one excerpt, waits until the sink has it (`Leading.append` with a policy), and
begins anew. At `synced` one sync of the sink's disk serves all that came before it, so that many
threads get many times as far as one; at `appended` what they share is the interpreter.

`--peers` has the same beside it, each in turn: Redis, whose replica has an entry in its memory
(`WAIT 1`), at `appended`; PostgreSQL at each, with the commit waiting for the standby's system, for
its disk, or until the standby has applied it (`remote_apply`). What is not installed is said. At
`applied` a program at the sink reads the copy and says what it has taken.
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqrepl.bench.catchup import MODULE
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.bench.report import scratch
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue import Queue
from cqrepl.replicator.leadership import Leading
from tests.bench.appliedsink import applied_sink
from tests.bench.peers import postgres, redis
from tests.bench.peers.programs import missing_program
from tests.bench.waitacked import PAUSERS, source_of

GOALS = {"appended": 3.0, "synced": 20.0}  # 64 threads against one
Rate = Callable[[Path, int], float]  # of a folder and a number of threads: writes a second


def own_rate(
    level: str, folder: Path, threads: int, *, size: int, seconds: float, pauser: str
) -> float:
    """Excerpts a second that are safe."""
    path = folder / "q"
    Queue.open(path, create="FAST_DAILY").close()
    policy = AckPolicy(level=AckLevel[level.upper()], timeout_seconds=WAIT_SECONDS)
    words = ["sink", f"q={folder / 'copy'}", "--listen", "127.0.0.1:0"]
    program = applied_sink(folder) if level == "applied" else running(folder, MODULE, *words)
    with program as sink:
        with source_of({"q": path}, f"127.0.0.1:{sink.port()}", pauser) as source:
            leading = source.leading("q")
            leading.append([bytes(size)], policy=policy)  # the sink is there then
            return safe_rate(leading, policy, threads, size, seconds)


def safe_rate(
    leading: Leading, policy: AckPolicy, threads: int, size: int, seconds: float
) -> float:
    counts, payload = [0] * threads, bytes(size)
    begun = time.monotonic()
    end = begun + seconds

    def write(nth: int) -> None:
        while time.monotonic() < end:
            leading.append([payload], policy=policy)
            counts[nth] += 1

    writers = [threading.Thread(target=write, args=(nth,)) for nth in range(threads)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    return sum(counts) / (time.monotonic() - begun)


def rates_of(level: str, arguments: argparse.Namespace) -> dict[str, Rate]:
    """The rates that are measured at a level, by the names of the systems."""
    size, seconds, pauser = arguments.size, arguments.seconds, arguments.pauser
    own = partial(own_rate, level, size=size, seconds=seconds, pauser=pauser)
    found: dict[str, Rate] = {"cqrepl": own}
    if not arguments.peers:
        return found
    if level == "appended" and _is_there("Redis", redis.missing()):
        found["Redis"] = lambda folder, threads: redis.waited_rate(folder, size, threads, seconds)
    if _is_there("PostgreSQL", postgres.missing() or missing_program("pgbench")):
        found["PostgreSQL"] = lambda folder, threads: postgres.waited_rate(
            folder, size, threads, seconds, level
        )
    return found


def _is_there(name: str, missing: str | None) -> bool:
    if missing is not None:
        print(f"{name} is left out: {missing}")
    return missing is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1,64", help="numbers of threads, in turn")
    parser.add_argument("--levels", default="appended,synced,applied")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--pauser", default="balanced", choices=PAUSERS)
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    numbers = [int(each) for each in arguments.threads.split(",")]
    for level in arguments.levels.split(","):
        rates = rates_of(level, arguments)
        ratios: dict[str, list[float]] = {name: [] for name in rates}
        for _ in range(arguments.rounds):
            for name, rate in rates.items():
                found = []
                for threads in numbers:
                    with scratch() as folder:
                        found.append(rate(folder, threads))
                ratios[name].append(found[-1] / found[0])
                shown = ", ".join(
                    f"{each:,.0f} ({n})" for n, each in zip(numbers, found, strict=True)
                )
                print(
                    f"{level:8} {name:10} {shown} a second, load {os.getloadavg()[0]:.2f}",
                    flush=True,
                )
        for name, each in ratios.items():
            middle = statistics.median(each)
            goal = GOALS.get(level) if name == "cqrepl" and numbers == [1, 64] else None
            verdict = "" if goal is None else ", goal met" if middle >= goal else ", missed"
            span = f"x{middle:.2f} ({min(each):.2f} .. {max(each):.2f})"
            print(f"{level:8} {name:10} {numbers[-1]} against {numbers[0]}: {span}{verdict}")


if __name__ == "__main__":
    main()
