"""The transactions that a copy lacks are those of its map and partition behind its token."""

from cqrepl.grid.partition.gridwords import grid_words
from cqrepl.grid.partition.recenttx import KEPT_MAX, RecentTx


def test_transactions_of_a_map_and_a_partition_are_counted() -> None:
    recent = RecentTx()
    for index, partition, maps in ((2, 0, "m"), (3, 1, "m n"), (4, 1, "n mm"), (5, 1, "m")):
        recent.note(index, grid_words("tx", {"part": partition, "maps": maps}))
    assert [recent.after(1, "m", index) for index in (0, 2, 3, 4, 5)] == [2, 2, 1, 1, 0]
    assert recent.after(0, "m", 1) == 1
    assert recent.after(0, "n", 1) == 0


def test_no_more_than_the_last_ones_are_kept() -> None:
    recent = RecentTx()
    for index in range(KEPT_MAX + 10):
        recent.note(index, grid_words("tx", {"maps": "m"}))
    assert recent.after(0, "m", 0) == KEPT_MAX
