"""`cqrepl schema`, and conditions, fields and forms of `cqrepl tail`."""

import json
from pathlib import Path

import pytest

import wire
from cqrepl.queue import Queue
from cqrepl.typed.schemafile import KEPT_NAME
from tests.support.invoke import Invoke, invoke
from tests.support.samples import NOON_MS, noon_index
from tests.unit.queue.test_typed_documents import Leg, Order, Placed

__all__ = ["invoke"]
FIRST = noon_index()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    messages = [Order("A", 101.5, 1, legs=[Leg("x", 2)]), Order("B", 99), {"sym": "C"}]
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents([*messages, Placed("D", 1.5)], now_ms=NOON_MS)
        queue.append_many([b"text", b'{"sym": "E", "px": 500}'], now_ms=NOON_MS)
    return tmp_path / "q"


def test_tail_shows_what_fulfils_a_condition(invoke: Invoke, path: Path) -> None:
    result = invoke("tail", path, "--where", "px > 100", "--fields", "sym,px")
    assert result.exit_code == 0
    shown = f"{FIRST:#x}  sym: A, px: 101.5\n{FIRST + 5:#x}  sym: E, px: 500\n"
    assert result.stdout == shown
    assert result.stderr == "cqrepl tail: 2 documents without 'px'\n"
    counted = invoke("tail", path, "--where", "px > 100", "--count", "--json")
    assert json.loads(counted.stdout) == {"v": 1, "count": 2}
    lines = invoke("tail", path, "--where", "px > 100", "--fields", "sym", "--json").stdout
    assert [json.loads(line)["data"] for line in lines.splitlines()] == [{"sym": "A"}, {"sym": "E"}]
    assert invoke("tail", path, "--count").stdout == "6\n"
    assert invoke("tail", path, "--where", "px > 100", "--reverse", "-n", 1).exit_code == 0


def test_tail_shows_rows_of_fields(invoke: Invoke, path: Path) -> None:
    rows = invoke("tail", path, "--where", "px >= 99", "--fields", "sym,px,legs", "--as", "csv")
    assert rows.stdout.splitlines() == [
        "index,sym,px,legs",
        f'{FIRST:#x},A,101.5,"[{{""sym"": ""x"", ""ratio"": 2}}]"',
        f"{FIRST + 1:#x},B,99,[]",
        f"{FIRST + 5:#x},E,500,",
    ]
    table = invoke(
        "tail", path, "--from", "first", "--max", 2, "--fields", "sym,qty", "--as", "table"
    )
    assert table.stdout.splitlines() == [
        "index           sym  qty",
        f"{FIRST:#x}  A    1",
        f"{FIRST + 1:#x}  B    0",
    ]
    found = invoke("tail", path, "--where", "order.px > 1 or sym == 'C'", "--as", "csv")
    assert found.stdout.splitlines()[0] == "index,sym"
    assert "1 document with fields that are no columns" in found.stderr


def test_the_schema_of_a_queue_names_the_columns(invoke: Invoke, path: Path) -> None:
    schema = {"properties": {"px": {"type": "number"}, "sym": {"type": "string"}}}
    (path / KEPT_NAME).write_text(json.dumps(schema))
    assert invoke("tail", path, "-n", 1, "--as", "csv").stdout.splitlines()[0] == "index,px,sym"
    (path / KEPT_NAME).write_text("{")
    broken = invoke("tail", path, "-n", 1, "--as", "csv")
    assert broken.exit_code == 2
    assert broken.stderr.startswith(f"cqrepl tail: {path / KEPT_NAME}: ")


def test_what_cannot_be_read_is_counted_and_named(invoke: Invoke, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.append_many([b"\xc3a\xa7", b"\xff\xff", wire.encode({"px": 200})], now_ms=NOON_MS)
    result = invoke("tail", path, "--where", "px > 150", "--count")
    assert (result.exit_code, result.stdout) == (4, "2\n")
    named = f"2 excerpts that cannot be read as documents, the first at {FIRST + 6:#x}"
    assert named in result.stderr


def test_times_are_shown_in_a_zone(invoke: Invoke, path: Path) -> None:
    with Queue.open(path) as queue:
        queue.append_document({"at": NOON_MS}, now_ms=NOON_MS)
    zone = ("--time", "at", "--tz", "Europe/Paris")
    line = invoke("tail", path, *zone, "--where", "at == 2024-03-05T13:00").stdout
    assert line.split("  ")[1] == "2024-03-05T13:00:00.000+01:00"
    assert invoke("tail", path, "--time", "at", "--where", "at == 2024-03-05T13:00").stdout == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--where", "px >"), "--where: a field, a number"),
        (("--fields", "a,,b"), "names of fields such as symbol,order.px expected"),
        (("--tz", "Nowhere/At"), "a zone as UTC, local or Europe/Paris expected"),
        (("--as", "csv", "--json"), "--as csv goes with neither"),
        (("--as", "hex", "--fields", "a"), "--as hex and --fields do not go together"),
        (("--count", "-f"), "--count and --follow do not go together"),
    ],
)
def test_options_that_do_not_fit(
    invoke: Invoke, path: Path, options: tuple[str, ...], reason: str
) -> None:
    result = invoke("tail", path, *options)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_schema_prints_what_a_sample_suggests(invoke: Invoke, path: Path, tmp_path: Path) -> None:
    source = invoke("schema", path)
    assert source.exit_code == 0
    assert 'wire_event: ClassVar[str] = "order"' in source.stdout
    assert "px: float | None = None  # 75 %" in source.stdout
    assert source.stderr == "cqrepl schema: from 5 documents, 1 excerpt without fields\n"
    (path / KEPT_NAME).write_text(invoke("schema", path, "--as", "json").stdout)
    assert invoke("tail", path, "-n", 1).exit_code == 0
    assert "legs[].sym" in invoke("schema", path, "--as", "table").stdout
    with Queue.open(tmp_path / "empty", create="FAST_DAILY"):
        pass
    empty = invoke("schema", tmp_path / "empty")
    assert empty.exit_code == 2
    assert "expected documents with fields, got 0 excerpts" in empty.stderr
