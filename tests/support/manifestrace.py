"""Runs that all put a manifest in the place of the same one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cqrepl.spark.jobs.archiveplace import ArchivePlace

RUNS = 4


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
