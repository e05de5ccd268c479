"""The columns of a queue in the types of PySpark, where words for them would not do."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cqrepl.arrow.columntypes import DECIMAL_DIGITS, DECIMAL_SCALE
from cqrepl.spark.tablecolumns import type_of
from cqrepl.spark.tableoptions import OptionError, ReadOptions
from cqrepl.spark.typedschema import ERROR, MISFIT
from wire.objects.shapes import Shape, ShapeMember

_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
_LEAF_TYPES: Final[Mapping[str, DataType]] = {
    "float": DoubleType(),
    "float32": FloatType(),
    "decimal": DecimalType(DECIMAL_DIGITS, DECIMAL_SCALE),
    "boolean": BooleanType(),
    "bytes": BinaryType(),
    "date": DateType(),
    "moment": TimestampType(),
}
_WIDTHS: Final[Mapping[str, DataType]] = {  # Spark has no numbers without a sign
    "Int8": ByteType(),
    "Int16": ShortType(),
    "Int32": IntegerType(),
    "UInt8": ShortType(),
    "UInt16": IntegerType(),
}


def struct_type(options: ReadOptions, metadata: Mapping[str, Any] | None = None) -> StructType:
    """The schema of the columns that were chosen; each carries the metadata. Only fields of a
    schema, and what tells of a document that does not fit it, are ever null."""
    told = dict(metadata or {})
    return StructType(
        [StructField(name, *column_type(options, name), metadata=told) for name in options.columns]
    )


def check_typed(planned: StructType, options: ReadOptions) -> None:
    """Does nothing where the fields that Spark has planned are columns of a table with a schema.

    Raises:
        OptionError: one is none, or of another type.
    """
    assert options.typed is not None
    for field in planned.fields:
        if field.name not in options.typed.names:
            known = ", ".join(options.typed.names)
            raise OptionError("schema", f"columns of {known}", repr(field.name))
        expected = column_type(options, field.name)[0].simpleString()
        if field.dataType.simpleString() != expected:
            found = field.dataType.simpleString()
            raise OptionError("schema", f"{field.name} {expected}", found)


def column_type(options: ReadOptions, name: str) -> tuple[DataType, bool]:
    """The type of a column, and whether it may be null."""
    typed = options.typed
    if typed is None:
        return _TYPES[type_of(name, options.payload)], False
    member = typed.member(name)
    if member is not None:
        return shape_type(member.shape), True
    if name in (MISFIT, ERROR):
        return BinaryType() if name == MISFIT else StringType(), True
    return _TYPES[type_of(typed.column_of(name) or name, options.payload)], False


def members_type(members: Sequence[ShapeMember]) -> StructType:
    """The type of some fields together."""
    return StructType([StructField(each.name, shape_type(each.shape)) for each in members])


def shape_type(shape: Shape) -> DataType:
    """The type of a value of this shape; texts for what Spark has no type of."""
    if shape.kind == "integer":
        return _WIDTHS.get("" if shape.width is None else shape.width.__name__, LongType())
    if shape.kind == "message":
        return members_type(shape.members)
    if shape.kind == "list" and shape.item is not None:
        return ArrayType(shape_type(shape.item))
    if shape.kind == "map" and shape.item is not None and shape.key is not None:
        return MapType(shape_type(shape.key), shape_type(shape.item))
    return _LEAF_TYPES.get(shape.kind, StringType())
