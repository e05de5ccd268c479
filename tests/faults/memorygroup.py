"""A memory cgroup of its own for a process: what it may have, page cache included.

Of the system's two ways to make one, that of version 2 is taken where the memory controller is
there, else that of version 1.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.requirements import require

MOUNTED: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One group; a process enters it before it does anything else."""

    path: Path
    limit: str
    peak: str
    events: str

    @property
    def entering(self) -> str:
        """A line of Python that moves a process to the group, for `commands(before=...)`."""
        return f"open({str(self.path / 'cgroup.procs')!r}, 'w').write('0')"

    @property
    def peak_bytes(self) -> int:
        """The most that it has had at a time."""
        return int((self.path / self.peak).read_text())

    @property
    def kills(self) -> int:
        """The number of its processes that the system has killed for want of memory."""
        rows = (line.split() for line in (self.path / self.events).read_text().splitlines())
        return int(dict(rows)["oom_kill"])


def of_version_1(name: str) -> MemoryGroup:
    return MemoryGroup(
        path=MOUNTED / "memory" / name,
        limit="memory.limit_in_bytes",
        peak="memory.max_usage_in_bytes",
        events="memory.oom_control",
    )


def of_version_2(name: str) -> MemoryGroup:
    return MemoryGroup(
        path=MOUNTED / name, limit="memory.max", peak="memory.peak", events="memory.events"
    )


def has_version_2() -> bool:
    """True when the memory controller can be had there."""
    controllers = MOUNTED / "cgroup.controllers"
    if not controllers.exists() or "memory" not in controllers.read_text().split():
        return False
    (MOUNTED / "cgroup.subtree_control").write_text("+memory")
    return True


@contextmanager
def memory_group(name: str, limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group for the length of a block. All that enters it has to have ended before its end."""
    name = f"cqrepl-{os.getpid()}-{name}"
    try:
        group = of_version_2(name) if has_version_2() else of_version_1(name)
        group.path.mkdir()
        try:
            (group.path / group.limit).write_text(str(limit_bytes))
        except BaseException:
            group.path.rmdir()
            raise
    except OSError as error:
        require("root", f"no memory cgroup can be made here: {error}")
    try:
        yield group
    finally:
        group.path.rmdir()
