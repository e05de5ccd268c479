"""Files of Arrow and Parquet: written row by row of a typed stream, and read as rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import parquet

from cqrepl.arrow.typedstream import TypedStream, to_arrow
from cqrepl.queue import Queue
from cqrepl.typed.textrows import Counted, RowChoice


@dataclass(slots=True)
class ArrowRows:
    """Writes record batches, step by step; as `TextRows`."""

    queue: Queue
    form: str
    choice: RowChoice
    next_index: int
    counted: Counted = field(default_factory=Counted)
    paths: tuple[tuple[str, ...], ...] = ()
    _stream: TypedStream | None = None
    _writer: Any = None
    _seen: int = 0

    def begin(self, file: BinaryIO) -> None:
        """Writes to this file from now on."""
        if self._stream is None:
            columns = [".".join(path) for path in self.choice.paths]
            condition, kind = self.choice.condition, self.choice.kind
            assert kind is not None
            self._stream = to_arrow(
                self.queue,
                kind,
                index_first=self.next_index,
                index_last=self.choice.index_last,
                columns=["index", *columns] if columns else None,
                where=condition,
                batch_rows=self.choice.step_rows,
            )
        schema = self._stream.schema
        make = parquet.ParquetWriter if self.form == "parquet" else pa.ipc.new_file
        self._writer = make(file, schema)

    def step(self) -> bool:
        """Writes the rows that follow; false at the end."""
        stream = self._stream
        assert stream is not None
        batches = stream.next_batches()
        if batches is None:
            return False
        for batch in batches:
            self._writer.write_batch(batch)
        self.next_index = stream.next_index
        self.counted.rows = stream.rows
        self.counted.passed = stream.passed
        for misfit in stream.kept_misfits[self._seen :]:
            self._seen += 1
            self.counted.note_misfit(str(misfit.error))
        self.counted.misfits = stream.misfits
        return True

    def finish(self) -> None:
        """Writes the end of the file."""
        self._writer.close()


def rows_of_file(path: Path, form: str) -> Iterator[dict[str, Any]]:
    """The rows of a file of Arrow or Parquet, as dictionaries.

    Raises:
        OSError, ValueError: it is none.
    """
    if form == "parquet":
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
        return
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        for at in range(reader.num_record_batches):
            yield from reader.get_batch(at).to_pylist()
