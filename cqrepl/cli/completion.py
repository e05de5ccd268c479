"""`cqrepl completion` and `cqrepl manpages`: made of the same options as the help."""

import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cqrepl.cli.options import QUEUE_DIR


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what a shell reads to complete commands and options.

    For bash: `cqrepl completion bash > /etc/bash_completion.d/cqrepl`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "cqrepl", "_CQREPL_COMPLETE").source())


@click.command()
@click.argument("directory", metavar="DIR", type=QUEUE_DIR)
def manpages(directory: Path) -> None:
    """Write a manual page of each command into DIR, such as /usr/local/share/man/man1."""
    from cqrepl.commands import outcome
    from cqrepl.commands.manpages import write_pages

    root = click.get_current_context().find_root().command
    sys.exit(outcome.guarded("cqrepl manpages", lambda: write_pages(root, directory)))
