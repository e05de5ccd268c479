"""The options of `wire-dump`, on Java's queues and recorded streams, with good and bad input."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.goldens import READABLE, manifest, unpack
from wire.text.print_documents import dump_text, hex_dump

NOW_MS = 1_700_000_000_000

Json = dict[str, Any]


def dump(*arguments: str | Path | int, stdin: bytes = b"") -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def lines(*arguments: str | Path | int) -> list[Json]:
    result = dump("--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """33 excerpts with the indexes 0x4d4b00000000 to 0x4d4b00000020."""
    return unpack("fast_daily_basic", tmp_path) / "20240305F.cq4"


def refused(*arguments: str | Path | int) -> str:
    result = dump(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


# ---------------------------------------------------------------- indexes


@pytest.mark.parametrize("name", READABLE)
def test_excerpts_have_the_indexes_that_java_gives_them(name: str, tmp_path: Path) -> None:
    queue = unpack(name, tmp_path)
    files = sorted(queue.glob("*.cq4"))
    found = [line for file in files for line in lines(file) if "index" in line]
    expected = manifest(name).excerpts
    assert [line["index"] for line in found] == [f"0x{int(e['index'], 16):x}" for e in expected]
    assert [line["bytes"] for line in found] == [e["length"] for e in expected]


def test_without_its_name_a_file_has_sequences_only(store: Path) -> None:
    other = store.rename(store.with_name("other.bin"))
    assert ", sequence 32\n" in dump(other).stdout
    assert [line["sequence"] for line in lines(other) if "sequence" in line] == list(range(33))
    assert "index" not in lines(other)[4]


def test_name_alone_tells_the_cycle_without_a_table_store(store: Path) -> None:
    (store.parent / "metadata.cq4t").unlink()
    assert ", index 0x4d4b00000000\n" in dump(store).stdout


# ---------------------------------------------------------------- selection


def test_range_of_indexes(store: Path) -> None:
    found = lines("--from", "0x4d4b00000003", "--to", "0x4d4b00000006", store)
    assert [line["sequence"] for line in found if "sequence" in line] == [3, 4, 5, 6]
    assert [line["sequence"] for line in lines("--from", "4d4b00000020", store)[:1]] == [32]
    assert lines("--to", "0x4d4a00000000", store)[-1]["kind"] == "meta-data"
    assert lines("--from", "0x4d4c00000000", store) == []


def test_range_begins_in_the_middle_of_a_long_file(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=QueueLayout.of(by_name("TEST4_DAILY"))) as q:
        appender = q.appender()
        appender.append([b"%d" % number for number in range(3000)], NOW_MS)
    (file,) = (tmp_path / "q").glob("*.cq4")
    (line,) = (line for line in lines(file) if line.get("sequence") == 2345)
    assert lines("--from", line["index"], "--max", 1, file) == [line]


def test_a_range_given_backwards_is_refused(store: Path) -> None:
    result = dump("--from", "0x4d4b00000006", "--to", "0x4d4b00000003", store)
    assert result.exit_code == 2
    assert "--from 0x4d4b00000006 lies behind --to 0x4d4b00000003" in result.stderr


def test_range_needs_a_name_that_tells_the_cycle(store: Path) -> None:
    result = dump("--from", "0x4d4b00000003", "-", stdin=store.read_bytes())
    assert result.exit_code == 2
    assert "a name of a store file was expected" in result.stderr


def test_beginning_at_a_position(store: Path) -> None:
    assert lines("--at", 65808, "--max", 1, store)[0]["sequence"] == 0
    assert lines("--at", 65808, store) == [
        line for line in lines(store) if line["position"] >= 65808
    ]
    result = dump("--at", 65809, store)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("no document begins at position 65809, the next at 65820\n")


def test_only_what_matches(store: Path) -> None:
    assert [line["text"] for line in lines("--grep", "^hello$", store)] == ["hello\n"]
    assert lines("--grep", "no such text", store) == []


def test_no_more_than_wanted(store: Path) -> None:
    assert len(lines("--max", 7, store)) == 7
    assert len(lines("--max", 40, store, store)) == 40
    assert {line["file"] for line in lines("--max", 40, store, store)} == {str(store)}


def test_index_pages_can_be_left_out(store: Path) -> None:
    whole, without = lines(store), lines("--no-index-pages", store)
    left_out = [line["text"] for line in whole if line not in without]
    assert [text.partition(":")[0] for text in left_out] == ["index2index", "index"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "zz"],
        ["--to", "-1"],
        ["--at", "-1"],
        ["--max", "0"],
        ["--grep", "("],
        ["--plain", "--json"],
        ["--plain", "--max", "1"],
        ["--plain", "--pcap"],
        ["--record", "x"],
        ["--follow", "y"],
        ["--dissector"],
        ["--proxy", "127.0.0.1:1=127.0.0.1:2"],
        ["--follow", "--at", "1"],
    ],
)
def test_calls_that_make_no_sense_are_refused(arguments: list[str], store: Path) -> None:
    assert "Error: " in refused(*arguments, store)


@pytest.mark.parametrize("addresses", ["127.0.0.1:1", "127.0.0.1=127.0.0.1:2", "a:1=b:x", ""])
def test_addresses_of_a_proxy_are_checked(addresses: str) -> None:
    assert "HOST:PORT expected" in refused("--proxy", addresses)


def test_capture_is_demanded(store: Path) -> None:
    result = dump("--pcap", store)
    assert result.exit_code == 4
    assert "a pcap or pcapng capture was expected, magic c1000040 came" in result.stderr


# ---------------------------------------------------------------- forms


def test_every_line_of_json_has_its_version_and_place(store: Path) -> None:
    first, *_, last = lines(store)
    assert list(first) == ["v", "position", "header", "kind", "bytes", "text"]
    assert first["text"].startswith("header: !SCQStore {\n")
    assert last == {
        "v": 1,
        "position": 68164,
        "header": "0x00000000",
        "kind": "nothing here yet",
    }
    excerpt = lines("--hex", "--at", 65808, "--max", 1, store)[0]
    assert (excerpt["text"], excerpt["hex"]) == ("hello\n", b"hello".hex())


def test_bytes_are_shown_as_well(store: Path) -> None:
    text = dump("--hex", "--at", 65808, "--max", 1, store).stdout
    assert text.endswith("hello\n" + hex_dump(b"\5\0\0\0hello", 65808))


@pytest.mark.parametrize("name", ["methods", "metadata_docs", "eof_in_last"])
def test_plain_dump_is_that_of_the_whole_bytes(name: str, tmp_path: Path) -> None:
    for file in unpack(name, tmp_path).glob("*.cq4*"):
        assert dump("--plain", file).stdout == dump_text(file.read_bytes(), padding=True)


def test_plain_dump_of_a_stream_has_no_gaps() -> None:
    stream = bytes.fromhex("03000000c16105") * 3
    assert dump("--plain", "-", stdin=stream).stdout == dump_text(stream)
    cut = dump("--plain", "-", stdin=stream[:-1])
    assert (cut.exit_code, cut.stdout) == (4, dump_text(stream[:-1]))


# ---------------------------------------------------------------- growing files


def test_following_shows_what_dumping_shows(store: Path) -> None:
    expected = lines(store)[:-1]
    assert lines("--follow", "--max", len(expected), store) == expected
    of_directory = lines("--follow", "--max", len(expected), store.parent)
    assert of_directory == expected


def test_following_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stream").write_bytes(bytes.fromhex("03000000c16105"))
    result = dump("--follow", tmp_path / "stream")
    assert (result.exit_code, result.stdout) == (4, "")
    assert dump("--follow", tmp_path / "missing").exit_code == 2


def test_followed_file_that_was_cut_is_damaged(store: Path) -> None:
    os.truncate(store, 65814)
    result = dump("--follow", store)
    assert result.exit_code == 4
    assert result.stderr.endswith("were expected, 2 came at position 65808\n")
