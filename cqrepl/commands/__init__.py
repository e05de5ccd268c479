"""The commands about queues on this host: made, written, read, looked into, repaired, measured.

Each command has a module for its options and, where there is more to it, one for its work, which is
imported when the command runs: start-up should be quick.
"""

from typing import Final

import click

from cqrepl.commands.append import append
from cqrepl.commands.bench import bench
from cqrepl.commands.gc import gc
from cqrepl.commands.info import info
from cqrepl.commands.init import init
from cqrepl.commands.repair import repair
from cqrepl.commands.tail import tail
from cqrepl.commands.unlock import unlock
from cqrepl.commands.verify import verify

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
