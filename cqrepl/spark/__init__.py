"""Queues in Spark: the data source `chronicle`. Needs the extra `spark`.

    from cqrepl.spark import register
    register(spark)
    spark.read.format("chronicle").load("queues/orders").groupBy("cycle").count().show()

What decides (`ranges`, `options`, `finding`, `columns`, `offsets`, `staging`) knows no Spark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cqrepl.spark.datasource import register
    from cqrepl.spark.tablewriter import in_index_order
    from cqrepl.spark.typedschema import schema_text
    from cqrepl.spark.wirecolumns import from_wire, to_wire

__all__ = ["from_wire", "in_index_order", "register", "schema_text", "to_wire"]


def __getattr__(name: str) -> object:
    """Loads Spark when a name that needs it is used: planning runs without."""
    match name:
        case "register":
            from cqrepl.spark.datasource import register

            return register
        case "in_index_order":
            from cqrepl.spark.tablewriter import in_index_order

            return in_index_order
        case "schema_text":
            from cqrepl.spark.typedschema import schema_text

            return schema_text
        case "from_wire":
            from cqrepl.spark.wirecolumns import from_wire

            return from_wire
        case "to_wire":
            from cqrepl.spark.wirecolumns import to_wire

            return to_wire
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
