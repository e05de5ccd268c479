"""Answers the scan in Java: `python -m cqrepl.spark.scanserver`, one line of JSON for each request.

Theory of operation. The driver's Java starts this process and asks it for columns, plans and
offsets; executors need none. So bounds, lost ends, checkpoints and marks have one implementation,
for Java and for Python. A process serves batches of all queries, or one stream, whose reader it
keeps. It ends when its input does, and so with the Java process, however that ends.

    schema      options                         columns, and where the queues end
    batch       options, fields, ends, wanted   tasks, and totals
    stream      options, fields                 begins a stream; then:
    initial | latest start, all | report | available | between start, end | commit end | metrics at

An answer has `error`, one line with the class of the error before it, where something is wrong. An
error that is not foreseen ends the process, and its stack goes to the log of Java.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from cqrepl.queue import QueueError
from cqrepl.spark.catalogtable import created_options, metadata_of, options_for_reading
from cqrepl.spark.scanplan import Narrowed, batch_ranges, ends_now, split_plan, totals
from cqrepl.spark.schemachoice import options_with_schema
from cqrepl.spark.tablecolumns import check_fields, type_of
from cqrepl.spark.tableoptions import (
    OptionError,
    ReadOptions,
    TableError,
    bounds,
    read_options,
    stream_options,
)

if TYPE_CHECKING:
    from cqrepl.spark.streamreader import ChronicleStreamReader

Told = Mapping[str, Any]
Answer = dict[str, Any]
_KEPT: Final = "kept"


@dataclass(frozen=True, slots=True)
class _Field:
    """A column that Spark has planned, with what a table of the catalog keeps in it."""

    name: str
    type: str
    nullable: bool
    metadata: Mapping[str, Any]


class ScanServer:
    """The answers to the requests of one process of Java."""

    def __init__(self) -> None:
        self._stream: ChronicleStreamReader | None = None
        self._options: ReadOptions | None = None
        self._answers: dict[str, Callable[[Told], Answer]] = {
            "schema": _schema,
            "batch": _batch,
            "stream": self._begin,
            "initial": lambda told: {"offset": _text(self._reader.initialOffset())},
            "latest": self._latest,
            "report": lambda told: {"offset": _text(self._reader.reportLatestOffset())},
            "available": self._available,
            "between": self._between,
            "commit": self._commit,
            "metrics": self._metrics,
        }

    def answer(self, told: Told) -> Answer:
        """The answer to one request; with `error` where there is none."""
        try:
            return self._answers[told["ask"]](told)
        except (QueueError, TableError, OSError) as error:
            kind = type(error)
            line = " ".join(str(error).splitlines())
            return {"error": f"{kind.__module__}.{kind.__qualname__}: {line}"}

    @property
    def _reader(self) -> "ChronicleStreamReader":
        assert self._stream is not None
        return self._stream

    def _begin(self, told: Told) -> Answer:
        # imported here, as it takes a second, which no batch has to wait for
        from cqrepl.spark.streamreader import ChronicleStreamReader

        fields, given = _planned(told)
        options, stream = read_options(given), stream_options(given)
        check_fields([(each.name, each.type, each.nullable) for each in fields], options.payload)
        self._stream = ChronicleStreamReader(options, stream, None)
        self._options = options
        limits = (
            stream.excerpts_max,
            stream.bytes_max,
            stream.cycles_max,
            stream.excerpts_min,
        )
        return {
            "limits": limits,
            "mayBeLost": not stream.fail_on_data_loss,
            "payload": options.payload,
        }

    def _latest(self, told: Told) -> Answer:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limit = ReadAllAvailable() if told["all"] else ReadMaxRows(1)
        return {"offset": _text(self._reader.latestOffset(json.loads(told["start"]), limit))}

    def _available(self, told: Told) -> Answer:
        self._reader.prepareForTriggerAvailableNow()
        return {}

    def _between(self, told: Told) -> Answer:
        assert self._options is not None
        start, end = json.loads(told["start"]), json.loads(told["end"])
        ranges, paths = self._reader.ranges_between(start, end)
        return split_plan(ranges, paths, self._options)

    def _commit(self, told: Told) -> Answer:
        self._reader.commit(json.loads(told["end"]))
        return {}

    def _metrics(self, told: Told) -> Answer:
        return {"metrics": self._reader.behind(json.loads(told["at"]))}


def _text(offset: Mapping[str, object]) -> str:
    """An offset as the source in Python has it in checkpoints."""
    return json.dumps(offset)


def _schema(told: Told) -> Answer:
    given: dict[str, str] = told["options"]
    created = created_options(given)
    if created is not None:
        options = options_with_schema(created)
        if not told["keepsTables"] and "path" not in created:
            raise OptionError("path", "the directory of a queue, or a pattern of some", "none")
        if options.typed is not None:
            return {"typed": True}
        return {"fields": _fields(options, metadata_of(created)), "ends": None}
    options = options_with_schema(given)
    if options.typed is not None:  # the source in Python reads them
        return {"typed": True}
    is_of_load = given.get("snapshot", "load").strip().lower() == "load"
    ends = ends_now(options) if is_of_load else None
    return {"fields": _fields(options, {}), "ends": ends, "payload": options.payload}


def _fields(options: ReadOptions, metadata: Mapping[str, str]) -> list[list[Any]]:
    return [[name, type_of(name, options.payload), dict(metadata)] for name in options.columns]


def _planned(told: Told) -> tuple[Sequence[_Field], dict[str, str]]:
    fields = [_Field(*each) for each in told["fields"]]
    return fields, dict(options_for_reading(told["options"], fields))


def _batch(told: Told) -> Answer:
    fields, given = _planned(told)
    options, asked = read_options(given), bounds(given)
    check_fields([(each.name, each.type, each.nullable) for each in fields], options.payload)
    ranges, paths, ends = batch_ranges(options, asked, Narrowed.of(told["wanted"]), told["ends"])
    answer: Answer = {"ends": ends, "queues": len(paths), "payload": options.payload}
    answer["totals"] = totals(ranges, paths)
    if told["tasks"]:
        answer |= split_plan(ranges, paths, options)
    return answer


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answers until the requests end."""
    server = ScanServer()
    for line in requests:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    _answers = sys.stdout
    sys.stdout = sys.stderr  # nothing else may stand among the answers
    serve(sys.stdin, _answers)
