"""Queues as lazy frames of polars; needs polars and the extra `arrow`.

    import cqrepl.frames
    orders = cqrepl.frames.scan("data/orders", Order)
    orders.filter(polars.col("index") >= first).select("sym", "px").head(100).collect()

Only the columns that a query asks for are made, a slice ends the reading where it is full, and
comparisons of `index` with numbers, joined by `and`, say where reading begins and ends. All other
conditions are polars's own, on each batch.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars
from polars.io.plugins import register_io_source

from cqrepl.arrow.typedrows import INDEX
from cqrepl.arrow.typedstream import to_arrow
from cqrepl.queue.format.index import INDEX_MAX, NEXT_OF_EMPTY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_ROWS: Final = 16_384


def scan(path: Path | str, kind: "type[DataclassInstance] | None" = None) -> "polars.LazyFrame":
    """The documents of a queue as a lazy frame; the queue is opened by each query. Without a class
    the schema that the queue keeps says it.

    Raises:
        QueueError: as `Queue.open`.
        TypeError, ValueError: the class cannot be read, or there is none.
    """
    with to_arrow(path, kind) as stream:
        schema = polars.DataFrame(stream.schema.empty_table()).schema

    def batches(
        columns: list[str] | None, predicate: Any, row_count: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        first, last = index_range(predicate)
        wanted = _columns(columns, predicate) or (None if columns is None else [INDEX])
        rows = min(batch_size or _ROWS, _ROWS if predicate is not None else row_count or _ROWS)
        left = row_count
        with to_arrow(
            path, kind, index_first=first, index_last=last, columns=wanted, batch_rows=max(1, rows)
        ) as stream:
            for batch in stream:
                if left == 0:
                    return
                frame = polars.DataFrame(batch)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if columns is None else frame.select(columns)
                frame = frame if left is None else frame.head(left)
                left = None if left is None else left - len(frame)
                yield frame

    return register_io_source(batches, schema=schema, validate_schema=True)


def _columns(columns: list[str] | None, predicate: Any) -> list[str] | None:
    """The columns to make: those that are wanted, and those that the condition asks."""
    if columns is None or predicate is None:
        return columns
    return list(dict.fromkeys([*columns, *predicate.meta.root_names()]))


def index_range(predicate: Any) -> tuple[int, int]:
    """The indexes that a condition allows, as far as its shape says so."""
    first, last = int(NEXT_OF_EMPTY), int(INDEX_MAX)
    for part in _conjuncts(_tree(predicate)):
        bound = _index_bound(part)
        if bound is not None:
            first, last = max(first, bound[0]), min(last, bound[1])
    return first, max(first, last) if last < INDEX_MAX else last


def _tree(predicate: Any) -> Any:
    if predicate is None:
        return None
    try:
        return json.loads(predicate.meta.serialize(format="json"))
    except (ValueError, polars.exceptions.PolarsError):
        return None  # a condition of functions: it is asked of each batch


def _conjuncts(tree: Any) -> Iterator[Any]:
    node = tree.get("BinaryExpr") if isinstance(tree, dict) else None
    if isinstance(node, dict) and node.get("op") == "And":
        yield from _conjuncts(node.get("left"))
        yield from _conjuncts(node.get("right"))
    elif isinstance(node, dict):
        yield node


def _index_bound(node: dict[str, Any]) -> tuple[int, int] | None:
    left, right, sign = node.get("left"), node.get("right"), node.get("op")
    if not (isinstance(left, dict) and left.get("Column") == INDEX):
        return None
    value = _number(right)
    if value is None:
        return None
    least, greatest = int(NEXT_OF_EMPTY), int(INDEX_MAX)
    bounds = {
        "GtEq": (value, greatest),
        "Gt": (value + 1, greatest),
        "LtEq": (least, value),
        "Lt": (least, value - 1),
        "Eq": (value, value),
    }
    found = bounds.get(str(sign))
    return None if found is None or found[0] < 0 else found


def _number(tree: Any) -> int | None:
    """The whole number that stands anywhere within a literal; None where there is none, or more."""
    if not isinstance(tree, dict) or "Literal" not in tree:
        return None
    value = tree["Literal"]
    while isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value if isinstance(value, int) and not isinstance(value, bool) else None
