"""The options that the commands of `cqrepl spark` have in common: where they run."""

from pathlib import Path
from typing import Final

import click

from cqrepl.cli.options import SIZE, Command, Converted

LOCAL: Final = "local[*]"
DIRECTORY: Final = click.Path(path_type=Path)


def _archive(text: str) -> Path | str:
    """A directory, or what an object store is named by, which is no path."""
    return text if "://" in text else Path(text)


ARCHIVE: Final = Converted("archive", _archive)


def _file_to_write(text: str) -> Path:
    """A file that can be made, as it is only found out at the end of a job otherwise."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"a file in a directory that is there expected, {text!r} came")
    return path


FILE: Final = Converted("file", _file_to_write)


def spark_options(command: Command) -> Command:
    """Adds the options that say where a job runs."""
    for option in reversed(
        (
            click.option(
                "--master",
                default=LOCAL,
                show_default=True,
                metavar="URL",
                help="Where it runs: this machine, or spark://host:7077.",
            ),
            click.option(
                "--conf",
                multiple=True,
                metavar="KEY=VALUE",
                help="A setting of Spark, such as spark.executor.memory=2g; may be given again.",
            ),
            click.option(
                "--ship",
                is_flag=True,
                help="Send this installation to the executors, which then need only Python and"
                " pyarrow.",
            ),
            click.option("-v", "--verbose", is_flag=True, help="Show what Spark itself says."),
        )
    ):
        command = option(command)
    return command


def part_size_option(command: Command) -> Command:
    """Adds the option that says from which size on several tasks make one cycle."""
    return click.option(
        "--part-size",
        type=SIZE,
        default="64MiB",
        show_default=True,
        metavar="SIZE",
        help="What a task makes of a large cycle at least, about; whole blocks of 65,536 excerpts.",
    )(command)
