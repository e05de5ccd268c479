"""polars, pandas and DuckDB read a queue by the C stream of Arrow."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.support.requirements import require
from tests.support.samples import NOON_MS, noon_index

try:
    import cqrepl.arrow
    from tests.unit.test_typed_arrow import FULL, Order
except ImportError:
    require("arrow", "pyarrow is not installed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    orders = [FULL, *(Order(f"S{at}", at / 4, at) for at in range(100))]
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents(orders, now_ms=NOON_MS)
    return tmp_path / "q"


def test_polars(path: Path) -> None:
    try:
        import polars
    except ImportError:
        require("polars", "polars is not installed")
    frame = polars.DataFrame(cqrepl.arrow.to_arrow(path, Order))
    dear = frame.filter(polars.col("px") > 20).select("index", "sym", "px")
    assert dear.rows()[0] == (noon_index() + 82, "S81", 20.25)
    assert len(dear) == 19
    assert frame["leg"][0] == {"sym": "x", "ratio": 1 << 30}


def test_pandas(path: Path) -> None:
    try:
        import pandas
    except ImportError:
        require("pandas", "pandas is not installed")
    stream = cqrepl.arrow.to_arrow(path, Order, columns=["sym", "px", "at"])
    frame = pandas.DataFrame.from_arrow(stream)
    assert frame[frame.px > 20].sym.tolist() == [f"S{at}" for at in range(81, 100)]
    assert frame["at"][0] == FULL.at


def test_duckdb(path: Path) -> None:
    try:
        import duckdb
    except ImportError:
        require("duckdb", "duckdb is not installed")
    orders = cqrepl.arrow.to_arrow(path, Order).reader()
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        found = connection.execute("select count(*), max(px), sum(qty) from orders where px > 20")
        assert found.fetchone() == (19, 24.75, sum(range(81, 100)))
