"""The partition that Spark carries to a task: a split, and the names of the queues in it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from cqrepl.spark.ranges import IndexRange, Split, split
from cqrepl.spark.tableoptions import ReadOptions
from cqrepl.spark.unknownholes import told_of_holes
from cqrepl.spark.witness import Witness, opened_queues, witnesses_of

_logger = logging.getLogger(__name__)


@dataclass
class SplitPartition(InputPartition):
    """The split that one task reads. `names` are those of the queues, by their directories.
    `witnesses` tell whether the task sees the queues that the split was planned with."""

    split: Split
    names: dict[Path, str]
    witnesses: tuple[Witness, ...]


def partitions_of(
    ranges: Sequence[IndexRange], paths: dict[str, Path], options: ReadOptions
) -> list[SplitPartition]:
    """The ranges as what tasks get. Where cycles may be missing below them, the log says so.

    Args:
        paths: of the queues, by their names.
    """
    splits = split(
        ranges,
        split_bytes=options.split_bytes,
        split_excerpts=options.split_excerpts,
        splits_max=options.splits_max,
    )
    names = {path: name for name, path in paths.items()}
    with opened_queues() as opened:
        found = [
            SplitPartition(
                each, {one.queue: names[one.queue] for one in each}, witnesses_of(each, opened)
            )
            for each in splits
        ]
        for queue in opened.values():
            holes = told_of_holes(queue, ranges)
            if holes is not None:
                _logger.warning("%s", holes)
    return found
