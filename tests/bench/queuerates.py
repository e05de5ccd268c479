"""The rate of many queues on one connection together, beside the rate of one.

    python -m tests.bench.queuerates [--queues 1,10,100,1000] [--count 4000000] [--size 256]
                                     [--rounds 5] [--against PYTHON]

Each round divides the same number of excerpts among so many queues, in turn, and takes the total
rate from when something of each queue has been sent until all is acknowledged
(`bench.fanout.queues_round`). The processes use this interpreter's cqrepl; with `--against` each
number is measured with that of another one too, just before or after, as of a worktree at another
commit. Told are the rates, the load of one minute, and the middle ratio to the first number.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from cqrepl.bench.fanout import queues_round
from cqrepl.bench.report import scratch


def measure(kept: Path, arguments: argparse.Namespace, queues: int) -> float:
    """Excerpts a second of so many queues together, in one round."""
    sources = kept / str(queues)
    sources.mkdir(exist_ok=True)
    with scratch() as folder:
        sample = queues_round(folder, sources, arguments.size, arguments.count, queues)
    return sample.values["excerpts_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", default="1,10,100,1000", help="numbers of queues, in turn")
    parser.add_argument("--count", type=int, default=4_000_000, help="excerpts in all")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", help="another interpreter, with its own cqrepl")
    arguments = parser.parse_args()
    pythons = [sys.executable, *([arguments.against] if arguments.against else [])]
    numbers = [int(number) for number in arguments.queues.split(",")]
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as kept:
        for nth in range(arguments.rounds):
            for number in numbers:
                for python in pythons[:: -1 if nth % 2 else 1]:
                    sys.executable = python  # of the processes that are started
                    rate = measure(Path(kept), arguments, number)
                    found.setdefault((python, number), []).append(rate)
                    load = os.getloadavg()[0]
                    print(
                        f"{python}: {number:4} queues {rate:12,.0f}/s  load {load:.2f}", flush=True
                    )
    for (python, number), rates in found.items():
        firsts = found[python, numbers[0]]
        ratio = statistics.median(rate / first for rate, first in zip(rates, firsts, strict=True))
        middle = statistics.median(rates)
        print(
            f"{python}: {number:4} queues, median {middle:12,.0f}/s, x{ratio:.2f} of {numbers[0]}"
        )


if __name__ == "__main__":
    main()
