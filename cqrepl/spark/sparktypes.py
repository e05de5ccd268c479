"""The columns of a queue in the types of PySpark, where words for them would not do."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cqrepl.spark.tablecolumns import type_of

_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}


def struct_type(
    names: Sequence[str], payload_form: str, metadata: Mapping[str, Any] | None = None
) -> StructType:
    """The schema of some columns, none of them ever null; each carries the metadata."""
    return StructType(
        [
            StructField(name, _TYPES[type_of(name, payload_form)], False, dict(metadata or {}))
            for name in names
        ]
    )
