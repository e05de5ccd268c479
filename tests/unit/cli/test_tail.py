"""`cqrepl tail`: which excerpts it prints, and how."""

import json
from pathlib import Path

import pytest
from click.testing import Result

import wire
from cqrepl.queue import Queue, format_index, index_of
from cqrepl.queue.format.index import SEQUENCE_FIRST
from tests.support.goldens import unpack
from tests.support.invoke import Invoke
from tests.support.samples import NOON_MS, layout, noon_index

DAY_MS = 86_400_000
ORDER = {"order": {"id": 42, "px": 101.5, "time": 1_763_719_331_184}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two cycles with 12 and 3 lines of text."""
    with Queue.open(tmp_path / "lines", create=layout()) as queue:
        queue.append_many([b"line %d" % number for number in range(12)], now_ms=NOON_MS)
        queue.append_many([b"late %d" % number for number in range(3)], now_ms=NOON_MS + DAY_MS)
    return tmp_path / "lines"


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    """One excerpt of each kind: text, wire, bytes, nothing."""
    with Queue.open(tmp_path / "kinds", create=layout()) as queue:
        queue.append_many(
            ["grüße\t1".encode(), wire.encode(ORDER), b"\x00\xff", b""], now_ms=NOON_MS
        )
    return tmp_path / "kinds"


def texts(result: Result) -> list[str]:
    """The text behind the index of each line."""
    assert result.exit_code == 0, result.stderr
    return [line.split("  ", 1)[1] for line in result.stdout.splitlines()]


def test_the_last_ten(invoke: Invoke, path: Path) -> None:
    expected = [f"line {number}" for number in range(5, 12)] + [f"late {n}" for n in range(3)]
    assert texts(invoke("tail", path)) == expected
    assert texts(invoke("tail", path, "-n", 4)) == expected[-4:]
    assert texts(invoke("tail", path, "-n", 0)) == []
    assert len(texts(invoke("tail", path, "-n", 100))) == 15


def test_an_empty_queue(invoke: Invoke, tmp_path: Path) -> None:
    Queue.open(tmp_path / "q", create=layout()).close()
    for options in ([], ["--reverse"], ["--from", "first"], ["--from", "last"], ["-n", 0]):
        assert texts(invoke("tail", tmp_path / "q", *options)) == []


def test_from_and_to(invoke: Invoke, path: Path) -> None:
    first = index_of(layout().roll_cycle.cycle_at(NOON_MS, 0), SEQUENCE_FIRST, 32)
    every = texts(invoke("tail", path, "--from", "first"))
    assert len(every) == 15
    for start, expected in (
        (format_index(first + 3), every[3:]),
        (str(first + 3), every[3:]),
        ("last", every[-1:]),
        ("-4", every[-4:]),
        ("0x0", every),
    ):
        assert texts(invoke("tail", path, "--from", start)) == expected
    assert texts(invoke("tail", path, "--to", hex(first + 1))) == every[:2]
    assert texts(invoke("tail", path, "--from", hex(first + 1), "--to", "-3")) == every[1:-2]
    assert texts(invoke("tail", path, "--from", "first", "--max", 2)) == every[:2]
    for options in ([], ["--from", "first"], ["--reverse"]):
        assert texts(invoke("tail", path, "--to", "first", *options)) == every[:1]


def test_reverse(invoke: Invoke, path: Path) -> None:
    every = texts(invoke("tail", path, "--from", "first"))
    assert texts(invoke("tail", path, "--reverse")) == every[::-1]
    assert texts(invoke("tail", path, "--reverse", "-n", 5)) == every[:-6:-1]
    assert texts(invoke("tail", path, "--reverse", "--max", 2)) == every[:-3:-1]
    assert texts(invoke("tail", path, "--reverse", "--from", "-5", "--to", "-3")) == [
        *every[-3:-6:-1]
    ]


def test_grep_and_exclude(invoke: Invoke, path: Path) -> None:
    assert texts(invoke("tail", path, "--grep", "1")) == ["line 1", "line 10", "line 11", "late 1"]
    assert texts(invoke("tail", path, "--grep", "1", "--exclude", "^line")) == ["late 1"]
    assert texts(invoke("tail", path, "--grep", "1", "--grep", "0")) == ["line 10"]


def test_named_goes_on_where_it_stopped(invoke: Invoke, path: Path) -> None:
    assert texts(invoke("tail", path, "--named", "me", "--max", 13))[-1] == "late 0"
    assert texts(invoke("tail", path, "--named", "me")) == ["late 1", "late 2"]
    assert texts(invoke("tail", path, "--named", "me")) == []
    with Queue.open(path) as queue:
        queue.append(b"new", now_ms=NOON_MS + DAY_MS)
    assert texts(invoke("tail", path, "--named", "me")) == ["new"]


def test_reading_changes_nothing(invoke: Invoke, path: Path) -> None:
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    for options in ([], ["--reverse"], ["--from", "-3"], ["--json"]):
        invoke("tail", path, *options)
    assert before == {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}


def test_kinds_of_payload(invoke: Invoke, kinds: Path) -> None:
    flow = "order {id: 42, px: 101.5, time: 1763719331184}"
    assert texts(invoke("tail", kinds)) == ["grüße\t1", flow, "00ff", ""]
    hexes = [b"gr\xc3\xbc\xc3\x9fe\t1".hex(), wire.encode(ORDER).hex(), "00ff", "8f"]
    assert texts(invoke("tail", kinds, "--as", "hex")) == hexes
    assert texts(invoke("tail", kinds, "--as", "text"))[2:] == ["\\x00\\xff", ""]
    assert [json.loads(text) for text in texts(invoke("tail", kinds, "--as", "json"))] == [
        "grüße\t1", ORDER, {"!!binary": "AP8="}, ""
    ]  # fmt: skip
    yaml = invoke("tail", kinds, "--as", "yaml").stdout
    assert "# 0x4d4b00000001\n--- !!data #binary\norder: {\n  id: 42,\n" in yaml


def test_a_document_that_is_one_bare_value(invoke: Invoke, tmp_path: Path) -> None:
    bodies = {
        "e3696431": ("id1", "id1"),
        "e5636166c3a9": ("café", "café"),
        "e87820eda0bdedb880": ("x \U0001f600", "x \U0001f600"),
        "a53905": ("1337", 1337),
        "b1": ("true", True),
        "c178e179ba0ce36e756d": ("x: y, 12: num", {"x": "y", "12": "num"}),
        "c178e179c0e165": ('x: y, "": e', {"x": "y", "": "e"}),
        "c178e179c178a105": ("[{x: y}, {x: 5}]", [{"x": "y"}, {"x": 5}]),
        "c2746cbc03696e74": ("tl !type int", {"tl": {"!type": "int"}}),
    }
    with Queue.open(tmp_path / "q", create=layout()) as queue:
        queue.append_many([bytes.fromhex(body) for body in bodies], now_ms=NOON_MS)
    lines = [line for line, _ in bodies.values()]
    assert texts(invoke("tail", tmp_path / "q")) == lines
    assert texts(invoke("tail", tmp_path / "q", "--grep", "^id1$")) == ["id1"]
    assert invoke("tail", tmp_path / "q", "--format", "{data}").stdout.splitlines() == lines
    found = invoke("tail", tmp_path / "q", "--json").stdout.splitlines()
    shown = [(line["as"], line["data"]) for line in map(json.loads, found)]
    assert shown == [("wire", value) for _, value in bodies.values()]


def test_raw_is_nothing_but_the_bytes(invoke: Invoke, kinds: Path) -> None:
    result = invoke("tail", kinds, "--as", "raw")
    assert result.stdout_bytes == "grüße\t1".encode() + wire.encode(ORDER) + b"\x00\xff\x8f"


def test_json_lines(invoke: Invoke, kinds: Path) -> None:
    lines = [json.loads(line) for line in invoke("tail", kinds, "--json").stdout.splitlines()]
    assert [line["as"] for line in lines] == ["text", "wire", "hex", "text"]
    assert lines[1]["data"] == ORDER
    assert lines[1]["index"] == "0x4d4b00000001"
    assert all(line["v"] == 1 for line in lines)


def test_json_with_hex_is_exactly_this(invoke: Invoke, kinds: Path) -> None:
    result = invoke("tail", kinds, "--json", "--as", "hex", "--from", "-2", "--max", 1)
    assert result.stdout == '{"v":1,"index":"0x4d4b00000002","bytes":2,"as":"hex","data":"00ff"}\n'


def test_json_tells_text_and_bytes_apart(invoke: Invoke, tmp_path: Path) -> None:
    alike = [b"00ff", b"\x00\xff", b"\\x00", b"\x00", b"\n"]
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_many(alike)
    for form, kinds in (
        ([], "text hex text hex text"),
        (["--as", "text"], "text hex text text text"),
    ):
        found = invoke("tail", tmp_path / "q", "--json", *form).stdout.splitlines()
        lines = [json.loads(line) for line in found]
        assert [line["as"] for line in lines] == kinds.split()
        assert alike == [
            line["data"].encode() if line["as"] == "text" else bytes.fromhex(line["data"])
            for line in lines
        ]
    values = texts(invoke("tail", tmp_path / "q", "--as", "json"))
    assert len(set(values)) == len(alike)


def test_times(invoke: Invoke, kinds: Path) -> None:
    expected = "2025-11-21T10:02:11.184Z"
    times = [text.split("  ")[0] for text in texts(invoke("tail", kinds, "--time", "order.time"))]
    assert times == ["-", expected, "-", "-"]
    line = invoke("tail", kinds, "--time", "order.time", "--json", "--from", "-3", "--max", 1)
    assert json.loads(line.stdout)["time"] == expected
    found = invoke("tail", kinds, "--time", "order.time", "--from", "2025-11-21T10:00Z")
    assert texts(found)[0].startswith(expected)
    assert texts(invoke("tail", kinds, "--time", "order.time", "--from", "2026-01-01")) == []


def test_a_bad_tick_has_no_time_and_the_others_are_found(invoke: Invoke, tmp_path: Path) -> None:
    """The bad time is a number that is none, a text, nothing, or a time that no calendar has."""
    first = 1_763_719_331_000
    odd: list[object] = [
        *(float("nan"), float("inf"), float("-inf"), None, "soon", "", True, [1], {"a": 1}),
        *(0, -1, 10**30, 1e300, -1e300, wire.Int64(-(1 << 63)), b"\x00"),
    ]
    for number, value in enumerate(odd):
        ticks = [wire.encode({"t": first + n, "n": n}) for n in range(600)]
        ticks[256] = wire.encode({"t": value})
        with Queue.open(tmp_path / f"{number}", create=layout()) as queue:
            queue.append_many(ticks, now_ms=NOON_MS)
        shown = texts(invoke("tail", tmp_path / f"{number}", "--time", "t", "--from", noon_index(),
                             "--to", noon_index(sequence=299)))  # fmt: skip
        assert len(shown) == 300
        if not isinstance(value, int | float) or value - value != 0 or isinstance(value, bool):
            assert shown[256].startswith("-  "), value
        for n in (255, 257, 300):
            moment = f"2025-11-21T10:02:11.{n}Z"
            (line,) = texts(
                invoke("tail", tmp_path / f"{number}", "--time", "t", "--from", moment, "-n", 1)
            )
            assert line == f"{moment}  t: {first + n}, n: {n}"
    numbers = [b'{"t":NaN}', b'{"t":-Infinity}', b'{"t":1e999}', b'{"t":1%s}' % (b"0" * 400)]
    with Queue.open(tmp_path / "json", create=layout()) as queue:
        queue.append_many(numbers, now_ms=NOON_MS)
    shown = texts(invoke("tail", tmp_path / "json", "--time", "t"))
    assert [line.split("  ")[0] for line in shown[:3]] == ["-", "-", "-"]


def test_format(invoke: Invoke, path: Path) -> None:
    result = invoke(
        "tail", path, "-n", 1, "--format", r"{index}\t{cycle}/{sequence} {bytes} {{{data}}}"
    )
    assert result.stdout == "0x4d4c00000002\t19788/2 6 {late 2}\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-n", 2], ["line 3", "line 4"]),
        (["-n", 9, "--max", 1], ["line 3"]),
        (["-n", 0], []),
        (["-n", 2, "--reverse"], ["late 2", "late 1"]),
    ],
)
def test_so_many_from_a_place(
    invoke: Invoke, path: Path, options: list[object], expected: list[str]
) -> None:
    result = invoke("tail", path, "--from", hex(noon_index(sequence=3)), *options)
    assert [line.split("  ")[1] for line in result.stdout.splitlines()] == expected


WRONG = [
    (["--format", "{nonsense}"], "expected {index} {cycle} {sequence} {bytes} {time} {data}"),
    (["--format", "{"], "--format"),
    (["--format", "{time}"], "{time} needs --time FIELD"),
    (["--from", "0xzz"], "an index such as 0x451600000004"),
    (["--from", "2026-13-45"], "a time such as 2026-11-21T10:00Z expected"),
    (["--from", "2026-11-21"], "needs --time FIELD"),
    (["--grep", "("], "a regular expression expected"),
    (["--reverse", "-f"], "--reverse and --follow do not go together"),
    (["--named", "n", "-n", 1], "--named and -n do not go together"),
    (["--named", ""], "expected a name of 1 to 256 bytes"),
    *(
        (["--from", first, "--to", last, *more], "--from lies behind --to")
        for first, last in [("last", "first"), ("-2", "-3"), ("0x4d4b00000002", "0x4d4b00000001")]
        for more in ([], ["--reverse"], ["-f"])
    ),
    (
        ["--time", "t", "--from", "2026-11-21T10:00Z", "--to", "2026-11-21T09:59Z"],
        "--from lies behind --to",
    ),
    (["--as", "raw", "--json"], "--as raw goes with neither"),
    (["--from", "0x4d4b00000100"], "expected index 0x4d4b00000100"),
    (["--max", 0], "0 is not in the range"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_what_is_wrong_is_said(
    invoke: Invoke, path: Path, options: list[object], said: str
) -> None:
    result = invoke("tail", path, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("first", "last"), [("last", "last"), ("-9", "last"), ("0x7d4b00000000", "last"), ("-9", "-9")]
)
def test_a_range_that_only_this_queue_holds_nothing_of_is_no_mistake(
    invoke: Invoke, tmp_path: Path, first: str, last: str
) -> None:
    Queue.open(tmp_path / "empty", create=layout()).close()
    assert invoke("tail", tmp_path / "empty", "--from", first, "--to", last).exit_code == 0


def test_a_cycle_that_a_dead_writer_left_open(invoke: Invoke, tmp_path: Path) -> None:
    path = unpack("missing_eof_middle", tmp_path)
    result = invoke("tail", path, "--from", "first")
    assert result.exit_code == 4
    assert "has no end-of-file mark and no writer" in result.stderr
    repaired = texts(invoke("tail", path, "--from", "first", "--repair"))
    with Queue.open(path) as queue:
        assert len(repaired) == queue.count() > len(result.stdout.splitlines())
