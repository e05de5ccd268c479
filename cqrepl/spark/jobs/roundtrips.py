"""Measures how long acknowledgements took, from logs of them. Knows nothing of Spark.

Theory of operation. Both times of an entry are readings of the source's own monotonic clock: when
the excerpt was sent, and when its acknowledgement came. Only their difference means anything; no
clock of a sink is in it. That clock starts anew with the machine, so where times fall a new run
begins, and windows are counted from the first entry of their run.

An acknowledgement of many excerpts counts as many, with the time of the last of them, which is
what the log has. Round trips are counted in buckets, each at most 1/128 wide of what it holds, so
counts of any parts of a log can be added up, and a percentile is right to half a percent.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cqrepl.queue import QueueError, format_index
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.spark.jobs.blocks import Piece

WINDOWS_MAX: Final = 100_000
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_BITS: Final = 8
_FIELDS: Final = ENTRY.size // 8  # 64-bit numbers of an entry


@dataclass(slots=True, kw_only=True)
class RoundTripWindow:
    """The acknowledgements of one span of time; `buckets` counts excerpts by their round trip."""

    acknowledgements: int = 0
    excerpts: int = 0
    payload_bytes: int = 0
    longest_ns: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, other: "RoundTripWindow") -> None:
        """Adds those of another part of the log."""
        self.acknowledgements += other.acknowledgements
        self.excerpts += other.excerpts
        self.payload_bytes += other.payload_bytes
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.buckets.update(other.buckets)

    def percentile_ns(self, percent: float) -> int:
        """The round trip that so many of a hundred excerpts did not exceed."""
        wanted = max(1, -(-self.excerpts * percent // 100))
        passed = 0
        for bucket in sorted(self.buckets):
            passed += self.buckets[bucket]
            if passed >= wanted:
                return min(_middle(bucket), self.longest_ns)
        return self.longest_ns


@dataclass(slots=True, kw_only=True)
class AckRun:
    """Entries of which the times never fall, by the number of their window."""

    first_ns: int
    last_ns: int
    windows: dict[int, RoundTripWindow] = field(default_factory=dict)

    def joins(self, other: "AckRun") -> bool:
        """True when another run goes on where this one ends; then it is added."""
        if other.first_ns < self.last_ns:
            return False
        self.last_ns = other.last_ns
        for number, window in other.windows.items():
            self.windows.setdefault(number, RoundTripWindow()).add(window)
        return True

    def fields(self) -> dict[str, Any]:
        """The fields that `run_of` makes the same run of."""
        windows = [
            [number, each.acknowledgements, each.excerpts, each.payload_bytes, each.longest_ns,
             list(each.buckets.items())]
            for number, each in self.windows.items()
        ]  # fmt: skip
        return {"first_ns": self.first_ns, "last_ns": self.last_ns, "windows": windows}


def run_of(fields: dict[str, Any]) -> AckRun:
    """The run that `Run.fields` tells of."""
    run = AckRun(first_ns=fields["first_ns"], last_ns=fields["last_ns"])
    for number, count, excerpts, payload_bytes, longest_ns, buckets in fields["windows"]:
        run.windows[number] = RoundTripWindow(
            acknowledgements=count,
            excerpts=excerpts,
            payload_bytes=payload_bytes,
            longest_ns=longest_ns,
            buckets=Counter(dict(buckets)),
        )
    return run


def runs_in(pieces: Iterable[Piece], window_ns: int) -> Iterator[AckRun]:
    """The runs of a part of a log.

    Raises:
        QueueError: it is no log of acknowledgements; or it has too many windows of this length.
    """
    run: AckRun | None = None
    for piece in pieces:
        entries = _entries(piece)
        noted = entries[2::_FIELDS]
        starts = [n for n in range(1, len(noted)) if noted[n] < noted[n - 1]]
        for start, stop in zip([0, *starts], [*starts, len(noted)], strict=True):
            found = _run(entries[start * _FIELDS : stop * _FIELDS], window_ns)
            if run is None:
                run = found
            elif not run.joins(found):
                yield run
                run = found
        if run is not None and len(run.windows) > WINDOWS_MAX:
            raise QueueError(
                f"at most {WINDOWS_MAX:,} windows expected, {piece.index_last:#x} begins more:"
                " take longer ones"
            )
    if run is not None:
        yield run


def joined_runs(runs: Iterable[AckRun]) -> list[AckRun]:
    """The runs of the parts of a log, in the order of the log, those that go on made one."""
    joined: list[AckRun] = []
    for run in runs:
        if not joined or not joined[-1].joins(run):
            joined.append(run)
    return joined


def _entries(piece: Piece) -> "Sequence[int]":
    """The numbers of all entries in one sequence."""
    for nth, length in enumerate(piece.lengths):
        if length != ENTRY.size:
            index = format_index(piece.index_first + nth)
            raise QueueError(
                f"expected a log of acknowledgements, of {ENTRY.size} bytes each,"
                f" found {length} bytes at {index}"
            )
    return memoryview(piece.payload).cast("q").tolist()


def _run(entries: "Sequence[int]", window_ns: int) -> AckRun:
    """One run of entries, at least one."""
    noted = entries[2::_FIELDS]
    run = AckRun(first_ns=noted[0], last_ns=noted[-1])
    start = 0
    while start < len(noted):
        number = noted[start] // window_ns
        stop = start + 1
        while stop < len(noted) and noted[stop] // window_ns == number:
            stop += 1
        run.windows[number] = _window(entries[start * _FIELDS : stop * _FIELDS])
        start = stop
    return run


def _window(entries: "Sequence[int]") -> RoundTripWindow:
    trips = [
        noted - sent for sent, noted in zip(entries[1::_FIELDS], entries[2::_FIELDS], strict=True)
    ]
    counts = entries[3::_FIELDS]
    buckets: Counter[int] = Counter()
    for trip, count in zip(trips, counts, strict=True):
        buckets[bucket_of(trip)] += count
    return RoundTripWindow(
        acknowledgements=len(trips),
        excerpts=sum(counts),
        payload_bytes=sum(entries[4::_FIELDS]),
        longest_ns=max(trips),
        buckets=buckets,
    )


def bucket_of(ns: int) -> int:
    """The number of the bucket of a time: its leading bits, and how many follow them."""
    if ns < 1 << _BITS:
        return max(0, ns)
    shift = ns.bit_length() - _BITS
    return (shift << _BITS) + (ns >> shift)


def _middle(bucket: int) -> int:
    """The time in the middle of a bucket."""
    shift, leading = bucket >> _BITS, bucket & ((1 << _BITS) - 1)
    return (leading << shift) + ((1 << shift) >> 1)
