"""`cqrepl certs`: a CA in a directory, certificates of hosts and guests, and when they end."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cqrepl.cli.options import QUEUE_DIR, json_option

if TYPE_CHECKING:
    from cqrepl.commands.certs import CertificateWork

_directory = click.argument("directory", metavar="DIR", type=QUEUE_DIR)
_days = click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=397,
    show_default=True,
    help="The certificate ends in so many days.",
)


@click.group()
def certs() -> None:
    """Make certificates for hosts and guests, revoke them, and say when they end.

    For trials and small clusters. A CA of your own needs only to put the URI cqrepl-host:ID, or
    cqrepl-guest:NAME, among the alternative names of each subject. Takes the extra 'tls'.

    Exit codes: 0; 1 a certificate has ended, or ends within 30 days; 2 usage, or a file that is
    there already.
    """


@certs.command()
@_directory
@click.option("--name", default="cqrepl", show_default=True, help="Its subject is 'NAME CA'.")
def ca(directory: Path, name: str) -> None:
    """Make a CA in DIR: ca.pem, ca.key and an empty crl.pem. Hosts get all but ca.key."""
    _run(lambda work: work.make_ca(directory, name))


@certs.command()
@_directory
@click.argument("ids", metavar="ID...", type=click.IntRange(1, 127), nargs=-1, required=True)
@_days
def host(directory: Path, ids: tuple[int, ...], days: int) -> None:
    """Make a certificate and key of each host: DIR/host-ID.pem and host-ID.key."""
    _run(lambda work: work.make_hosts(directory, ids, days))


@certs.command()
@_directory
@click.argument("name")
@_days
def guest(directory: Path, name: str, days: int) -> None:
    """Make a certificate and key of a guest, a tool or a task: DIR/guest-NAME.pem and .key."""
    _run(lambda work: work.make_guest(directory, name, days))


@certs.command()
@_directory
@click.argument("files", metavar="CERTIFICATE...", type=QUEUE_DIR, nargs=-1, required=True)
def revoke(directory: Path, files: tuple[Path, ...]) -> None:
    """Add certificates to DIR/crl.pem, which goes to all hosts; then `cqrepl reload` at each."""
    _run(lambda work: work.revoke(directory, files))


@certs.command()
@click.argument("files", metavar="FILE...", type=QUEUE_DIR, nargs=-1, required=True)
@json_option
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Say of whom certificates are, and when they end; of a list, what it revokes."""
    _run(lambda work: work.show(files, as_json=as_json))


def _run(do: "Callable[[CertificateWork], int]") -> None:
    from cqrepl.commands import outcome
    from cqrepl.commands.certs import with_library

    sys.exit(outcome.guarded("cqrepl certs", lambda: with_library(do)))
