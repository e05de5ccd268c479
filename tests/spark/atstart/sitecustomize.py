"""Python imports this at its start where this folder is on the path: see `tests.spark.points`."""

from tests.spark.points import install

install()
