"""`cqrepl tail`: the excerpts of a queue."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import PATHS, PATTERN, SPOT, ZONE, json_option, queue_argument
from cqrepl.cli.typedoptions import condition_of
from cqrepl.console.endings import ending_signals

if TYPE_CHECKING:
    from cqrepl.commands.tail import GivenOptions

_EPILOG = """\b
INDEX is 0x451600000004, a decimal number, first, last, or -10 (the tenth from the end);
with --time also a time such as 2026-11-21T10:00Z.

\b
--as   auto  text as it is, binary wire as YAML on one line, anything else in hexadecimal
       text  UTF-8 on one line; other bytes and control characters as escapes
       yaml  the text form of binary wire, over several lines
       json  a JSON value, {"!!binary": base64} for bytes; hex  hexadecimal
       csv   a row of fields for each document, table the same in aligned columns: those of
             --fields, or of QUEUE_DIR/schema.json, or of the first document
       raw   nothing but the bytes of the payloads, one behind the other

\b
--json prints {"v":1,"index":"0x451600000004","bytes":31,"as":"wire","data":{...}}; "as" tells
what data is: text, wire (its fields, or its value), or hex for bytes that are neither; also with
--as text, which takes control characters for text. With --time there is "time".
\b
--where 'price > 100 and order.symbol in ("A", "B") and not time < 2026-11-21T10:00Z'
  == != < <= > >= in, not in, and, or, not, parentheses; numbers, texts, times, true, false.
  A comparison with a field that is absent, null or of another type is false; at the end it says
  how many documents lack a field. Excerpts that are neither text nor documents are counted and
  named, and the exit code is 4.

--format takes {index} {cycle} {sequence} {bytes} {time} {data}.
"""


@click.command(epilog=_EPILOG)
@queue_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(0),
    metavar="N",
    help="The last N; with --from, the first N from there. [default: 10, or all where another "
    "option says where to begin]",
)
@click.option("--from", "index_from", type=SPOT, metavar="INDEX", help="Begin there.")
@click.option("--to", "index_to", type=SPOT, metavar="INDEX", help="End there.")
@click.option(
    "--grep", "include", type=PATTERN, metavar="RE", multiple=True,
    help="Only excerpts whose text matches; may be given again.",
)  # fmt: skip
@click.option(
    "--exclude", type=PATTERN, metavar="RE", multiple=True,
    help="No excerpts whose text matches; may be given again.",
)  # fmt: skip
@click.option("--reverse", is_flag=True, help="From the end downwards.")
@click.option(
    "--named", metavar="NAME",
    help="Go on where this named tailer stands, and move it behind what was printed.",
)  # fmt: skip
@click.option("--max", "count_max", type=click.IntRange(1), metavar="N", help="End after so many.")
@click.option(
    "--as", "form",
    type=click.Choice(["auto", "text", "yaml", "json", "csv", "table", "hex", "raw"]),
    help="How payloads are shown; see below.  [default: auto]",
)  # fmt: skip
@click.option("--format", "template", metavar="TEXT", help="A line of your own; see below.")
@click.option(
    "--time", "time_field", metavar="FIELD",
    help="Show the time in this field of binary wire or JSON, a.b for a field within a field.",
)  # fmt: skip
@click.option(
    "--where", metavar="CONDITION",
    help="Only documents that fulfil this, as 'price > 100'; see below.",
)  # fmt: skip
@click.option(
    "--fields", "paths", type=PATHS, metavar="NAMES",
    help="Only these fields, as symbol,order.px.",
)  # fmt: skip
@click.option("--count", "only_count", is_flag=True, help="Only how many excerpts there are.")
@click.option(
    "--tz", "zone", type=ZONE, metavar="ZONE", default="UTC", show_default=True,
    help="The zone of times that are shown, and of those in --where without one.",
)  # fmt: skip
@click.option(
    "--repair", is_flag=True,
    help="Close a cycle that a dead writer left open, and go on. Writes to the queue.",
)  # fmt: skip
@json_option
def tail(path: Path, where: str | None, **options: "Unpack[GivenOptions]") -> None:
    """Print the excerpts of a queue.

    Reads without a lock and changes nothing, except for --named and --repair.
    """
    _check(options)
    from cqrepl.commands import outcome
    from cqrepl.commands.tail import print_excerpts

    condition = condition_of(where, options["zone"])
    work = partial(print_excerpts, path, {**options, "where": condition})
    sys.exit(outcome.guarded("cqrepl tail", work, interrupted_by=ending_signals()))


def _check(options: "GivenOptions") -> None:
    """Refuses options that do not go together."""
    for one, other in (
        ("reverse", "follow"),
        ("reverse", "named"),
        ("reverse", "repair"),
        ("named", "index_from"),
        ("named", "count"),
        ("template", "as_json"),
        ("only_count", "follow"),
        ("only_count", "template"),
    ):
        if _is_given(options, one) and _is_given(options, other):
            raise click.UsageError(f"{_NAMES[one]} and {_NAMES[other]} do not go together")
    if options["form"] == "raw" and (options["template"] is not None or options["as_json"]):
        raise click.UsageError("--as raw goes with neither --format nor --json")
    for form in ("csv", "table"):
        if options["form"] == form and (options["template"] is not None or options["as_json"]):
            raise click.UsageError(f"--as {form} goes with neither --format nor --json")
    if options["form"] in ("text", "hex", "raw") and options["paths"]:
        raise click.UsageError(f"--as {options['form']} and --fields do not go together")
    if options["form"] == "raw" and options["time_field"] is not None:
        raise click.UsageError("--as raw and --time do not go together")
    if options["form"] == "raw" and sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("--as raw needs a file or a pipe to write to, a terminal came")
    first, last = spots = (options["index_from"], options["index_to"])
    if first is not None and last is not None and first.is_behind(last):
        raise click.UsageError(
            "--from lies behind --to: the lower one expected as --from, also with --reverse"
        )
    if options["time_field"] is None and any(spot and spot.time_ns is not None for spot in spots):
        raise click.UsageError("a time as INDEX needs --time FIELD, which says where times stand")


_NAMES = {
    "reverse": "--reverse",
    "follow": "--follow",
    "named": "--named",
    "repair": "--repair",
    "index_from": "--from",
    "count": "-n",
    "template": "--format",
    "as_json": "--json",
    "only_count": "--count",
}


def _is_given(options: "GivenOptions", name: str) -> bool:
    return dict(options)[name] not in (None, False)
