"""The documents of a queue as it grows.

Theory of operation. A store file is read by position, and only what is published: a header word
that is 0 or not complete says that nothing is there yet, and is looked at again later. The
end-of-file mark ends a file for good. Of a directory, the files follow each other in the order of
their cycles. A writer that rolls closes the earlier file a little after it made the later one, and
one that died never does: so once a later file is ready, and nothing more comes for a number of
looks, the earlier one is left.

None is given when nothing new is there: the caller decides how long to wait.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cqrepl.dump.documentreader import BEGINNING_BYTES, BODY_MAX, CutOff, Document
from cqrepl.dump.entries import Entry
from cqrepl.dump.excerptnumbers import Numbering, cycle_of_file
from cqrepl.dump.files import QUEUE_TYPE, StoreFileHead, store_header
from wire.errors import WireError
from wire.header import END_OF_FILE, HEADER_BYTES, align4, body_length, is_ready

PAUSE_SECONDS: Final = 0.02
LOOKS_MAX: Final = 50
_SUFFIX: Final = ".cq4"


def follow(path: Path) -> Iterator[Entry | None]:
    """The documents of a store file, or of all store files of a queue directory, for ever.

    Raises:
        WireError: a file is no store file, or was cut.
        OSError: a file cannot be read.
    """
    return _follow_directory(path) if path.is_dir() else _follow_file(path)


def _follow_file(path: Path) -> Iterator[Entry | None]:
    growing = _Growing(path)
    try:
        while not growing.has_ended:
            yield growing.next_entry()
    finally:
        growing.close()


def _follow_directory(path: Path) -> Iterator[Entry | None]:
    name: str | None = None
    while True:
        name = _following(path, name)
        if name is None:
            yield None
            continue
        growing = _Growing(path / name)
        looks = 0
        try:
            while not growing.has_ended and looks < LOOKS_MAX:
                entry = growing.next_entry()
                is_left = entry is None and _is_ready(path, _following(path, name))
                looks = looks + 1 if is_left else 0
                yield entry
        finally:
            growing.close()
        while _following(path, name) is None:
            yield None


def _following(path: Path, name: str | None) -> str | None:
    """The store file that follows; names of one roll cycle sort as their cycles do."""
    names = [each for each in os.listdir(path) if each.endswith(_SUFFIX)]
    return min((each for each in names if name is None or each > name), default=None)


def _is_ready(path: Path, name: str | None) -> bool:
    if name is None:
        return False
    with (path / name).open("rb") as file:
        return is_ready(int.from_bytes(file.read(HEADER_BYTES), "little"))


class _Growing:
    """One store file, read from its start to its end."""

    def __init__(self, path: Path) -> None:
        self.has_ended = False
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._position = 0
        self._header: StoreFileHead | None = None
        self._numbering = Numbering(None, None)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def next_entry(self) -> Entry | None:
        """The next document; None while there is none."""
        document = self._next_document()
        if document is None:
            return None
        if self._header is None:
            self._begin(document)
            assert self._header is not None
        end = document.position + HEADER_BYTES + body_length(document.word)
        self._position = align4(end) if self._header.aligned else end
        self.has_ended = document.word == END_OF_FILE
        return self._numbering.entry(document)

    def _begin(self, first: Document) -> None:
        self._header = store_header(first)
        if self._header is None:
            raise WireError("a queue file or table store was expected, other bytes came", 0)
        if self._header.type_name == QUEUE_TYPE:
            self._numbering = Numbering(cycle_of_file(self._path))

    def _next_document(self) -> Document | None:
        head = os.pread(self._descriptor, HEADER_BYTES, self._position)
        word = int.from_bytes(head, "little")
        if len(head) < HEADER_BYTES or not (is_ready(word) or word == END_OF_FILE):
            return None
        length = body_length(word)
        body = self._position + HEADER_BYTES
        wanted = length if length <= BODY_MAX else BEGINNING_BYTES
        data = os.pread(self._descriptor, wanted, body)
        there = os.fstat(self._descriptor).st_size - body
        if there < length or len(data) < wanted:
            raise CutOff(
                f"{length} bytes behind header 0x{word:08x} were expected, {there} came",
                self._position,
                there,
            )
        return Document(position=self._position, word=word, body=data)
