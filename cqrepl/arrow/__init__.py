"""Queues as Arrow tables; needs the extra `arrow`.

    import cqrepl.arrow
    with cqrepl.arrow.open_reader("data/orders") as reader:
        table = reader.read_all()          # or polars.from_arrow(reader), reader.read_pandas()
    frame = polars.from_arrow(cqrepl.arrow.to_arrow("data/orders", Order))

`open_reader` gives indexes and payloads as they are, without a copy; `to_arrow` the fields of
documents as typed columns, and `append_arrow` writes rows of columns as documents.
"""

from cqrepl.arrow.excerpttable import SCHEMA, open_reader, record_batch, record_batches
from cqrepl.arrow.rowmessages import append_arrow
from cqrepl.arrow.typedrows import Misfit
from cqrepl.arrow.typedstream import TypedStream, to_arrow

__all__ = [
    "SCHEMA",
    "Misfit",
    "TypedStream",
    "append_arrow",
    "open_reader",
    "record_batch",
    "record_batches",
    "to_arrow",
]
