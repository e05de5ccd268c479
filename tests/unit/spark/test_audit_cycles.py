"""One cycle of an audit, in a task that may not see what was seen when it was planned."""

from pathlib import Path

from cqrepl.queue.inspection.cyclecomparison import ComparedSpan
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.spark.jobs.auditcycles import CycleAudit, SeenCopy, compare_cycle, reopened
from cqrepl.spark.jobs.blockcomparer import BlockVerdict, Difference
from tests.support.samples import fill, noon_index, noon_path

COUNTS = {0: 3, 1: 20, 2: 4}
WHOLE = ComparedSpan(index_first=0, index_last=None)


def seen(tmp_path: Path) -> list[SeenCopy]:
    """Two copies that are the same, as the driver has seen them."""
    copies = [tmp_path / "q", tmp_path / "copy"]
    for path in copies:
        fill(path, "FAST_DAILY", COUNTS)
    return [SeenCopy(path, inspect_queue(path)) for path in copies]


def test_a_cycle_that_no_task_can_read_is_not_the_same(tmp_path: Path) -> None:
    copies = seen(tmp_path)
    cycle = copies[0].info.files[1].cycle
    for copy in copies:
        noon_path(copy.path, ahead=1).unlink()
    missed, counted = compare_cycle(reopened(copies), cycle, WHOLE)
    assert isinstance(missed, Difference)
    assert missed.verdict is BlockVerdict.NOTHING
    first = noon_index(ahead=1)
    assert (missed.index_first, missed.index_last) == (first, first + 19)
    assert missed.text is not None
    assert "20 excerpts expected, no copy has the store file" in missed.text
    assert isinstance(counted, CycleAudit)
    assert (counted.counts, counted.is_same) == ((20, 20), False)


def test_one_that_all_hold_is(tmp_path: Path) -> None:
    copies = seen(tmp_path)
    (counted,) = compare_cycle(reopened(copies), copies[0].info.files[1].cycle, WHOLE)
    assert isinstance(counted, CycleAudit)
    assert (counted.counts, counted.is_same) == ((20, 20), True)
