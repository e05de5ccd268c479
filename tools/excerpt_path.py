"""Counts what Python does for one excerpt, from the source's queue to the acknowledgement.

    python -m tools.excerpt_path [--kernel python|native] [--excerpts N] [--walk]
                                 [--most CALLS FILES PACKAGES]

A source and a sink run in one thread, over a connection on loopback, and have caught up. Then one
excerpt is appended to the source's queue, and `sys.setprofile` notes every call of a function of
`cqrepl` and `wire` until the source has counted the excerpt as acknowledged. This is done for
several excerpts, and the walk in the middle is shown. `--most` makes it an error that more
calls than so many are on each walk: what has its turn in between is on some of them.

    call                 from one function to another, once for each such pair: how often an idle
                         task looked for more in the meantime does not matter
    change of file       a call whose two functions stand in different files
    change of package    a call whose two functions stand in different folders

What trio and the standard library do between two functions is not counted. A task that trio resumes
is called from outside, which is a change of both. A lambda or a comprehension counts as part
of the function around it. Only the public names of `cqrepl` are used, so that trees whose modules
lie elsewhere can be compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import trio

import cqrepl
import wire

WARM_UP: Final = 100  # excerpts that are replicated before the first one is watched
REST_SECONDS: Final = 0.05  # between two excerpts, so that everything of the first is over
WAIT_SECONDS: Final = 60  # longest wait for an acknowledgement
PAYLOAD: Final = b"x" * 40
_FOLDERS: Final = tuple(Path(package.__path__[0]).resolve() for package in (cqrepl, wire))


class Function(NamedTuple):
    """A function and the file that it stands in, as the tree has it."""

    file: str
    name: str

    @property
    def package(self) -> str:
        """The folder of the file."""
        return os.path.dirname(self.file)


class Call(NamedTuple):
    """One function calls another."""

    caller: Function
    callee: Function


OUTSIDE: Final = Function("", "outside")  # trio, or what appends the excerpt


class Numbers(NamedTuple):
    """The length of a walk: its calls, and its changes of file and of package."""

    calls: int
    file_changes: int
    package_changes: int

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Numbers:
        """The numbers of these calls, each of which counts."""
        return cls(
            len(calls),
            sum(caller.file != callee.file for caller, callee in calls),
            sum(caller.package != callee.package for caller, callee in calls),
        )


@dataclass(frozen=True, slots=True)
class Walk:
    """All calls for one excerpt, in order; the first `append_count` are those of the append."""

    calls: Sequence[Call]
    append_count: int

    @property
    def replication(self) -> list[Call]:
        """Each call once that follows the append."""
        return list(dict.fromkeys(self.calls[self.append_count :]))

    @property
    def whole(self) -> list[Call]:
        """Each call once, those of the append included."""
        return list(dict.fromkeys(self.calls))


@dataclass(slots=True)
class Watch:
    """Notes the calls of this thread while it is on, and until the excerpt is acknowledged."""

    source: cqrepl.Source
    calls: list[Call] = field(default_factory=list)
    index: int | None = None  # of the excerpt; None until it is appended
    is_over: bool = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Notes calls for the length of a block."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def look(self) -> None:
        """Looks at what is counted; nothing is noted after the acknowledgement."""
        counters = self.source.queues["q"].counters
        self.is_over = self.is_over or (
            self.index is not None and counters.index_acknowledged >= self.index
        )

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        callee = _function(frame) if event == "call" else None
        if callee is None:
            return
        self.look()  # Python does not profile what a profile function calls
        if not self.is_over:
            self.calls.append(Call(_caller(frame), callee))


def _function(frame: FrameType) -> Function | None:
    """The function of a frame; None when it has no name or is neither of cqrepl nor of wire."""
    code = frame.f_code
    if code.co_name.startswith("<"):
        return None
    path = Path(code.co_filename)
    for folder in _FOLDERS:
        if path.is_relative_to(folder):
            return Function(str(path.relative_to(folder.parent)), code.co_qualname)
    return None


def _caller(frame: FrameType) -> Function:
    """The nearest function of cqrepl or wire that waits for this frame, or `OUTSIDE`."""
    above = frame.f_back
    while above is not None:
        function = _function(above)
        if function is not None:
            return function
        above = above.f_back
    return OUTSIDE


async def measure(folder: Path, excerpts: int) -> list[Walk]:
    """The walks of so many excerpts, one after the next; `folder` takes the two queues."""
    original, copy = folder / "original", folder / "copy"
    with cqrepl.Queue.open(original, create="FAST_DAILY") as queue:
        async with cqrepl.serve_source({"q": original}, listen="127.0.0.1:0") as source:
            to = f"127.0.0.1:{source.port}"
            async with cqrepl.serve_sink({"q": copy}, connect=to):
                with trio.fail_after(WAIT_SECONDS):
                    await source.wait_acked(queue.append_many([PAYLOAD] * WARM_UP))
                return [await _walk(queue, source) for _ in range(excerpts)]


async def _walk(queue: cqrepl.Queue, source: cqrepl.Source) -> Walk:
    await trio.sleep(REST_SECONDS)
    watch = Watch(source)
    with watch.on():
        index = queue.append(PAYLOAD)
    append_count, watch.index = len(watch.calls), index
    with trio.fail_after(WAIT_SECONDS):
        while not watch.is_over:
            with watch.on():
                await trio.sleep(0)
            watch.look()
    return Walk(watch.calls, append_count)


def report(walks: Sequence[Walk]) -> str:
    """A line for each way to count; the middle of all walks, and the least and the greatest."""
    lines = [f"{'':<42}{'calls':>14}{'files':>14}{'packages':>14}"]
    for name, counted in (
        ("from the append to the acknowledgement", [walk.replication for walk in walks]),
        ("the same, and the append itself", [walk.whole for walk in walks]),
        ("the same, repeated calls too", [list(walk.calls) for walk in walks]),
    ):
        columns = zip(*(Numbers.of(calls) for calls in counted), strict=True)
        lines.append(f"{name:<42}" + "".join(f"{_spread(column):>14}" for column in columns))
    return "\n".join(lines)


def _spread(numbers: Sequence[int]) -> str:
    ordered = sorted(numbers)
    middle = ordered[len(ordered) // 2]
    return f"{middle}" if ordered[0] == ordered[-1] else f"{middle} ({ordered[0]}-{ordered[-1]})"


def on_each(walks: Sequence[Walk]) -> Numbers:
    """The numbers of the calls that are on each walk from the append to the acknowledgement."""
    counted = Counter(call for walk in walks for call in walk.replication)
    return Numbers.of([call for call, count in counted.items() if count == len(walks)])


def excess(walks: Sequence[Walk], most: Numbers) -> str:
    """A line that tells that more calls are on each walk than may be; "" where that is not so."""
    found = on_each(walks)
    if all(number <= limit for number, limit in zip(found, most, strict=True)):
        return ""
    (calls, files, packages), limits = found, "/".join(map(str, most))
    return (
        f"each walk has {calls} calls, {files} changes of file and {packages} of package,"
        f" expected at most {limits}"
    )


def middle_of(walks: Sequence[Walk]) -> Walk:
    """The walk whose number of calls is in the middle."""
    return sorted(walks, key=lambda walk: len(walk.replication))[len(walks) // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.excerpt_path", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kernel", choices=("python", "native"), default="python")
    parser.add_argument("--excerpts", type=int, default=9, help="how many (default: %(default)s)")
    parser.add_argument("--walk", action="store_true", help="list the calls, in order")
    parser.add_argument(
        "--most", type=int, nargs=3, metavar=("CALLS", "FILES", "PACKAGES"), help="of each walk"
    )
    asked = parser.parse_args(arguments)
    if set(sys.modules) & {"cqrepl.queue", "cqrepl.kernel", "cqrepl.kernel.batch"}:
        parser.error("the kernel is chosen already: start this as a command")
    os.environ["CQREPL_KERNEL"] = asked.kernel  # it is read with the first use of a public name
    with tempfile.TemporaryDirectory() as folder:
        walks = trio.run(measure, Path(folder), asked.excerpts)
    print(f"kernel: {asked.kernel}; excerpts: {asked.excerpts}\n{report(walks)}")
    if asked.walk:
        for caller, callee in middle_of(walks).whole:
            print(f"{callee.file:<36} {callee.name:<44} from {caller.name}")
    problem = "" if asked.most is None else excess(walks, Numbers(*asked.most))
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
