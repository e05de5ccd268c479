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

__all__ = ["in_index_order", "register"]


def __getattr__(name: str) -> object:
    """Loads Spark when a name that needs it is used: planning runs without."""
    match name:
        case "register":
            from cqrepl.spark.datasource import register

            return register
        case "in_index_order":
            from cqrepl.spark.tablewriter import in_index_order

            return in_index_order
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
