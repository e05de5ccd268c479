"""The report of a comparison: for people, as JSON, as CSV, and for the documentation."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from cqrepl.bench.machine import facts_text, machine_facts
from cqrepl.bench.report import number, table
from tests.bench.compare.rows import Judged, Kind, Verdict
from tests.bench.compare.running import LOAD_MAX, Results
from tests.bench.peers import aeron, java, limits, nats, postgres, quickfix, redis

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PEERS = {
    "Java": java, "Aeron Archive": aeron, "C": limits, "Redis": redis, "NATS": nats,
    "PostgreSQL": postgres, "QuickFIX/J": quickfix,
}  # fmt: skip
SHORT_KEYS = (
    "fresh-64", "fresh-256", "fresh-1024", "fresh-16384", "redis", "nats", "postgres",
    "rtt-p50", "rtt-p99", "live", "append", "tail-viewed", "memory",
)  # fmt: skip
HEADS = ("", "row", "measured", "least .. greatest", "goal", "floor", "ours", "peer", "rounds")


def text(judged: Sequence[Judged], results: Results) -> str:
    """The whole report for people."""
    rows = [list(HEADS), *(_cells(each) for each in judged)]
    parts = [facts_text(machine_facts()), table(rows)]
    if any(each.row.is_percentile for each in judged):
        parts.append(f"99th percentiles: only rounds with a load below {LOAD_MAX} count.")
    parts.append(_loads(results))
    parts += [f"{each.row.key}: {each.reason}" for each in judged if each.reason]
    parts += _peers(results)
    return "\n".join(parts) + "\n"


def write_files(folder: Path, judged: Sequence[Judged], results: Results) -> None:
    """All of it as `compare.json`, and every number of every round as `compare.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    rounds = [
        {"group": each.group, "case": each.case, "round": each.round, "load": each.load}
        | {"values": each.values}
        for each in results.found
    ]
    fields = {
        "v": 1,
        "machine": machine_facts(),
        "rows": [_fields(each) for each in judged],
        "rounds": rounds,
        "failures": results.failures,
        "commands": {name: peer.COMMANDS for name, peer in PEERS.items()},
    }
    (folder / "compare.json").write_text(json.dumps(fields, indent=1) + "\n")
    with (folder / "compare.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "case", "round", "load", "name", "value"])
        for each in results.found:
            for name, value in each.values.items():
                writer.writerow([each.group, each.case, each.round, each.load, name, value])


def write_docs(page: Path, judged: Sequence[Judged], results: Results) -> None:
    """Puts the whole table between the two marks of a page, and the pictures beside the page."""
    rows = [[*_cells(each)[1:], f"**{each.verdict.value}**" + _because(each)] for each in judged]
    pictures = sorted(page.parent.glob("plots/*.png"))
    lines = [
        f"{facts_text(machine_facts())}.",
        "",
        *_markdown([*HEADS[1:], ""], rows),
        "",
        _loads(results),
        *(f"\n![{each.stem}](plots/{each.name})" for each in pictures),
    ]
    _fill(page, lines)


def write_short(page: Path, judged: Sequence[Judged]) -> None:
    """Puts the rows that tell most between the two marks of a page."""
    of = {each.row.key: each for each in judged}
    rows = [[*_cells(of[key])[1:5], of[key].verdict.value] for key in SHORT_KEYS if key in of]
    lines = [f"{facts_text(machine_facts())}.", "", *_markdown([*HEADS[1:5], ""], rows)]
    _fill(page, lines)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _because(judged: Judged) -> str:
    return f": {judged.reason}" if judged.reason else ""


def _fill(page: Path, lines: Sequence[str]) -> None:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RuntimeError(f"{page.name}: {BEGIN} and {END} expected")
    page.write_text("\n".join([before + begin, "", *lines, "", end + after]))


def _cells(judged: Judged) -> list[str]:
    row = judged.row
    sign = "" if row.goal is None else ">= " if row.wants_more else "<= "
    goal, floor = (
        "-" if each is None else sign + _amount(row.kind, each, row.unit)
        for each in (row.goal, row.floor)
    )
    start = [judged.verdict.value, row.title]
    if judged.verdict is Verdict.UNMEASURED:
        return [*start, "-", "-", goal, floor, "-", "-", "0"]
    value, least, greatest = (
        _amount(row.kind, each, row.unit) for each in (judged.value, judged.least, judged.greatest)
    )
    peer = "-" if judged.peer is None else number(judged.peer)
    ends = [number(judged.ours), peer, str(judged.rounds)]
    return [*start, value, f"{least} .. {greatest}", goal, floor, *ends]


def _amount(kind: Kind, value: float, unit: str) -> str:
    if kind is Kind.RATIO:
        return f"x{value:.3g}"
    return f"{value:.0%}" if kind is Kind.SPREAD else f"{number(value)} {unit}"


def _fields(judged: Judged) -> dict[str, object]:
    row = judged.row
    return {
        "key": row.key,
        "title": row.title,
        "kind": row.kind.name.lower(),
        "unit": row.unit,
        "goal": row.goal,
        "floor": row.floor,
        "verdict": judged.verdict.value,
        "value": judged.value,
        "least": judged.least,
        "greatest": judged.greatest,
        "ours": judged.ours,
        "peer": judged.peer,
        "rounds": judged.rounds,
        "reason": judged.reason,
    }


def _loads(results: Results) -> str:
    """The load before each round."""
    groups: dict[str, dict[int, float]] = {}
    for each in results.found:
        groups.setdefault(each.group, {})[each.round] = each.load
    parts = (
        f"{name} {' '.join(f'{load:.1f}' for load in loads.values())}"
        for name, loads in groups.items()
    )
    return f"Load before each round: {'; '.join(parts)}."


def _peers(results: Results) -> list[str]:
    """The commands of the peers that were run, and how to get those that were not."""
    lines = ["", "Peers:"]
    for name, peer in PEERS.items():
        reason = peer.missing()
        if reason is not None:
            lines.append(f"  {name}: {reason}; needs {peer.INSTALL}")
        lines += [f"  {name}: {command}" for command in peer.COMMANDS]
    return lines
