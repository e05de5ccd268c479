"""Runs that all put a manifest in the place of the same one, wherever an archive is kept."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.archiveplace import ArchivePlace

RUNS = 4


def assert_only_exchanged_for_what_was_read(place: "ArchivePlace", *others: str | None) -> None:
    """Checks that a manifest goes into the place of the version that its run has read alone."""
    from cqrepl.spark.jobs.archiveplace import ArchiveChanged

    assert place.manifest() == (b"", None)
    assert place.is_unused()
    place.swap_manifest(b"first", None)
    assert not place.is_unused()
    data, version = place.manifest()
    assert data == b"first"
    for other in (None, *others):
        with pytest.raises(ArchiveChanged, match=f"{place.text}: expected no other run"):
            place.swap_manifest(b"other", other)
    place.swap_manifest(b"second", version)
    with pytest.raises(ArchiveChanged):
        place.swap_manifest(b"third", version)
    assert place.manifest()[0] == b"second"


def assert_one_wins(place: "ArchivePlace", rounds: int) -> None:
    """Checks that one of `RUNS` writers at once wins, round after round."""
    from cqrepl.spark.jobs.archiveplace import ArchiveChanged

    begin = threading.Barrier(RUNS)

    def swap(text: bytes, version: str | None) -> bool:
        begin.wait()
        try:
            place.swap_manifest(text, version)
        except ArchiveChanged:
            return False
        return True

    with ThreadPoolExecutor(RUNS) as pool:
        for nth in range(rounds):
            version = place.manifest()[1]
            texts = [b"%d of %d" % (run, nth) for run in range(RUNS)]
            won = list(pool.map(swap, texts, [version] * RUNS))
            assert won.count(True) == 1
            assert place.manifest()[0] == texts[won.index(True)]


def assert_two_runs_lose_nothing(
    spark: "SparkSession", queue: Path, place: "ArchivePlace", counts: list[int]
) -> None:
    """Checks that an archive has all of a queue's cycles after two runs at once."""
    from cqrepl.spark.jobs.archive import archive
    from cqrepl.spark.jobs.archivefiles import read_manifest

    begin = threading.Barrier(2)

    def one(with_open: bool) -> None:
        begin.wait()
        archive(spark, queue, place, with_open=with_open)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, (True, False)))
    assert [cycle.count for cycle in read_manifest(place).cycles] == counts
