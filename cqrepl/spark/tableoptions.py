"""The options of the data source `chronicle`, read once and checked; every error about one is here.

Spark hands options over as texts with names in lower case. An error names the option, what was
expected, and what came. An option that is not known is an error too: it was meant to do something.
"""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from cqrepl.console.units import parse_size, since_1970_ns
from cqrepl.queue import NEXT_OF_EMPTY, QueueLayout, index_of
from cqrepl.queue.format.index import INDEX_MAX, SEQUENCE_FIRST, Cycle
from cqrepl.queue.format.rollcycle import CYCLE_MAX, by_name
from cqrepl.spark.ranges import SPLIT_BYTES, SPLIT_EXCERPTS, SPLITS_MAX
from cqrepl.spark.typedschema import COLUMNS, TypedSchema

COLUMNS_USUAL: Final = ("queue", "index", "cycle", "sequence", "payload")
PAYLOAD_FORMS: Final = ("raw", "text", "wire")
BATCH_EXCERPTS: Final = 32_768
BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 1 << 30  # a column has 32-bit offsets
_BY_SPARK: Final = ("checkpointlocation",)
_FINDING: Final = ("path", "paths", "name")
_READING: Final = (
    *_FINDING, "columns", "payload", "splitBytes", "splitExcerpts", "maxPartitions",
    "batchExcerpts", "batchBytes", "schema", "event", "misfits",
)  # fmt: skip
MISFITS: Final = ("keep", "drop", "fail")
_BOUNDS: Final = ("fromIndex", "toIndex", "fromCycle", "toCycle", "fromTime", "toTime")
_BATCH: Final = (*_BOUNDS, "snapshot")
_STREAMING: Final = (
    "startingIndex", "startingTimestamp", "maxExcerptsPerBatch", "maxBytesPerBatch",
    "maxCyclesPerBatch", "minExcerptsPerBatch", "maxTriggerDelay", "failOnDataLoss", "reader",
)  # fmt: skip
_WRITING: Final = (
    "path", "rollCycle", "like", "queueColumn", "stagingPath", "onExisting", "durability",
    "writeId", "schema", "event",
)  # fmt: skip
_A_TIME: Final = "a time such as 2026-11-21T10:00Z"
_AN_INDEX: Final = "an index such as 0x451600000000, or JSON of some by queue"
OTHERS: Final = "*"
TRIGGER_DELAY_S: Final = 900.0
Value = TypeVar("Value")


class TableError(ValueError):
    """Spark was asked for something that queues cannot do; the message is one line for people."""


class OptionError(TableError):
    """An option that cannot be used: its name, what was expected, what came."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(f"option {name}: expected {expected}, found {found}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The excerpts that are wanted: by index (the end is not included), by cycle, or by time. An
    index is of all queues, or of those that are named.

    `is_of_load`: of those that were there when the DataFrame was made, else at its first action.
    """

    index_from: int | Mapping[str, int] | None = None
    index_end: int | Mapping[str, int] | None = None
    cycle_from: int | None = None
    cycle_to: int | None = None
    ms_from: int | None = None
    ms_end: int | None = None
    is_of_load: bool = True

    def check_names(self, found: Iterable[str]) -> None:
        """Does nothing where each queue that an index is of was found.

        Raises:
            OptionError: one was not.
        """
        for option, bound in (("fromIndex", self.index_from), ("toIndex", self.index_end)):
            if isinstance(bound, Mapping):
                check_known(option, bound, found)

    def indexes(self, layout: QueueLayout, name: str) -> tuple[int, int]:
        """The first and the last index within, for a queue of this name that is laid out so.

        An excerpt has no time but that of its cycle: a time stands for the cycle it lies in.
        """
        shift, epoch, at = layout.roll_cycle.shift, layout.epoch, layout.roll_cycle.cycle_at
        first, end = _of(self.index_from, name), _of(self.index_end, name)
        cycle_from, cycle_to = self.cycle_from, self.cycle_to
        if self.ms_from is not None:
            cycle_from = max(0, at(self.ms_from, epoch))
        if self.ms_end is not None:
            cycle_to = at(self.ms_end - 1, epoch)
        if cycle_from is not None:
            first = index_of(Cycle(min(cycle_from, CYCLE_MAX)), SEQUENCE_FIRST, shift)
        if cycle_to is not None:
            end = (min(cycle_to, CYCLE_MAX) + 1) << shift
        return first or NEXT_OF_EMPTY, INDEX_MAX if end is None else min(end - 1, INDEX_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChoice:
    """The choice of queues: directories, or patterns of them. `name` is given to a queue that is
    the only one."""

    paths: tuple[str, ...]
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options that a batch and a stream have in common for reading.

    Args:
        typed: the schema whose fields are columns; None: there are no such columns.
        misfits: what becomes of documents that do not fit it, one of `MISFITS`.
    """

    finding: QueueChoice
    columns: tuple[str, ...]
    payload: str
    split_bytes: int
    split_excerpts: int
    splits_max: int
    batch_excerpts: int
    batch_bytes: int
    typed: TypedSchema | None = None
    misfits: str = MISFITS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options that only a stream has. `starting` is `earliest`, `latest`, or an index; of each
    queue where it is named, else of all (`OTHERS`).

    Args:
        starting_ms: start with the cycle of this time instead.
        excerpts_min: wait for so many, but no longer than `delay_s`.
        reader: the name under which retention waits for the query.
    """

    starting: Mapping[str, str | int]
    starting_ms: int | None
    excerpts_min: int | None
    delay_s: float
    excerpts_max: int | None
    bytes_max: int | None
    cycles_max: int | None
    fail_on_data_loss: bool
    reader: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of writing. The layout of a new queue comes from `roll_cycle`, or is that of
    another queue, whose path is `like`.

    The column `queue_column` names for each row the queue below `path` that the row is written to.
    None: `path` is the queue. `write_id` names a batch of rows without indexes, for its repetition.
    `schema` and `event` say which documents rows of other columns become.
    """

    path: str
    roll_cycle: str | None
    like: str | None
    queue_column: str | None
    staging: str | None
    is_existing_refused: bool
    is_synced: bool
    checkpoint: str | None
    write_id: str | None
    schema: str | None = None
    event: str | None = None


class Given:
    """The options that were given, to be taken by name."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str], kind: str) -> None:
        self._options = {name.lower(): text for name, text in options.items()}
        known = list(known)
        names = {name.lower(): name for name in known}
        for name in self._options:
            if name in names or name in _BY_SPARK:
                continue
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"such as {names[near[0]]}" if near else f"one of {', '.join(known)}"
            raise OptionError(name, f"an option of {kind}, {hint}", "this one")

    def has(self, *names: str) -> str | None:
        """The first of these options that was given."""
        return next((name for name in names if name.lower() in self._options), None)

    def text(self, name: str) -> str | None:
        """An option as it was given."""
        return self._options.get(name.lower())

    def take(self, name: str, expected: str, convert: Callable[[str], Value]) -> Value | None:
        """An option converted; None if it was not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return convert(text.strip())
        except (ValueError, KeyError):
            raise OptionError(name, expected, repr(text)) from None

    def number(self, name: str, least: int, most: int = INDEX_MAX) -> int | None:
        return self.take(name, f"a number from {least} to {most}", _within(int, least, most))

    def size(self, name: str, most: int = INDEX_MAX) -> int | None:
        expected = f"a size from 1 to {most} bytes, such as 64MiB"
        return self.take(name, expected, _within(parse_size, 1, most))

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of some words; the first if it was not given."""

        def chosen(text: str) -> str:
            return choices[choices.index(text.lower())]

        return self.take(name, " or ".join(choices), chosen) or choices[0]


def given_for_reading(options: Mapping[str, str]) -> Given:
    """The options of a batch and of a stream.

    Raises:
        OptionError: one is none.
    """
    return Given(options, (*_READING, *_BATCH, *_STREAMING), "chronicle")


def read_options(options: Mapping[str, str], typed: TypedSchema | None = None) -> ReadOptions:
    """The options that are read before Spark says whether it wants a batch or a stream.

    Args:
        typed: the schema that these options tell, see `schemachoice`.

    Raises:
        OptionError: one of all options cannot be used.
    """
    given = given_for_reading(options)
    known = COLUMNS if typed is None else typed.names
    usual = COLUMNS_USUAL if typed is None else typed.usual
    if given.has(*_BATCH):
        bounds(options)
    if given.has(*_STREAMING):
        stream_options(options)
    return ReadOptions(
        finding=finding_of(given),
        columns=given.take("columns", f"some of {', '.join(known)}", _columns(known)) or usual,
        payload=given.choice("payload", PAYLOAD_FORMS),
        split_bytes=given.size("splitBytes") or SPLIT_BYTES,
        split_excerpts=given.number("splitExcerpts", 1) or SPLIT_EXCERPTS,
        splits_max=given.number("maxPartitions", 1) or SPLITS_MAX,
        batch_excerpts=given.number("batchExcerpts", 1) or BATCH_EXCERPTS,
        batch_bytes=given.size("batchBytes", _BATCH_BYTES_MAX) or BATCH_BYTES,
        typed=typed,
        misfits=given.choice("misfits", MISFITS),
    )


def bounds(options: Mapping[str, str]) -> Bounds:
    """The bounds that a batch is limited to.

    Raises:
        OptionError: an option cannot be used, is not one of a batch, or two are of different kinds.
    """
    given = Given(options, (*_READING, *_BATCH), "a batch")
    kinds = [pair for pair in zip(_BOUNDS[::2], _BOUNDS[1::2], strict=True) if given.has(*pair)]
    if len(kinds) > 1:
        first, other = given.has(*kinds[0]), given.has(*kinds[1])
        raise OptionError(other or "", f"bounds of one kind beside {first}", "both")
    return Bounds(
        index_from=given.take("fromIndex", _AN_INDEX, _bound),
        index_end=given.take("toIndex", _AN_INDEX, _bound),
        cycle_from=given.number("fromCycle", 0, CYCLE_MAX),
        cycle_to=given.number("toCycle", 0, CYCLE_MAX),
        ms_from=given.take("fromTime", _A_TIME, _milliseconds),
        ms_end=given.take("toTime", _A_TIME, _milliseconds),
        is_of_load=given.choice("snapshot", ("load", "action")) == "load",
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options that only a stream has.

    Raises:
        OptionError: an option cannot be used, or is not one of a stream.
    """
    given = Given(options, (*_READING, *_STREAMING), "a stream")
    expected = "earliest, latest, an index, or JSON of these by queue"
    starting = given.take("startingIndex", expected, _starting)
    if starting is not None and given.has("startingTimestamp"):
        raise OptionError("startingTimestamp", "no startingIndex beside it", "both")
    delay_s = given.take("maxTriggerDelay", "a time such as 15m or 900s", _seconds)
    if delay_s is not None and not given.has("minExcerptsPerBatch"):
        raise OptionError("maxTriggerDelay", "minExcerptsPerBatch beside it", "none")
    least, most = given.number("minExcerptsPerBatch", 1), given.number("maxExcerptsPerBatch", 1)
    if least is not None and most is not None and least > most:
        raise OptionError("minExcerptsPerBatch", f"at most maxExcerptsPerBatch, {most}", str(least))
    return StreamOptions(
        starting={OTHERS: "earliest"} if starting is None else starting,
        starting_ms=given.take("startingTimestamp", _A_TIME, _milliseconds),
        excerpts_min=least,
        delay_s=TRIGGER_DELAY_S if delay_s is None else delay_s,
        excerpts_max=most,
        bytes_max=given.size("maxBytesPerBatch"),
        cycles_max=given.number("maxCyclesPerBatch", 1),
        fail_on_data_loss=given.choice("failOnDataLoss", ("true", "false")) == "true",
        reader=given.take("reader", "a name", _name),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options by which a batch or a stream is written.

    Raises:
        OptionError: an option cannot be used.
    """
    given = Given(options, _WRITING, "writing")
    path = given.text("path")
    if not path:
        raise OptionError("path", "the directory of a queue", "none")
    if given.has("rollCycle") and given.has("like"):
        raise OptionError("like", "no rollCycle beside it", "both")
    return WriteOptions(
        path=local_path("path", path),
        roll_cycle=given.take("rollCycle", "a roll cycle such as FAST_DAILY", _roll_cycle),
        like=given.take("like", "a local path", lambda text: local_path("like", text)),
        queue_column=given.take("queueColumn", "the name of a column", _name),
        staging=given.take("stagingPath", "a local path", lambda text: local_path("", text)),
        is_existing_refused=given.choice("onExisting", ("verify", "fail")) == "fail",
        is_synced=given.choice("durability", ("synced", "none")) == "synced",
        checkpoint=given.text("checkpointLocation"),
        write_id=given.take("writeId", "a name of letters, digits, - and _", _plain_name),
        schema=given.text("schema"),
        event=given.text("event"),
    )


def check_known(option: str, names: Iterable[str], found: Iterable[str]) -> None:
    """Does nothing where the queues that an option names were found.

    Raises:
        OptionError: one was not.
    """
    known = sorted(found)
    for name in names:
        if name not in known:
            raise OptionError(option, f"names among {', '.join(known) or 'none'}", repr(name))


def _of(bound: int | Mapping[str, int] | None, name: str) -> int | None:
    return bound if bound is None or isinstance(bound, int) else bound.get(name)


def local_path(name: str, text: str) -> str:
    """The path that a text names, which may begin with `file:` as elsewhere in Spark.

    Raises:
        OptionError: it is empty, or on another file system.
    """
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    path = path.removeprefix("file:")
    if not path or "://" in path:
        raise OptionError(name, "a path of a local file system", repr(text))
    return path


def finding_of(given: Given) -> QueueChoice:
    """The choice of queues.

    Raises:
        OptionError: none is chosen, or a path is none.
    """
    paths = given.take("paths", "a JSON list of paths", _path_list) or []
    single = given.text("path")
    paths = [*([single] if single is not None else []), *paths]
    if not paths:
        raise OptionError("path", "the directory of a queue, or a pattern of some", "none")
    name = given.text("name")
    if name is not None and (len(paths) > 1 or name == ""):
        raise OptionError("name", "a name, for one queue only", f"{name!r} for {len(paths)}")
    return QueueChoice(paths=tuple(local_path("path", path) for path in paths), name=name)


def _path_list(text: str) -> list[str]:
    paths = json.loads(text)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(text)
    return paths


def _columns(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def checked(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise ValueError(text)
        return names

    return checked


def _within(convert: Callable[[str], int], least: int, most: int) -> Callable[[str], int]:
    def checked(text: str) -> int:
        number = convert(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return checked


def _index(text: str) -> int:
    return _within(lambda each: int(each, 0), 0, INDEX_MAX)(text)


def _starting(text: str) -> Mapping[str, str | int]:
    if not text.startswith("{"):
        return {OTHERS: _start(text)}
    told = json.loads(text)
    if not all(isinstance(each, str) for each in told.values()):
        raise ValueError(text)
    return {OTHERS: "earliest", **{name: _start(each) for name, each in told.items()}}


def _start(text: str) -> str | int:
    return text.lower() if text.lower() in ("earliest", "latest") else _index(text)


def _bound(text: str) -> int | Mapping[str, int]:
    if not text.startswith("{"):
        return _index(text)
    told = json.loads(text)
    if not all(isinstance(each, str) for each in told.values()):
        raise ValueError(text)
    return {name: _index(each) for name, each in told.items()}


def _milliseconds(text: str) -> int:
    return since_1970_ns(datetime.fromisoformat(text)) // 1_000_000


def _seconds(text: str) -> float:
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    number = text.rstrip("mhs")
    seconds = float(number) * units[text[len(number) :] or "s"]
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _name(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _plain_name(text: str) -> str:
    if not text.replace("-", "").replace("_", "").isalnum():
        raise ValueError(text)
    return text


def _roll_cycle(text: str) -> str:
    return by_name(text).name
