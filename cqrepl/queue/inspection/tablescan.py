"""Reads a table store by `pread`: layout and keys, without a lock and without waiting.

A table store that is damaged gives what stands before the damage, and a finding.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cqrepl.queue.files.filebytes import LONG_BYTES, FileBytes
from cqrepl.queue.files.tablestore import FILE_BYTES, parse_layout, table_header_image
from cqrepl.queue.format.errors import QueueDamaged, QueueError
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.bisection import first_difference
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from wire.codes import Code
from wire.errors import WireError
from wire.header import HEADER_BYTES, align4, body_length, is_metadata, is_ready
from wire.reader import Reader

_BYTES_MAX: Final = 16 * FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKey:
    """A key of a table store: where its long stands, and the value."""

    name: str
    position: int
    value: int


@dataclass(slots=True, kw_only=True)
class TableReport:
    """A table store. `layout` is None when its header cannot be used; keys are in lower case.

    `keys_end` is where the keys that could be read end, in bytes.
    """

    path: Path
    layout: QueueLayout | None = None
    keys: dict[str, TableKey] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    error: QueueError | None = None
    keys_end: int = 0

    def value(self, key: str) -> int | None:
        """The value of a key; None when there is no such key."""
        found = self.keys.get(key.lower())
        return None if found is None else found.value


def scan_table(path: Path) -> TableReport:
    """Reads a table store.

    Raises:
        FileNotFoundError: there is none.
    """
    with FileBytes(path) as file:
        data = file.read(0, _BYTES_MAX)
    report = TableReport(path=path)
    try:
        end = _document_end(data, 0, path)
        if not is_metadata(_word(data, 0)):
            raise QueueDamaged("expected the header of a table store", path=path, position=0)
        report.layout = parse_layout(data, end, path)
        report.keys_end = align4(end)
        _check_names(report, data[:end])
        _scan_keys(report, data, report.keys_end)
    except QueueError as error:
        report.error = error
        report.findings.append(
            Finding(
                kind=FindingKind.DAMAGE, path=path, position=error.position,
                index=None, text=error.reason, part=FilePart.TABLE,
            )
        )  # fmt: skip
    return report


def _check_names(report: TableReport, header: bytes) -> None:
    """Names and types that Java goes by, and we do not: they are as Java lays them, or altered."""
    assert report.layout is not None
    image = table_header_image(report.layout)
    shorter = min(len(header), len(image))
    at = None
    if len(header) == len(image):
        at = first_difference(header, image)
    elif header[HEADER_BYTES:shorter] == image[HEADER_BYTES:shorter]:
        at = 0  # its own length is; otherwise it is of another release, and holds more
    if at is not None:
        text = "a length, name or type in the header of the table store is altered"
        report.findings.append(
            Finding(
                kind=FindingKind.DAMAGE, path=report.path, position=at, index=None, text=text,
                part=FilePart.TABLE,
            )
        )  # fmt: skip


def _scan_keys(report: TableReport, data: bytes, position: int) -> None:
    while is_ready(_word(data, position)):
        end = _document_end(data, position, report.path)
        reader = Reader(data, position + HEADER_BYTES, end)
        try:
            name = reader.read_name()
            if name is not None and reader.peek_code() == Code.INT64:
                at = reader.read_bound_int64()
                value = int.from_bytes(data[at : at + LONG_BYTES], "little", signed=True)
                key = TableKey(name=name, position=at, value=value)
                report.keys.setdefault(name.lower(), key)
        except WireError as error:
            raise QueueDamaged(
                f"expected a key: {error}", path=report.path, position=position
            ) from error
        report.keys_end = position = align4(end)
    if data[position:].strip(b"\0"):
        text = "something stands behind the last key: its writer died, or keys are lost"
        report.findings.append(
            Finding(
                kind=FindingKind.HINT, path=report.path, position=position, index=None, text=text,
                part=FilePart.TABLE,
            )
        )  # fmt: skip


def _document_end(data: bytes, position: int, path: Path) -> int:
    word = _word(data, position)
    end = position + HEADER_BYTES + body_length(word)
    if not is_ready(word) or end > len(data):
        raise QueueDamaged(
            f"expected a document of the table store, found the header {word:#010x}",
            path=path,
            position=position,
        )
    return end


def _word(data: bytes, position: int) -> int:
    word = data[position : position + HEADER_BYTES]
    return int.from_bytes(word, "little") if len(word) == HEADER_BYTES else 0
