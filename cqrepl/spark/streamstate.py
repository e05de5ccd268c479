"""The state of a stream in each of its queues, made from the progress that Spark reports.

    for each in stream_state(query.lastProgress, "queues/*"):
        print(each.queue, each.rows, hex(each.next_index), each.behind)

Spark's own progress has offsets as text, and rows of all queues together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.queue import Queue
from cqrepl.spark.offsets import positions_of
from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.ranges import present
from cqrepl.spark.tableoptions import QueueChoice, TableError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue of a stream.

    Args:
        next_index: what the query wants next.
        rows: the excerpts of its last batch.
        behind: how many excerpts the queue holds from there on, now.
    """

    queue: str
    next_index: int
    rows: int
    behind: int


def stream_state(
    progress: "StreamingQueryProgress | Mapping[str, Any]",
    paths: Path | str | Sequence[Path | str],
    *,
    source: int = 0,
) -> list[QueueState]:
    """The queues of a stream, by name.

    Args:
        progress: `query.lastProgress`, or that of a listener.
        paths: those of the stream.
        source: which of the query's sources, where it has several.

    Raises:
        TableError: it tells of no stream over queues, or of a queue that no path stands for.
        QueueError: a queue cannot be read.
    """
    told = json.loads(getattr(progress, "json", None) or json.dumps(progress))
    offsets = told["sources"][source]
    start, end = (_positions(offsets[name]) for name in ("startOffset", "endOffset"))
    some = [paths] if isinstance(paths, Path | str) else list(paths)
    finder = Finder(QueueChoice(paths=tuple(map(str, some)), name=None))
    return [
        _state(finder.path_of(name), name, start.get(name, 0), index)
        for name, index in sorted(end.items())
    ]


def _positions(offset: Any) -> dict[str, int]:
    if offset is None:
        return {}
    return positions_of(json.loads(offset) if isinstance(offset, str) else offset)


def _state(path: Path | None, name: str, start: int, end: int) -> QueueState:
    if path is None:
        raise TableError(f"expected a path for queue {name!r} of the stream, found none")
    with Queue.open(path) as queue:
        behind = sum(one.count for one in present(queue, end))
        rows = sum(one.count for one in present(queue, start, end - 1)) if end > start else 0
    return QueueState(queue=name, next_index=end, rows=rows, behind=behind)
