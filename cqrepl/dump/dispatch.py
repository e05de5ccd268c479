"""One call of `wire-dump`: the work that its options ask for, and the exit code at its end."""

import re
from typing import TypedDict

import click

from cqrepl.console.endings import ended_as_by_ctrl_c, ending_signals
from cqrepl.console.exitcodes import INTERRUPTED
from cqrepl.console.output import OutputError, end_of_output
from cqrepl.dump.printer import Printer
from cqrepl.dump.selection import Selection, Wanted


class DumpOptions(TypedDict):
    """The options that the user chose."""

    files: tuple[str, ...]
    pcap: bool
    proxy: str | None
    record: str | None
    follow: bool
    as_json: bool
    with_hex: bool
    plain: bool
    typed: bool
    at: int | None
    index_first: int | None
    index_last: int | None
    pattern: re.Pattern[str] | None
    count_max: int | None
    no_index_pages: bool
    dissector: bool
    encode: bool


def run(options: DumpOptions) -> int:
    """Prints what the options ask for; the exit code.

    Raises:
        UsageError: the addresses of the proxy are none, or bytes would go to a terminal.
    """
    printer = Printer(as_json=options["as_json"], with_hex=options["with_hex"])
    # a proxy takes signals for itself
    signals = [] if options["proxy"] is not None else ending_signals()
    try:
        with ended_as_by_ctrl_c(signals):
            _run(printer, options)
        printer.flush()
    except OutputError as error:
        return end_of_output("wire-dump", error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return printer.code


def shows_everything(options: DumpOptions) -> bool:
    """True when nothing is left out of a plain listing, and nothing added to it."""
    return _wanted(options).is_all and not options["as_json"] and not options["with_hex"]


def _wanted(options: DumpOptions) -> Wanted:
    return Wanted(
        at=options["at"],
        index_first=options["index_first"],
        index_last=options["index_last"],
        pattern=options["pattern"],
        count_max=options["count_max"],
        index_pages=not options["no_index_pages"],
    )


def _run(printer: Printer, options: DumpOptions) -> None:
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


def _dump(printer: Printer, options: DumpOptions) -> None:
    from cqrepl.dump.modes import FileDump

    files, selection = options["files"], Selection(_wanted(options))
    dump = FileDump(
        printer,
        selection,
        plain=options["plain"],
        typed=options["typed"],
        must_be_capture=options["pcap"],
        quickly=shows_everything(options),
    )
    for number, path in enumerate(files):
        if len(files) > 1:
            printer.begin_input(path, is_first=number == 0)
        dump.dump(path)
        if selection.is_full:
            return


def _proxy(printer: Printer, wanted: Wanted, proxy: str, record: str | None) -> None:
    from cqrepl.dump.proxy import run_proxy
    from cqrepl.net.address import Address

    listen, _, target = proxy.partition("=")
    try:
        addresses = Address.parse(listen), Address.parse(target)
    except ValueError as error:
        raise click.UsageError(f"--proxy: {error}") from error
    run_proxy(printer, Selection(wanted), *addresses, record)
