"""`wire-dump`: the options, and which of them go together.

Exit codes: 0; 2 for a wrong call or an input that cannot be read; 3 for an address that cannot be
listened on; 4 for an input that is damaged, truncated or of another kind, after everything before
the damage was printed; 130 interrupted. With several inputs, the highest of their codes.
"""

import re
import sys
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from cqrepl.console.exitcodes import INTERRUPTED
from cqrepl.console.output import OutputError, end_of_output
from cqrepl.dump.printer import Printer

if TYPE_CHECKING:
    from cqrepl.dump.selection import Wanted

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


class _Options(TypedDict):
    files: tuple[str, ...]
    pcap: bool
    proxy: str | None
    record: str | None
    follow: bool
    as_json: bool
    with_hex: bool
    plain: bool
    at: int | None
    index_first: int | None
    index_last: int | None
    pattern: re.Pattern[str] | None
    count_max: int | None
    no_index_pages: bool
    dissector: bool
    encode: bool


def _index(_: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from cqrepl.queue.format.index import parse_index

    try:
        return parse_index(value)
    except ValueError as error:
        reason = f"expected an index in hexadecimal, got {value!r}"
        raise click.BadParameter(reason, param=option) from error


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


@click.command(name="wire-dump", epilog=_EPILOG)
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
@click.option("--at", type=_POSITION, metavar="POSITION", help="Begin with the document there.")
@click.option(
    "--from", "index_first", metavar="INDEX", callback=_index, help="Begin with this excerpt."
)
@click.option("--to", "index_last", metavar="INDEX", callback=_index, help="End with this excerpt.")
@click.option(
    "--grep", "pattern", metavar="RE", callback=_pattern, help="Only documents whose text matches."
)
@click.option("--max", "count_max", type=_COUNT, metavar="N", help="At most so many documents.")
@click.option("--no-index-pages", is_flag=True, help="Leave out index2index and index.")
@click.option("--dissector", is_flag=True, help="Print a dissector for Wireshark, in Lua.")
@click.option("--encode", is_flag=True, help="Text of documents in, their bytes out.")
def main(**options: Unpack[_Options]) -> None:
    """Print the documents of queue files, table stores, captured streams and live connections.

    Each FILE is a .cq4 or .cq4t file, a stream of framed documents, or a pcap or pcapng capture,
    told apart by its content; - is standard input.
    """
    _check(options)
    printer = Printer(as_json=options["as_json"], with_hex=options["with_hex"])
    try:
        _run(printer, options)
        printer.flush()
    except OutputError as error:
        printer.code = end_of_output("wire-dump", error)
    except KeyboardInterrupt:
        printer.code = INTERRUPTED
    sys.exit(printer.code)


def _check(options: _Options) -> None:
    """Refuses options that do not go together."""
    proxy, files = options["proxy"] is not None, options["files"]
    chosen = [
        name
        for name, is_chosen in (
            ("--pcap", options["pcap"]),
            ("--proxy", proxy),
            ("--follow", options["follow"]),
            ("--plain", options["plain"]),
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
    if options["at"] is not None and (options["pcap"] or options["follow"] or proxy):
        raise click.UsageError("--at goes with files and streams only")
    if options["plain"] and not _shows_everything(options):
        raise click.UsageError("--plain goes with no other option")
    if options["encode"] and (len(files) > 1 or not _shows_everything(options)):
        raise click.UsageError("--encode goes with one FILE and no other option")


def _shows_everything(options: _Options) -> bool:
    return _wanted(options).is_all and not options["as_json"] and not options["with_hex"]


def _wanted(options: _Options) -> "Wanted":
    from cqrepl.dump.selection import Wanted

    return Wanted(
        at=options["at"],
        index_first=options["index_first"],
        index_last=options["index_last"],
        pattern=options["pattern"],
        count_max=options["count_max"],
        index_pages=not options["no_index_pages"],
    )


def _run(printer: Printer, options: _Options) -> None:
    if options["dissector"]:
        from cqrepl.dump.dissector import dissector_text

        printer.write(dissector_text())
    elif options["encode"]:
        from cqrepl.dump.encoder import encode_input

        encode_input(printer, *options["files"])
    elif options["proxy"] is not None:
        _proxy(printer, _wanted(options), options["proxy"], options["record"])
    elif options["follow"]:
        from cqrepl.dump.modes import follow_queue

        follow_queue(printer, _wanted(options), options["files"][0])
    else:
        _dump(printer, options)


def _dump(printer: Printer, options: _Options) -> None:
    from cqrepl.dump.modes import FileDump
    from cqrepl.dump.selection import Selection

    files, selection = options["files"], Selection(_wanted(options))
    dump = FileDump(
        printer,
        selection,
        plain=options["plain"],
        must_be_capture=options["pcap"],
        quickly=_shows_everything(options),
    )
    for number, path in enumerate(files):
        if len(files) > 1:
            printer.begin_input(path, is_first=number == 0)
        dump.dump(path)
        if selection.is_full:
            return


def _proxy(printer: Printer, wanted: "Wanted", proxy: str, record: str | None) -> None:
    from cqrepl.dump.proxy import run_proxy
    from cqrepl.dump.selection import Selection
    from cqrepl.net.address import Address

    listen, _, target = proxy.partition("=")
    try:
        addresses = Address.parse(listen), Address.parse(target)
    except ValueError as error:
        raise click.UsageError(f"--proxy: {error}") from error
    run_proxy(printer, Selection(wanted), *addresses, record)
