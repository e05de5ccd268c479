"""`wire-dump`: the options, and which of them go together.

Exit codes: 0; 2 for a wrong call or an input that cannot be read; 3 for an address that cannot be
listened on; 4 for an input that is damaged, truncated or of another kind, after everything before
the damage was printed; 130 interrupted. With several inputs, the highest of their codes.
"""

import re
import sys
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl._version import VERSION
from cqrepl.cli.options import DUMPED_INDEX

if TYPE_CHECKING:
    from cqrepl.dump.dispatch import DumpOptions

_EPILOG = """\b
Fields of --json, a line for each document; those that do not apply are missing:
  v 1, file (of several), position, header, kind, bytes, text, hex (with --hex)
  index, sequence                       of an excerpt of a queue file
  connection, from, to, time, packet    of a capture or proxy
  name, csp, cid, handler, unknown_cid  of a stream: first name, whom it is for
  event {index, ns, bytes}              a replication event
  ack {index, ns, round_trip_ns}        an acknowledgement
Indexes and headers are hexadecimal strings. A later v may add fields.

\b
Exit codes: 0; 2 wrong call or unreadable input; 3 cannot listen; 4 damaged
input, shown up to the damage; 130 interrupted.
"""


def _pattern(
    _: click.Context, option: click.Parameter, value: str | None
) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value, re.MULTILINE)
    except re.error as error:
        reason = f"expected a regular expression: {error}"
        raise click.BadParameter(reason, param=option) from error


_COUNT = click.IntRange(min=1)
_POSITION = click.IntRange(min=0)


@click.command(
    name="wire-dump", epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, message="wire-dump, of cqrepl %(version)s")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--pcap", is_flag=True, help="Each FILE must be a capture.")
@click.option(
    "--proxy", metavar="HOST:PORT=HOST:PORT", help="Listen, pass on to the target, show it all."
)
@click.option("--record", metavar="FILE", help="With --proxy: a capture, to be dumped again.")
@click.option("--follow", is_flag=True, help="Show FILE, or a queue directory, as it grows.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each document.")
@click.option("--hex", "with_hex", is_flag=True, help="The bytes as well.")
@click.option("--plain", is_flag=True, help="The bare dump, as Java prints it.")
@click.option("--typed", is_flag=True, help="Text that --encode makes the same bytes of.")
@click.option("--at", type=_POSITION, metavar="POSITION", help="Begin with the document there.")
@click.option(
    "--from", "index_first", metavar="INDEX", type=DUMPED_INDEX, help="Begin with this excerpt."
)
@click.option(
    "--to", "index_last", metavar="INDEX", type=DUMPED_INDEX, help="End with this excerpt."
)
@click.option(
    "--grep", "pattern", metavar="RE", callback=_pattern, help="Only documents whose text matches."
)
@click.option("--max", "count_max", type=_COUNT, metavar="N", help="At most so many documents.")
@click.option("--no-index-pages", is_flag=True, help="Leave out index2index and index.")
@click.option("--dissector", is_flag=True, help="Print a dissector for Wireshark, in Lua.")
@click.option("--encode", is_flag=True, help="Text of documents in, their bytes out.")
def main(**options: "Unpack[DumpOptions]") -> None:
    """Print the documents of queue files, table stores, captured streams and live connections.

    Each FILE is a .cq4 or .cq4t file, a stream of framed documents, or a pcap or pcapng capture,
    told apart by its content; - is standard input.
    """
    from cqrepl.dump import dispatch

    _check(options, dispatch.shows_everything(options))
    sys.exit(dispatch.run(options))


def _check(options: "DumpOptions", shows_everything: bool) -> None:
    """Refuses options that do not go together."""
    proxy, files = options["proxy"] is not None, options["files"]
    chosen = [
        name
        for name, is_chosen in (
            ("--pcap", options["pcap"]),
            ("--proxy", proxy),
            ("--follow", options["follow"]),
            ("--plain", options["plain"]),
            ("--typed", options["typed"]),
            ("--dissector", options["dissector"]),
            ("--encode", options["encode"]),
        )
        if is_chosen
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} do not go together")
    if options["record"] is not None and not proxy:
        raise click.UsageError("--record goes with --proxy only")
    takes_files = not (proxy or options["dissector"])
    if takes_files != bool(files) and not options["encode"]:
        raise click.UsageError("a FILE was expected" if takes_files else "no FILE was expected")
    if options["follow"] and len(files) > 1:
        raise click.UsageError("--follow goes with one FILE")
    first, last = options["index_first"], options["index_last"]
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first:#x} lies behind --to {last:#x}")
    if options["at"] is not None and (options["pcap"] or options["follow"] or proxy):
        raise click.UsageError("--at goes with files and streams only")
    if options["plain"] and not shows_everything:
        raise click.UsageError("--plain goes with no other option")
    if options["typed"] and (len(files) > 1 or not shows_everything):
        raise click.UsageError("--typed goes with one FILE and no other option")
    if options["encode"] and (len(files) > 1 or not shows_everything):
        raise click.UsageError("--encode goes with one FILE and no other option")
