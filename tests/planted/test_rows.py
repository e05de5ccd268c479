"""The table of planted mistakes fits the tree: `python -m tests.planted` can run."""

import ast

import pytest

from tests.planted.rows import ROOT, ROWS, Planted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_mistake_can_be_planted(row: Planted) -> None:
    right = row.path().read_text()
    assert right.count(row.text) == 1
    wrong = right.replace(row.text, row.wrong)
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(right))
    assert row.tests
    assert all((ROOT / path).exists() for path in row.tests)


def test_each_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
