"""`cqrepl schema`: the classes that the documents of a queue suggest."""

import sys
from functools import partial
from pathlib import Path

import click

from cqrepl.cli.options import queue_argument
from cqrepl.console.endings import ending_signals

_EPILOG = """\b
dataclass  Python's source, for wire.decode(data, Order) and queue.documents(Order)
json       JSON Schema; kept as QUEUE_DIR/schema.json it is what tail, export and Arrow take
table      each field with its types and the share of documents that have it

Which texts are decimals, dates or constants nothing in a sample tells: they are texts. Calls of
methods give a class for each method.
"""


@click.command(epilog=_EPILOG)
@queue_argument
@click.option(
    "--as", "form", type=click.Choice(["dataclass", "json", "table"]), default="dataclass",
    show_default=True, help="How it is printed; see below.",
)  # fmt: skip
@click.option(
    "--sample", "count_max", type=click.IntRange(1, 10**7), metavar="N", default=10_000,
    show_default=True, help="Look at so many documents: half of them the first, half the last.",
)  # fmt: skip
def schema(path: Path, form: str, count_max: int) -> None:
    """Print the fields and types of a queue's documents, from a sample.

    Reads without a lock and changes nothing.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.schema import print_schema

    work = partial(print_schema, path, form, count_max)
    sys.exit(outcome.guarded("cqrepl schema", work, interrupted_by=ending_signals()))
