"""The goals: what is compared with what, what is aimed at, and what must not be missed."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.bench.compare.cases import AUDIT_CYCLES, QUEUES, QUEUES_MANY, SINKS, SIZES, WAITED_QUEUES
from tests.bench.compare.running import LOAD_MAX, Found, Results
from tests.bench.compare.servicecases import FLIGHTS

NO_WORSE = 0.97  # than before there were runs
Ref = tuple[str, str]  # a case, and the name of one of its values


class Kind(Enum):
    """The ways in which the number of a row is made of medians."""

    RATIO = "ours over the peer's; of several sizes the worst"
    VALUE = "ours alone; of several the worst"
    SPREAD = "how far the greatest is above the least"


class Verdict(Enum):
    """The outcomes of a goal."""

    GOAL = "goal met"
    FLOOR = "floor met"
    MISSED = "missed"
    NONE = "no goal"
    UNMEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One goal.

    Args:
        ours, peers: which values; in a ratio each of ours has its peer.
        wants_more: greater numbers are better.
        is_percentile: only calm rounds count.
        goal, floor: None for a number that is only shown.
        scale: what the values are divided by to get to `unit`.
    """

    key: str
    title: str
    ours: Sequence[Ref]
    peers: Sequence[Ref] = ()
    kind: Kind = Kind.RATIO
    goal: float | None
    floor: float | None
    wants_more: bool = False
    is_percentile: bool = False
    unit: str = "x"
    scale: float = 1.0

    @property
    def cases(self) -> set[str]:
        """The names of the cases that it needs."""
        return {case for case, _ in (*self.ours, *self.peers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row with what was measured for it; `rounds` of them counted."""

    row: Row
    verdict: Verdict
    value: float = 0.0
    least: float = 0.0
    greatest: float = 0.0
    ours: float = 0.0
    peer: float | None = None
    rounds: int = 0
    reason: str = ""


def judge(row: Row, results: Results) -> Judged:
    """Holds what was found against a row's goal."""
    for case in sorted(row.cases):
        if case in results.failures:
            reason = f"{case}: {results.failures[case]}"
            return Judged(row=row, verdict=Verdict.UNMEASURED, reason=reason)
    by_round: dict[int, dict[Ref, float]] = {}
    for found in results.found:
        if not row.is_percentile or found.load < LOAD_MAX:
            values = by_round.setdefault(found.round, {})
            values.update(_values(found))
    refs = [*row.ours, *row.peers]
    whole = [values for values in by_round.values() if all(ref in values for ref in refs)]
    if not whole:
        reason = f"no round with a load below {LOAD_MAX}" if row.is_percentile else "no round"
        return Judged(row=row, verdict=Verdict.UNMEASURED, reason=reason)
    medians = {ref: statistics.median(values[ref] for values in whole) for ref in refs}
    value, place = _number(row, medians)
    each = [_number(row, values)[0] for values in whole]
    return Judged(
        row=row,
        verdict=_verdict(row, value),
        value=value,
        least=min(each),
        greatest=max(each),
        ours=medians[row.ours[place]],
        peer=medians[row.peers[place]] if row.peers else None,
        rounds=len(whole),
    )


def _values(found: Found) -> dict[Ref, float]:
    return {(found.case, name): value for name, value in found.values.items()}


def _number(row: Row, values: dict[Ref, float]) -> tuple[float, int]:
    """The row's number, and the place of the values that decide it."""
    ours = [values[ref] / row.scale for ref in row.ours]
    if row.kind is Kind.SPREAD:
        return max(ours) / min(ours) - 1, ours.index(max(ours))
    if row.kind is Kind.RATIO:
        ours = [mine / values[ref] for mine, ref in zip(ours, row.peers, strict=True)]
    worst = min(ours) if row.wants_more else max(ours)
    return worst, ours.index(worst)


def _verdict(row: Row, value: float) -> Verdict:
    if row.goal is None or row.floor is None:
        return Verdict.NONE
    for limit, verdict in ((row.goal, Verdict.GOAL), (row.floor, Verdict.FLOOR)):
        if value >= limit if row.wants_more else value <= limit:
            return verdict
    return Verdict.MISSED


def _rates() -> list[Row]:
    """Catching up, against Java in its second half, Aeron, and loopback itself."""
    fresh = ((8, 5), (7, 5), (5, 4.5), (5, 4))
    touched = ((12, 8), (8, 6), (6, 5), (8, 7))
    frames = tuple((now, now * NO_WORSE) for now in (2.8, 3.7, 3.9, 3.0))
    aeron = ((2, 1.5), (1.6, 1.3), (1.3, 1.1), (1.8, 1.5))
    stored = ((0.8, 0.65),) * len(SIZES)
    rows = []
    rate, half = "excerpts_per_s", ("java", "half_per_s")
    touching = "catch-up rate / Java, pages touched ahead"
    for kind, title, ours, peer, limits in (
        ("fresh", "catch-up rate / Java, fresh files", ("ours-fresh", rate), half, fresh),
        ("touched", touching, ("ours-touched", rate), half, touched),
        ("frames", "catch-up rate with --frames / Java, fresh files", ("ours-frames", rate), half,
         frames),
        ("aeron", "catch-up rate, fresh files / Aeron Archive", ("ours-fresh", rate),
         ("aeron", rate), aeron),
        ("stored", "bytes of the file / C send and receive, touched",
         ("ours-touched", "stored_gb_per_s"), ("c-stream", "gb_per_s"), stored),
    ):  # fmt: skip
        rows += [
            Row(
                key=f"{kind}-{size}",
                title=f"{title}, {size} B",
                ours=[(f"{ours[0]}-{size}", ours[1])],
                peers=[(f"{peer[0]}-{size}", peer[1])],
                goal=goal,
                floor=floor,
                wants_more=True,
            )
            for size, (goal, floor) in zip(SIZES, limits, strict=True)
        ]
    return rows


def _stores() -> list[Row]:
    """Catching up, against other stores; the worst of all sizes."""
    return [
        Row(
            key=name,
            title=f"catch-up rate, fresh files / {title}, worst size",
            ours=[(f"ours-fresh-{size}", "excerpts_per_s") for size in SIZES],
            peers=[(f"{name}-{size}", "excerpts_per_s") for size in SIZES],
            goal=goal,
            floor=floor,
            wants_more=True,
        )
        for name, title, goal, floor in (
            ("redis", "Redis stream to replica", 6, 3),
            ("nats", "NATS mirror", 14, 12),
            ("postgres", "PostgreSQL COPY to standby", 12, 8),
        )
    ]


def _latencies() -> list[Row]:
    """One-way delays of 256 B, one each 500 us; from the append on, as the peers take them."""
    rows = []
    for key, pauser, percent, peer, peer_percent, title, goal, floor in (
        ("rtt-p50", "busy", "p50", "c-spin", "p50", "p50 / C polling round trip p50", 1.4, 3),
        ("rtt-p99", "busy", "p99", "c-spin", "p50", "p99 / C polling round trip p50", 5, 12),
        ("java-p50", "busy", "p50", "java-delay", "p50", "p50 / Java p50", 0.4, 0.7),
        ("java-p99", "busy", "p99", "java-delay", "p99", "p99 / Java p99", 0.15, 0.4),
        ("block-p50", "balanced", "p50", "c-block", "p50", "p50 / C blocking p50", 1, 1.5),
        ("block-p99", "balanced", "p99", "c-block", "p50", "p99 / C blocking p50", 2.5, 5),
    ):
        rows.append(
            Row(
                key=key,
                title=f"one-way delay, {pauser}: {title}",
                ours=[(f"ours-{pauser}", f"sent_{percent}_us")],
                peers=[(peer, f"{peer_percent}_us")],
                goal=goal,
                floor=floor,
                is_percentile=percent == "p99",
            )
        )
    rows += [
        # what polling costs a 99th percentile here without any replication
        Row(key="rtt-three", title="C polling round trip, a third process polls: p99 / p50 of two",
            ours=[("c-spin-three", "p99_us")], peers=[("c-spin", "p50_us")], goal=None, floor=None,
            is_percentile=True),
        Row(key="two-ways", title="one-way delay, balanced: both ways at once / one way, p50",
            ours=[("ours-2-ways", "p50_us")], peers=[("ours-1-ways", "p50_us")], goal=1.2,
            floor=2.4),
    ]  # fmt: skip
    return rows


def _live() -> list[Row]:
    live = "ours-live"
    # what is left of the last delays is not in the rate: half a percent is granted
    return [
        Row(key="live", title="1.67 M excerpts/s of 40 B, live: held", kind=Kind.VALUE,
            ours=[(live, "excerpts_per_s")], goal=1.66, floor=1.0, wants_more=True,
            unit="M/s", scale=1e6),
        Row(key="live-p99", title="p99 delay at that rate", kind=Kind.VALUE,
            ours=[(live, "p99_us")], goal=1, floor=5, is_percentile=True, unit="ms", scale=1e3),
    ]  # fmt: skip


def _local() -> list[Row]:
    ours, java = "ours-local", "java-local"
    rows = [
        Row(key=key, title=f"{title}, 64 B: time / warm Java", ours=[(ours, name)],
            peers=[(java, name)], goal=goal, floor=floor)
        for key, title, name, goal, floor in (
            ("append", "append in batches of 100", "append_ns", 0.4, 0.5),
            ("tail-copied", "read into columns / into a buffer", "copied_ns", 0.5, 1.0),
            ("tail-viewed", "read without a copy", "viewed_ns", 0.5, 1.0),
        )
    ]  # fmt: skip
    rows += [
        Row(key=key, title=title, kind=Kind.VALUE, ours=[(ours, name)], goal=goal, floor=3.0,
            unit="us", scale=1e3)
        for key, title, name, goal in (
            ("append-single", "single append, public API", "append_single_ns", 1.5),
            ("read-single", "single read, public API", "read_single_ns", 1.0),
        )
    ]  # fmt: skip
    return rows


def _costs() -> list[Row]:
    rows = [
        Row(key="memory", title="greatest private memory of source or sink, 4 GiB catch-up",
            kind=Kind.VALUE, ours=[("ours-memory", "source_mib"), ("ours-memory", "sink_mib")],
            goal=96, floor=128, unit="MiB"),
        Row(key="memory-growth", title="of which came in the second half", kind=Kind.VALUE,
            ours=[("ours-memory", "source_growth_mib"), ("ours-memory", "sink_growth_mib")],
            goal=None, floor=None, unit="MiB"),
    ]  # fmt: skip
    rows += [
        Row(key=f"cpu-{size}", title=f"sink's processor time an excerpt / Java's, {size} B",
            ours=[(f"ours-fresh-{size}", "sink_cpu_ns")], peers=[(f"java-{size}", "sink_cpu_ns")],
            goal=goal, floor=floor)
        for size, goal, floor in ((64, 0.1, 0.15), (1024, 0.15, 0.3))
    ]  # fmt: skip
    rows += [
        Row(key="queues", title="1, 10, 100 queues on one connection: total rate, spread",
            kind=Kind.SPREAD, ours=[(f"ours-{each}-queues", "excerpts_per_s") for each in QUEUES],
            goal=0.15, floor=0.4, unit="of the least"),
        Row(key="queues-many", title="1,000 queues on one connection: total rate / that of one",
            ours=[(f"ours-{QUEUES_MANY}-queues", "excerpts_per_s")],
            peers=[("ours-1-queues", "excerpts_per_s")], goal=0.5, floor=0.25, wants_more=True),
        Row(key="sinks", title="1, 4, 16 sinks: source's processor time a sink and GiB, spread",
            kind=Kind.SPREAD, ours=[(f"ours-{each}-sinks", "source_cpu_s_per_gib")
                                    for each in SINKS],
            goal=0.25, floor=0.5, unit="of the least"),
        Row(key="sinks-rate", title="4, 16 sinks: total rate / that of one",
            ours=[(f"ours-{each}-sinks", "excerpts_per_s") for each in SINKS[1:]],
            peers=[(f"ours-{SINKS[0]}-sinks", "excerpts_per_s")] * (len(SINKS) - 1), goal=1.0,
            floor=0.8, wants_more=True),
        Row(key="stalled", title="a sink that catches up beside a stalled one / beside one at rest",
            ours=[("ours-beside-stalled", "excerpts_per_s")],
            peers=[("ours-beside-resting", "excerpts_per_s")], goal=0.9, floor=0.7,
            wants_more=True),
        Row(key="stalled-memory", title="private memory that a stalled peer costs the source",
            kind=Kind.VALUE, ours=[("ours-beside-stalled", "grown_mib")], goal=8, floor=16,
            unit="MiB"),
        Row(key="slow", title="a sink that catches up beside a slow one / beside one at rest",
            ours=[("ours-beside-slow", "excerpts_per_s")],
            peers=[("ours-beside-resting", "excerpts_per_s")], goal=0.9, floor=0.7,
            wants_more=True),
        Row(key="slow-memory", title="private memory that a slow peer costs the source",
            kind=Kind.VALUE, ours=[("ours-beside-slow", "grown_mib")], goal=8, floor=16,
            unit="MiB"),
        Row(key="idle", title="100 queues, 3 peers, nothing comes: the source's share of a core",
            kind=Kind.VALUE, ours=[("ours-idle", "core")], goal=0.5, floor=1.0, unit="%",
            scale=0.01),
        Row(key="host", title="1,000 queues, 20 peers, nothing comes: the source's share of a core",
            kind=Kind.VALUE, ours=[("ours-host", "core")], goal=None, floor=None, unit="%",
            scale=0.01),
        Row(key="host-memory", title="its private memory", kind=Kind.VALUE,
            ours=[("ours-host", "private_mib")], goal=None, floor=None, unit="MiB"),
    ]  # fmt: skip
    return rows


def _audits() -> list[Row]:
    """The rows of what is read behind a catch-up."""
    rows = []
    for cycles, number, share in zip(
        AUDIT_CYCLES, ("one cycle", "ten cycles"), (0.15, 0.5), strict=True
    ):
        for kind, title, goal, unit, scale in (
            ("share", "what reading behind it takes of a core", 100 * share, "%", 0.01),
            ("after", "until all is read / its own time", 1.0, "x", 1.0),
        ):
            ours = [(f"ours-audits-{cycles}", f"{side}_{kind}") for side in ("source", "sink")]
            title = f"catch-up of {number}: {title}"
            rows.append(
                Row(key=f"audits-{kind}-{cycles}", title=title, kind=Kind.VALUE, ours=ours,
                    goal=goal, floor=goal, unit=unit, scale=scale)
            )  # fmt: skip
    return rows


def _waits() -> list[Row]:
    """Threads that wait for their own writes, each at the same durability as its peer."""
    rows = []
    for level, goal, floor in (("appended", 3, 2), ("synced", 20, 10), ("applied", None, None)):
        ours = f"ours-waiters-{level}"
        rows.append(
            Row(key=f"waiters-{level}", title=f"64 threads that wait until it is {level} / one",
                ours=[(ours, "many_per_s")], peers=[(ours, "one_per_s")], goal=goal, floor=floor,
                wants_more=True)
        )  # fmt: skip
        peers = [("postgres", f"postgres-waiters-{level}", "PostgreSQL")]
        if level == "appended":
            peers.append(("redis", "redis-waiters", "Redis"))
        rows += [
            Row(key=f"waiters-{level}-{key}-{name}", title=f"{level}, {many}: writes / {title}",
                ours=[(ours, f"{name}_per_s")], peers=[(peer, f"{name}_per_s")], goal=None,
                floor=None, wants_more=True)
            for key, peer, title in peers
            for name, many in (("one", "one thread"), ("many", "64 threads"))
        ]  # fmt: skip
    applied = "ours-applied"
    rows += [
        Row(key="applied-p50", title="wait until applied: p50 / C blocking, a core each, p50",
            ours=[(applied, "p50_us")], peers=[("c-apart", "p50_us")], goal=3, floor=6),
        Row(key="applied-p99", title="wait until applied: p99", kind=Kind.VALUE,
            ours=[(applied, "p99_us")], goal=10, floor=20, is_percentile=True, unit="ms",
            scale=1e3),
    ]  # fmt: skip
    waited = [f"ours-waited-{queues}" for queues in WAITED_QUEUES]
    rows += [
        Row(key=f"waited-{percent}",
            title=f"wait until acknowledged, 1 and 100 queues: {percent} / twice the one-way p50",
            ours=[(case, f"{percent}_us") for case in waited],
            peers=[(case, "least_us") for case in waited], goal=goal, floor=2 * goal,
            is_percentile=percent == "p99")
        for percent, goal in (("p50", 1.3), ("p99", 3.0))
    ]  # fmt: skip
    return rows


def _services() -> list[Row]:
    """Tasks, storages and the leaders of groups."""
    rows = [
        Row(key=f"tasks-{each}", title=f"tasks on disks, {each} at a time / Redis, both sync",
            ours=[("ours-tasks", f"of_{each}_per_s")], peers=[("redis-tasks", f"of_{each}_per_s")],
            goal=2.0 if each == max(FLIGHTS) else None, floor=1.0, wants_more=True)
        for each in FLIGHTS
    ]  # fmt: skip
    ours = ("ours-storages", "p50_us")
    rows += [
        Row(key=f"storages-{key}", title=f"append to a sequence until applied: p50 / {title}",
            ours=[ours], peers=[(peer, "p50_us")], goal=goal, floor=floor)
        for key, title, peer, goal, floor in (
            ("redis", "Redis, WAIT 1", "redis-entries", 0.35, 0.5),
            ("fdatasync", "local fdatasync", "fdatasync", None, None),
            ("postgres", "PostgreSQL, remote_apply", "postgres-commits", None, None),
            ("file", "QuickFIX/J FileStore that syncs", "file-store", None, None),
        )
    ]  # fmt: skip
    rows += [
        Row(key="storages-p99", title="append to a sequence until applied: p99", kind=Kind.VALUE,
            ours=[("ours-storages", "p99_us")], goal=10, floor=10, is_percentile=True, unit="ms",
            scale=1e3),
        Row(key="storages-plain", title="append that does not wait / Queue.append",
            ours=[("ours-storages", "plain_us")], peers=[("ours-storages", "queue_us")], goal=1.5,
            floor=1.5),
        Row(key="storages-java", title="Java's store of FIX sessions / the sequence: p50",
            ours=[("ours-engine", "p50_us")], peers=[ours], goal=1.5, floor=1.5),
        Row(key="marks", title="what is safe at a copy, behind the acknowledgement: p50",
            kind=Kind.VALUE, ours=[("ours-storages", "mark_p50_us")], goal=2, floor=2, unit="ms",
            scale=1e3),
        Row(key="promotions", title="groups of a leader that was killed: beyond a lease",
            kind=Kind.VALUE, ours=[("ours-promotions", "beyond_s")], goal=1, floor=1, unit="s"),
        Row(key="idle-cluster", title="three hosts, 8 groups, nothing comes: a share of a core",
            kind=Kind.VALUE, ours=[("ours-cluster", "core")], goal=1.5, floor=1.5, unit="%",
            scale=0.01),
    ]  # fmt: skip
    return rows


ROWS: tuple[Row, ...] = (
    *_rates(), *_stores(), *_latencies(), *_live(), *_local(), *_waits(), *_costs(), *_audits(),
    *_services(),
)  # fmt: skip
