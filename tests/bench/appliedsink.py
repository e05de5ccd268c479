"""A sink whose program takes each excerpt and says so; a process of `tests.bench.waitacked`.

    python -m tests.bench.appliedsink DIRECTORY

It listens on a port of the system's choice, which it tells, for a queue "q". A thread reads the
copy as it comes, and says so of what it has taken. It looks every 20 us, which the system would
make 70 of.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import trio

from cqrepl.bench.processes import Running, running
from cqrepl.queue import Queue
from cqrepl.replicator.sink import serve_sink

LOOK_SECONDS = 0.000_02
PR_SET_TIMERSLACK = 29  # of <linux/prctl.h>
ROOT = str(Path(__file__).resolve().parents[2])


def applied_sink(folder: Path) -> AbstractContextManager[Running]:
    """Such a process as long as the block lasts; its copy is in "copy" in this folder."""
    os.environ["PYTHONPATH"] = ROOT  # it is started apart from the working directory's modules
    return running(folder, "tests.bench.appliedsink", folder / "copy")


def take(path: Path, applied: Callable[[int], None]) -> None:
    """Reads the copy without end."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # of this thread, ns
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        while True:
            index = None
            while (excerpt := tailer.next_excerpt()) is not None:
                index = excerpt.index
            if index is not None:
                applied(index)
            time.sleep(LOOK_SECONDS)


async def serve(path: Path) -> None:
    async with serve_sink({"q": path}, listen="127.0.0.1:0") as sink:
        print(f"listening on 127.0.0.1:{sink.port}", flush=True)
        while not path.joinpath("metadata.cq4t").exists():
            await trio.sleep(LOOK_SECONDS)
        threading.Thread(target=take, args=(path, sink.applied), daemon=True).start()
        await sink.wait_ended()


if __name__ == "__main__":
    trio.run(serve, Path(sys.argv[1]))
