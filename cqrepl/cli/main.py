"""The command `cqrepl`: its version, and the commands in it.

Each command has a module here for its options, and one of the same name in `cqrepl.commands` for
its work, which is imported when the command runs: start-up should be quick.
"""

from typing import Any

import click

from cqrepl._version import VERSION
from cqrepl.cli.append import append
from cqrepl.cli.bench import bench
from cqrepl.cli.certs import certs
from cqrepl.cli.completion import completion, manpages
from cqrepl.cli.config import config
from cqrepl.cli.control import cluster, forget, pause, plan, promote, quarantine, reload, resume
from cqrepl.cli.demo import demo
from cqrepl.cli.doctor import doctor
from cqrepl.cli.export import export
from cqrepl.cli.gc import gc
from cqrepl.cli.grid import grid
from cqrepl.cli.identity import identity
from cqrepl.cli.importrows import import_
from cqrepl.cli.info import info
from cqrepl.cli.init import init
from cqrepl.cli.persist import persist
from cqrepl.cli.repair import repair
from cqrepl.cli.replay import replay
from cqrepl.cli.run import run
from cqrepl.cli.schema import schema
from cqrepl.cli.sink import sink
from cqrepl.cli.source import source
from cqrepl.cli.spark import spark
from cqrepl.cli.status import status
from cqrepl.cli.tail import tail
from cqrepl.cli.tailers import tailers
from cqrepl.cli.tasks import tasks
from cqrepl.cli.unlock import unlock
from cqrepl.cli.verify import verify
from cqrepl.console.exitcodes import INTERRUPTED


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from cqrepl.kernel import choose

        click.echo(f"cqrepl {VERSION} (kernel: {choose.NAME})")
        ctx.exit()


class Commands(click.Group):
    """A group whose commands can be interrupted before they have started to take signals."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and the kernel in use.",
)
def cli() -> None:
    """Replicates memory-mapped Chronicle queues over TCP, index for index; reads and writes them.

    Exit codes: 0 done; 1 every queue stopped (diverged, gap) or a check failed; 2 usage, or not a
    queue; 3 port in use or peer unreachable; 4 damaged; 5 refused (host ids, roll cycle, locks);
    6 disk full; 130 interrupted.
    """


for command in (
    *(source, sink, run, status, reload, pause, resume, quarantine, forget, promote, plan, cluster),
    *(
        demo,
        init,
        append,
        tail,
        schema,
        export,
        import_,
        info,
        grid,
        identity,
        verify,
        repair,
        replay,
        unlock,
        gc,
        tailers,
        bench,
    ),
    certs,
    completion,
    config,
    doctor,
    manpages,
    persist,
    spark,
    tasks,
):
    cli.add_command(command)
