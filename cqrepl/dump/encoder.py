"""`wire-dump --encode`: the text form of documents in, their bytes out.

The bytes are all made before the first goes out: text with an error gives none. Text that begins
with the header of a store file gives documents at multiples of 4, as such a file has them.
"""

import io
import sys
from pathlib import Path

import click

from cqrepl.console.exitcodes import DAMAGED, USAGE
from cqrepl.console.output import OutputError, flush, write_bytes
from cqrepl.dump.documentreader import DocumentReader
from cqrepl.dump.files import store_header
from cqrepl.dump.printer import STDIN, Printer
from wire.errors import WireError
from wire.text.parse_documents import encode_text


def encode_input(printer: Printer, path: str = STDIN) -> None:
    """Writes the bytes of the documents whose text is in this file, or says what is wrong."""
    if sys.stdout is None:
        raise OutputError
    if sys.stdout.isatty():
        raise click.UsageError("a file or a pipe was expected for the bytes, a terminal came")
    if path == STDIN and sys.stdin is None:
        printer.complain(path, "a text was expected: standard input is closed", USAGE)
        return
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        printer.complain(path, f"a text was expected: {reason}", USAGE)
        return
    try:
        encoded = encoded_documents(data)
    except WireError as error:
        printer.complain(path, str(error), DAMAGED)
        return
    write_bytes(encoded)
    flush()


def encoded_documents(data: bytes) -> bytes:
    """The documents whose text, in UTF-8, this is.

    Raises:
        WireError: it is not; the error names line and column.
    """
    text = _decoded(data)
    encoded = encode_text(text)
    return encode_text(text, padding=True) if _is_store(encoded) else encoded


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode("utf-8", "replace")) + 1
        came = f"0x{data[error.start]:02X}"
        reason = f"line {line}, column {column}: text in UTF-8 was expected, {came} came"
        raise WireError(reason) from error


def _is_store(encoded: bytes) -> bool:
    try:
        first = DocumentReader(io.BytesIO(encoded)).next_document(aligned=False)
    except WireError:
        return False
    header = None if first is None else store_header(first)
    return header is not None and header.aligned
