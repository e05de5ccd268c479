"""Paths and patterns become queues with names that stay, and lead back to their paths."""

from pathlib import Path

import pytest

from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.tableoptions import OptionError, QueueChoice
from tests.support.samples import fill

DAY = "FAST_DAILY"


def finder(*paths: Path | str, name: str | None = None) -> Finder:
    return Finder(QueueChoice(paths=tuple(map(str, paths)), name=name))


def test_names(tmp_path: Path) -> None:
    for place in ("eu/orders", "us/orders", "eu/trades"):
        fill(tmp_path / place, DAY, {0: 1})
    (tmp_path / "eu" / "file").touch()
    orders = {"eu/orders": tmp_path / "eu" / "orders", "us/orders": tmp_path / "us" / "orders"}
    assert finder(tmp_path / "*" / "orders").find() == orders
    assert list(finder(tmp_path / "eu" / "*").find()) == ["orders", "trades"]
    assert list(finder(tmp_path / "eu" / "[a-o]*").find()) == ["orders"]
    assert list(finder(tmp_path / "*" / "*", tmp_path / "us/orders").find())[-1] == "us/orders"
    assert finder(tmp_path / "not there").find() == {"not there": tmp_path / "not there"}
    assert finder(tmp_path / "eu/orders/", name="o").find() == {"o": tmp_path / "eu" / "orders"}


def test_a_name_leads_to_its_path_whether_it_is_there_or_not(tmp_path: Path) -> None:
    found = finder(tmp_path / "*" / "orders", tmp_path / "trades")
    assert found.find() == {"trades": tmp_path / "trades"}
    assert found.path_of("eu/orders") == tmp_path / "eu" / "orders"
    assert found.path_of("trades") == tmp_path / "trades"
    for name in ("eu/other", "eu", "a/b/orders", "", "orders"):
        assert found.path_of(name) is None


def test_two_queues_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="option path: expected queues of different names, found"):
        finder(tmp_path / "a" / "q", tmp_path / "b" / "q")
    for place in ("a/q", "b/q"):
        fill(tmp_path / place, DAY, {0: 1})
    both = finder(tmp_path / "a" / "*", tmp_path / "b" / "*")
    with pytest.raises(OptionError, match="different names, found 'q' at"):
        both.find()
    with pytest.raises(OptionError, match="option name: expected one queue, found a pattern"):
        finder(tmp_path / "*", name="q")
