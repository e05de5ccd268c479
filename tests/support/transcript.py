"""The transcript that the relay writes: entries, and the file that holds them.

A transcript is a list of entries, as under `tests/vectors/network`: `conn`, `t_ms` since the first
connect, `dir`, `kind`, `hex` of the whole document and its `text`. The file is a valid list after
every entry, even if the process is killed.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.text.print_documents import dump_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A document that was passed on (`raw`), or something that happened (`raw` is empty)."""

    conn: int
    t_ms: int
    direction: str
    kind: str
    raw: bytes = b""

    def as_json(self) -> dict[str, object]:
        """The entry as it stands in a transcript."""
        return {
            "conn": self.conn,
            "t_ms": self.t_ms,
            "dir": self.direction,
            "kind": self.kind,
            "hex": self.raw.hex(),
            "text": dump_text(self.raw).removesuffix("\n") if self.raw else "",
        }


EntrySink = Callable[[Entry], None]


class TranscriptFile:
    """A JSON list that is whole after every entry."""

    _END: Final = b"\n]\n"

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(b"[" + self._END)
        self._file.flush()
        self._is_empty = True

    def __call__(self, entry: Entry) -> None:
        line = json.dumps(entry.as_json(), ensure_ascii=False)
        self._file.seek(-len(self._END), os.SEEK_END)
        # one write each, so that no moment leaves half an entry without the end of the list
        self._file.write((b"\n" if self._is_empty else b",\n") + line.encode() + self._END)
        self._file.flush()
        self._is_empty = False

    def close(self) -> None:
        """Ends the file; it was whole before."""
        self._file.close()
