"""The commands about queues on this host: made, written, read, looked into, repaired, measured.

Each command has a module for its options and, where there is more to it, one for its work, which is
imported when the command runs: start-up should be quick.
"""

from typing import Final

import click

from cqrepl.cli.append import append
from cqrepl.cli.bench import bench
from cqrepl.cli.gc import gc
from cqrepl.cli.info import info
from cqrepl.cli.init import init
from cqrepl.cli.repair import repair
from cqrepl.cli.tail import tail
from cqrepl.cli.unlock import unlock
from cqrepl.cli.verify import verify

QUEUE_COMMANDS: Final[tuple[click.Command, ...]] = (
    init,
    append,
    tail,
    info,
    verify,
    repair,
    unlock,
    gc,
    bench,
)
