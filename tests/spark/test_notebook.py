"""The notebook in docs runs, and prints what it shows."""

import json
from pathlib import Path

import pytest

from tests.spark import notebook
from tests.spark.conftest import spark_missing
from tests.support.requirements import require

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.long
@pytest.mark.timeout(notebook.TIMEOUT_S + 60)
def test_orders() -> None:
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)
    path = DOCS / "orders.ipynb"
    assert notebook.run(path) == [notebook.shown(cell) for cell in notebook.code_cells(path)]


def test_pictures_are_there() -> None:
    for path in DOCS.glob("*.ipynb"):
        text = "".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
        for name in text.split("](")[1:]:
            assert (DOCS / name.partition(")")[0]).exists()
