"""Goals, and how what was measured is held against them."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Queue
from tests.bench.compare.__main__ import PAGE, README
from tests.bench.compare.cases import SIZES, groups, stored_bytes
from tests.bench.compare.report import (
    BEGIN,
    END,
    SHORT_KEYS,
    text,
    write_docs,
    write_files,
    write_short,
)
from tests.bench.compare.rows import ROWS, Kind, Row, Verdict, judge
from tests.bench.compare.running import Case, Found, Group, Results, run_groups
from tests.bench.peers.programs import missing_program, said_numbers


def row(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "key": "r", "title": "a row", "ours": [("a", "n")], "peers": [("b", "n")],
        "goal": 2.0, "floor": 1.0, "wants_more": True,
    }  # fmt: skip
    return Row(**(fields | changes))


def results(*values: tuple[str, int, float, float]) -> Results:
    found = [
        Found(group="g", case=case, round=number, load=load, values={"n": value})
        for case, number, load, value in values
    ]
    return Results(found=found)


def test_every_value_of_every_row_is_measured_by_a_case() -> None:
    cases = Counter(case.name for group in groups(quick=True) for case in group.cases)
    assert set(cases.values()) == {1}
    assert {name for row in ROWS for name in row.cases} == set(cases)
    keys = [row.key for row in ROWS]
    assert len(keys) == len(set(keys))
    assert set(SHORT_KEYS) <= set(keys)


def test_the_pages_have_places_for_the_tables() -> None:
    for page in (PAGE, README):
        written = page.read_text()
        assert written.count(BEGIN) == written.count(END) == 1


def test_percentiles_come_from_groups_that_wait_for_calm() -> None:
    calm = {case.name for group in groups(quick=True) if group.wants_calm for case in group.cases}
    assert {name for row in ROWS if row.is_percentile for name in row.cases} <= calm


def test_goals_are_beyond_floors() -> None:
    for each in ROWS:
        if each.goal is not None and each.floor is not None:
            assert (each.goal > each.floor) == each.wants_more, each.key
        assert len(each.peers) == (len(each.ours) if each.kind is Kind.RATIO else 0), each.key


@pytest.mark.parametrize(
    ("ours", "verdict"), [(4.0, Verdict.GOAL), (3.9, Verdict.FLOOR), (1.9, Verdict.MISSED)]
)
def test_a_ratio_of_medians(ours: float, verdict: Verdict) -> None:
    found = results(
        ("a", 1, 0, ours), ("a", 2, 0, 1.0), ("a", 3, 0, 100.0),
        ("b", 1, 0, 2.0), ("b", 2, 0, 1.0), ("b", 3, 0, 20.0),
    )  # fmt: skip
    judged = judge(row(), found)
    assert (judged.verdict, judged.value, judged.rounds) == (verdict, ours / 2, 3)
    assert (judged.least, judged.greatest) == (min(1.0, ours / 2), 5.0)
    assert (judged.ours, judged.peer) == (ours, 2.0)


def test_less_is_better_unless_said_otherwise() -> None:
    less = row(goal=0.5, floor=1.0, wants_more=False)
    for ours, verdict in ((0.5, Verdict.GOAL), (1.0, Verdict.FLOOR), (1.1, Verdict.MISSED)):
        assert judge(less, results(("a", 1, 0, ours), ("b", 1, 0, 1.0))).verdict is verdict


def test_the_worst_of_several_counts() -> None:
    several = row(ours=[("a", "n"), ("c", "n")], peers=[("b", "n"), ("b", "n")])
    judged = judge(several, results(("a", 1, 0, 9.0), ("c", 1, 0, 3.0), ("b", 1, 0, 1.0)))
    assert (judged.value, judged.ours, judged.verdict) == (3.0, 3.0, Verdict.GOAL)


def test_a_spread_is_how_far_the_greatest_is_above_the_least() -> None:
    spread = row(
        kind=Kind.SPREAD, ours=[("a", "n"), ("b", "n"), ("c", "n")], peers=(),
        goal=0.2, floor=0.4, wants_more=False,
    )  # fmt: skip
    judged = judge(spread, results(("a", 1, 0, 10.0), ("b", 1, 0, 13.0), ("c", 1, 0, 11.0)))
    assert judged.value == pytest.approx(0.3)
    assert judged.verdict is Verdict.FLOOR


def test_percentiles_count_only_in_calm_rounds() -> None:
    busy = [("a", 1, 1.5, 9.0), ("b", 1, 1.5, 1.0)]
    calm = [("a", 2, 1.4, 2.0), ("b", 2, 1.4, 1.0)]
    assert judge(row(is_percentile=True), results(*busy, *calm)).rounds == 1
    judged = judge(row(is_percentile=True), results(*busy))
    assert judged.verdict is Verdict.UNMEASURED
    assert judged.reason == "no round with a load below 1.5"
    assert judge(row(), results(*busy)).rounds == 1


def test_what_could_not_run_is_said(tmp_path: Path) -> None:
    def fails(_: Path) -> dict[str, float]:
        raise RuntimeError("it broke")

    cases = [
        Case(name="a", run=lambda _: {"n": 4.0}),
        Case(name="b", run=fails),
        Case(name="c", run=fails, missing=lambda: "not here"),
    ]
    said: list[str] = []
    found = run_groups([Group(name="g", cases=cases)], tmp_path, 2, 0.0, said.append)
    assert found.failures == {"b": "it broke", "c": "not here"}
    assert [each.case for each in found.found] == ["a", "a"]
    assert any("it broke" in line for line in said)
    judged = judge(row(), found)
    assert (judged.verdict, judged.reason) == (Verdict.UNMEASURED, "b: it broke")
    assert "r: b: it broke" in text([judged], found)


def test_cases_take_turns(tmp_path: Path) -> None:
    order: list[str] = []

    def run(name: str) -> Case:
        def work(_: Path) -> dict[str, float]:
            order.append(name)
            return {"n": 1.0}

        return Case(name=name, run=work)

    once = Group(name="once", cases=[run("c")], rounds_max=1)
    run_groups([Group(name="g", cases=[run("a"), run("b")]), once], tmp_path, 3, 0.0, order.append)
    assert [each for each in order if len(each) == 1] == ["a", "b"] * 3 + ["c"]


def test_files_have_every_number(tmp_path: Path) -> None:
    found = results(("a", 1, 0.5, 4.0), ("b", 1, 0.5, 1.0))
    judged = [judge(row(), found)]
    write_files(tmp_path, judged, found)
    written = json.loads((tmp_path / "compare.json").read_text())
    assert written["rows"][0]["verdict"] == "goal met"
    assert written["machine"]["cores"] >= 1
    assert {"Java", "Redis"} <= set(written["commands"])
    lines = list(csv.reader((tmp_path / "compare.csv").read_text().splitlines()))
    assert lines[1:] == [["g", "a", "1", "0.5", "n", "4.0"], ["g", "b", "1", "0.5", "n", "1.0"]]


def test_docs_get_the_table_and_keep_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    found = results(("a", 1, 0.5, 4.0), ("b", 1, 0.5, 1.0))
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "latency.png").touch()
    for _ in range(2):
        write_docs(page, [judge(row(), found)], found)
        written = page.read_text()
        assert written.startswith(f"before\n{BEGIN}\n")
        assert written.endswith(f"\n{END}\nafter\n")
        assert "![latency](plots/latency.png)" in written
        assert "| a row | x4 | x4 .. x4 | >= x2 | >= x1 | 4 | 1 | 1 | **goal met** |" in written
        assert "old" not in written
    write_short(page, [judge(row(key=SHORT_KEYS[0]), found), judge(row(), found)])
    assert page.read_text().count("| a row | x4 | x4 .. x4 | >= x2 | goal met |") == 1
    page.write_text("nothing to fill")
    with pytest.raises(RuntimeError, match="expected"):
        write_docs(page, [], found)


def test_peers_say_pairs_on_their_last_line() -> None:
    assert said_numbers("noise 1\np50_us 1.50 n 3\n") == {"p50_us": 1.5, "n": 3.0}
    with pytest.raises(RuntimeError, match="numbers expected, the peer said 'oops'"):
        said_numbers("oops")
    assert missing_program("no-such-program", "sh") == "no-such-program not on the path"


def test_what_an_excerpt_takes_in_a_store_file(tmp_path: Path) -> None:
    for size in (*SIZES, 41):
        with Queue.open_for_append(tmp_path / f"{size}", create="FAST_DAILY") as queue:
            queue.appender().append([b"x" * size] * 4)
            store = next(queue.path.glob("*.cq4"))
            content = store.read_bytes()
        starts = [each.start() for each in re.finditer(b"x" * size, content)]
        assert {starts[at + 1] - starts[at] for at in range(3)} == {stored_bytes(size)}
