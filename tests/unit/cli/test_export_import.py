"""`cqrepl export` and `cqrepl import`: rows out and in again, and both go on where they ended."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import wire
from cqrepl.commands import rowimport
from cqrepl.queue import Queue
from cqrepl.typed.importnotes import NAME as NOTES
from cqrepl.typed.schemafile import KEPT_NAME, json_schema
from tests.support.invoke import Invoke, invoke
from tests.support.requirements import require
from tests.support.samples import NOON_MS, noon_index, read

try:
    from tests.unit.test_typed_arrow import FULL, Order, Placed
except ImportError:
    require("arrow", "pyarrow is not installed")

__all__ = ["invoke"]
FIRST = noon_index()
ORDERS = [FULL, *(Order(f"S{at}", at / 4, at) for at in range(30))]
FORMS = ("csv", "jsonl", "arrow", "parquet")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents(ORDERS, now_ms=NOON_MS)
    (tmp_path / "order.json").write_text(json.dumps(json_schema(Order)))
    return tmp_path / "q"


@pytest.mark.parametrize("form", FORMS)
def test_what_is_exported_comes_back_byte_for_byte(
    invoke: Invoke, path: Path, tmp_path: Path, form: str
) -> None:
    schema, file = ("--schema", tmp_path / "order.json"), tmp_path / f"rows.{form}"
    out = invoke("export", path, "--to", file, *schema)
    assert (out.exit_code, out.stdout) == (0, "31 rows in 1 file\n"), out
    back = tmp_path / "back"
    done = invoke("import", back, file, *schema, "--create", "FAST_DAILY")
    assert (done.exit_code, done.stdout) == (0, "31 rows appended\n"), done
    payloads = [data for _, data in read(path)]
    if form in ("arrow", "parquet"):  # their decimals have one scale for all
        payloads[0] = wire.encode(replace(FULL, exact=Decimal("-1.1")))
    assert [data for _, data in read(back)] == payloads
    again = invoke("import", back, file, *schema, "--json")
    assert json.loads(again.stdout) == {"v": 1, "rows": 0, "rows_before": 31}
    assert len(read(back)) == 31


def test_without_a_schema_rows_have_the_fields_of_the_documents(
    invoke: Invoke, path: Path, tmp_path: Path
) -> None:
    with Queue.open(path) as queue:
        queue.append_many([b"text", wire.encode({"sym": "Z", "more": 1})], now_ms=NOON_MS)
    out = invoke("export", path, "--to", tmp_path / "a.jsonl", "--where", "qty > 27 or sym == 'Z'",
                 "--fields", "sym,more")  # fmt: skip
    assert out.exit_code == 4
    assert "1 excerpt left out, the first: excerpt 0x" in out.stderr
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["sym"] for row in rows] == ["grün€😀", "S28", "S29", "Z"]
    assert rows[-1] == {"index": FIRST + 32, "sym": "Z", "more": 1}
    assert rows[0] == {"index": FIRST, "sym": "grün€😀"}
    needs = invoke("export", path, "--to", tmp_path / "a.parquet")
    assert needs.exit_code == 2
    assert "expected a schema" in needs.stderr
    assert not list(tmp_path.glob(".*"))


def test_an_export_goes_on_behind_the_last_whole_part(
    invoke: Invoke, path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    schema, to = ("--schema", tmp_path / "order.json"), ("--to", folder, "--format", "csv")
    limit = ("--part-rows", "10")
    first = invoke("export", path, *to, *schema, *limit, "--json")
    assert first.exit_code == 0
    parts = json.loads(first.stdout)["parts"]
    assert parts == [f"part-{FIRST + at:016x}.csv" for at in (0, 10, 20, 30)]
    before = {name: (folder / name).read_bytes() for name in parts}
    # killed with a part renamed that the manifest does not name, and one half written
    (folder / f"part-{FIRST + 31:016x}.csv").write_text("half")
    (folder / "part.part").write_text("half")
    with Queue.open(path) as queue:
        queue.append_documents([Order("N", 1.0, 5)], now_ms=NOON_MS)
    second = invoke("export", path, *to, *schema, *limit, "--json")
    assert json.loads(second.stdout)["parts"] == [f"part-{FIRST + 31:016x}.csv"]
    assert {name: (folder / name).read_bytes() for name in parts} == before
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [10, 10, 10, 1, 1]
    assert sorted(each.name for each in folder.iterdir()) == sorted(
        ["manifest.json", *(part["name"] for part in manifest["parts"])]
    )
    other = invoke("export", path, *to, *schema, "--where", "qty > 1")
    assert other.exit_code == 2
    assert "expected an export with the same where" in other.stderr
    (folder / "mine.txt").write_text("mine")
    foreign = invoke("export", path, *to, *schema)
    assert "expected parts of an export, found mine.txt" in foreign.stderr


def test_a_killed_export_leaves_the_file_that_was_there(
    invoke: Invoke, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("before")
    from cqrepl.typed import textrows

    def fails(*_: Any) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(textrows.TextRows, "step", fails)
    result = invoke("export", path, "--to", tmp_path / "a.csv")
    assert result.exit_code != 0
    assert (tmp_path / "a.csv").read_text() == "before"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("appended", [0, 3, 8])
def test_an_import_that_was_killed_appends_no_row_twice(
    invoke: Invoke, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appended: int
) -> None:
    """Killed behind the note of its second block, with so many rows of the block in the queue; and
    another writer has appended since."""
    file, schema = tmp_path / "rows.jsonl", ("--schema", tmp_path / "order.json")
    invoke("export", path, "--to", file, *schema)
    monkeypatch.setattr(rowimport, "BLOCK_ROWS", 8)
    many, calls = Queue.append_many, []

    def dies(queue: Queue, payloads: list[bytes], **more: Any) -> int:
        calls.append(len(payloads))
        if len(calls) == 2:
            if appended:
                many(queue, payloads[:appended], **more)
            raise KeyboardInterrupt
        return many(queue, payloads, **more)

    back = tmp_path / "back"
    with monkeypatch.context() as patched:
        patched.setattr(Queue, "append_many", dies)
        died = invoke("import", back, file, *schema, "--create", "FAST_DAILY")
        assert died.exit_code == 130
    with Queue.open(back) as queue:
        queue.append(b"of another writer")
    done = invoke("import", back, file, *schema)
    assert done.exit_code == 0, done
    payloads = [data for _, data in read(path)]
    found = [data for _, data in read(back) if data != b"of another writer"]
    assert found == payloads
    (note,) = json.loads((back / NOTES).read_text())["files"].values()
    assert (note["rows"], note["is_whole"]) == (31, True)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", "sym,px\nA,x\n", "row 1: px: float expected, 'x' came"),
        ("a.csv", "px\n1.5\n", "row 1: sym: str expected, none came"),
        ("a.csv", "sym,px\nA\n", "line 2: 2 cells expected, 1 came"),
        ("a.jsonl", '{"sym": "A"}\n{"sym": 5}\n', "row 2: sym: str expected, 5 came"),
        ("a.jsonl", '{"sym": "A", "legs": [{"sym": "x", "ratio": 1e9}]}', "legs[0].ratio: "),
        ("a.jsonl", "[1]\n", "line 1: an object expected"),
        ("a.jsonl", "{\n", "line 1: JSON expected"),
        ("a.jsonl", "[" * 100_000, "line 1: JSON expected"),
        ("a.parquet", "nothing", "a.parquet: "),
        ("a.arrow", "nothing", "a.arrow: "),
        ("a.txt", "", "expected a file .csv, .jsonl, .arrow or .parquet"),
    ],
)
def test_a_file_that_does_not_fit_ends_in_one_line(
    invoke: Invoke, path: Path, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text)
    result = invoke("import", path, tmp_path / name, "--schema", tmp_path / "order.json")
    assert result.exit_code == 2
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(read(path)) == 31


def test_the_schema_of_a_queue_is_taken_unasked(invoke: Invoke, tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents([Placed("A", 1.5), Placed("B")], now_ms=NOON_MS)
    (tmp_path / "q" / KEPT_NAME).write_text(json.dumps(json_schema(Placed, Order)))
    both = invoke("export", tmp_path / "q", "--to", tmp_path / "a.csv")
    assert both.exit_code == 2
    assert "expected --event, as there are several classes, got order, Order" in both.stderr
    one = invoke("export", tmp_path / "q", "--to", tmp_path / "a.csv", "--event", "order")
    assert one.exit_code == 0
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == f"{FIRST},A,1.5"
