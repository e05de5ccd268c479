"""The work of `wire-dump` on files: it dumps them, or follows a queue."""

import os
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from cqrepl.console.exitcodes import DAMAGED, USAGE
from cqrepl.dump.entries import Entry, Remark
from cqrepl.dump.inputs import Input
from cqrepl.dump.printer import STDIN, Printer
from cqrepl.dump.selection import NotSelectable, Selection, Wanted
from wire.errors import WireError


class FileDump:
    """Dumps inputs one after the other.

    Args:
        plain: the bare dump.
        typed: text from which the same bytes can be made.
        must_be_capture: refuse what is not a capture.
        quickly: large pieces of text, where every document is wanted.
    """

    def __init__(
        self,
        printer: Printer,
        selection: Selection,
        *,
        plain: bool,
        typed: bool = False,
        must_be_capture: bool,
        quickly: bool,
    ) -> None:
        self._printer = printer
        self._selection = selection
        self._plain = plain
        self._typed = typed
        self._must_be_capture = must_be_capture
        self._quickly = quickly

    def dump(self, path: str) -> None:
        """Prints one input, and complains about what is wrong with it."""
        self._selection.next_input()
        try:
            with _open(path) as file:
                self._dump_file(path, Input(file, _regular(path, file)))
        except WireError as error:
            self._printer.complain(path, str(error), DAMAGED)
        except (NotSelectable, OSError) as error:
            self._printer.complain(path, _unreadable(error), USAGE)

    def _dump_file(self, path: str, opened: Input) -> None:
        if opened.is_capture or self._must_be_capture:
            self._show(path, opened.capture())
        elif self._plain:
            self._print(opened.plain_texts())
        elif self._typed:
            self._print(opened.typed_texts())
        elif opened.open_documents() is not None and self._quickly:
            self._print(opened.texts())
        else:
            self._show(path, opened.entries(self._selection.wanted.index_first))

    def _print(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._printer.write(text)

    def _show(self, path: str, items: Iterable[Entry | Remark]) -> None:
        for item in items:
            if isinstance(item, Remark):
                self._printer.remark(path, item)
            elif self._selection.takes(item):
                self._printer.show(item)
            if self._selection.is_done:
                break


def _open(path: str) -> AbstractContextManager[BinaryIO]:
    if path != STDIN:
        return open(path, "rb")
    if sys.stdin is None:
        raise FileNotFoundError(path)  # the shell's `<&-`
    return nullcontext(sys.stdin.buffer)


def _regular(path: str, file: BinaryIO) -> Path | None:
    """The path, where it names a file that can be opened a second time."""
    if path == STDIN or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return None
    return Path(path)


def _unreadable(error: NotSelectable | OSError) -> str:
    if isinstance(error, NotSelectable):
        return str(error)
    if isinstance(error, IsADirectoryError):
        return "a file was expected, a directory came"
    if isinstance(error, FileNotFoundError):
        return "a file was expected, none is there"
    return f"a readable file was expected: {error.strerror}"


def follow_queue(printer: Printer, wanted: Wanted, path: str) -> None:
    """Prints the documents of a store file or queue directory as it grows, until interrupted."""
    from cqrepl.dump.queuegrowth import PAUSE_SECONDS, follow

    selection = Selection(wanted)
    try:
        for entry in follow(Path(path)):
            if entry is None:
                printer.flush()
                time.sleep(PAUSE_SECONDS)
            elif selection.takes(entry):
                printer.show(entry)
            if selection.is_done:
                return
    except WireError as error:
        printer.complain(path, str(error), DAMAGED)
    except (NotSelectable, OSError) as error:
        printer.complain(path, _unreadable(error), USAGE)
