"""The options of `wire-dump`, on Java's queues and recorded streams, with good and bad input."""

import json
import os
import random
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.goldens import NAMES, manifest, unpack
from wire.text.print_documents import dump_text, hex_dump

COMMAND = [sys.executable, "-c", "from cqrepl.cli.wiredump import main; main()"]
NOW_MS = 1_700_000_000_000
WITH_INDEXES = [name for name in NAMES if name != "weekly"]

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


@pytest.mark.parametrize("name", WITH_INDEXES)
def test_excerpts_have_the_indexes_that_java_gives_them(name: str, tmp_path: Path) -> None:
    queue = unpack(name, tmp_path)
    files = sorted(queue.glob("*.cq4"))
    found = [line for file in files for line in lines(file) if "index" in line]
    expected = manifest(name)["excerpts"]
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


@pytest.mark.parametrize("form", ["raw", "text", "mixed"])
def test_quick_way_and_plain_way_agree(form: str, tmp_path: Path) -> None:
    """A long file is shown in large pieces; with an option that asks for nothing, one by one."""
    numbers = random.Random(form)

    def payload() -> bytes:
        if form == "text" or (form == "mixed" and numbers.random() < 0.5):
            return b"abc 123 " * numbers.randrange(1, 30)
        size = numbers.choice((1, 7, 100, 256, 256, 5000, 70_000 if numbers.random() < 0.1 else 3))
        data = numbers.randbytes(size)
        return data if numbers.random() < 0.9 else data[:1] + bytes(100) + b"\x83"

    with Queue.open_for_append(tmp_path / "q", create=QueueLayout.of(by_name("TEST4_DAILY"))) as q:
        appender = q.appender()
        for _ in range(20):
            appender.append([payload() for _ in range(50)], NOW_MS)
    (file,) = (tmp_path / "q").glob("*.cq4")
    quick = dump(file)
    assert quick.exit_code == 0
    assert quick.stdout == dump("--max", 1_000_000, file).stdout
    data = file.read_bytes()
    assert dump("--plain", file).stdout == dump_text(data, padding=True)


# ---------------------------------------------------------------- growing files


@contextmanager
def start(*arguments: str | Path) -> "Iterator[subprocess.Popen[str]]":
    """A running command, killed at the end of the block if it still runs."""
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: "subprocess.Popen[str]", pattern: str) -> str:
    assert process.stdout is not None
    text = ""
    while not re.search(pattern, text):
        line = process.stdout.readline()
        assert line, f"ended without {pattern}: {text}"
        text += line
    return text


def test_directory_is_followed_across_cycles(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("TEST_SECONDLY"))) as queue:
        appender = queue.appender()
        appender.append([b"first"], NOW_MS)
        with start("--follow", "--no-index-pages", path) as process:
            assert "index 0x" in read_until(process, "\nfirst\n")
            appender.append([b"second"], NOW_MS)
            read_until(process, "^second\n|\nsecond\n")
            appender.append([b"third"], NOW_MS + 5000)
            text = read_until(process, "\nthird\n")
            assert "header: 0xc0000000 end of file\n" in text
            process.send_signal(2)
            assert process.wait(20) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""


def test_file_that_a_dead_writer_left_open_is_left_behind(tmp_path: Path) -> None:
    queue = unpack("missing_eof_middle", tmp_path)
    indexes = [
        f"0x{int(each['index'], 16):x}" for each in manifest("missing_eof_middle")["excerpts"]
    ]
    with start("--follow", "--json", queue) as process:
        text = read_until(process, f'"index":"{indexes[-1]}"')
    assert re.findall(r'"index":"(\w+)"', text) == indexes


def test_file_is_followed_to_its_end_mark(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue.open_for_append(path, create=QueueLayout.of(by_name("TEST_SECONDLY"))) as queue:
        appender = queue.appender()
        appender.append([b"first"], NOW_MS)
        (file,) = path.glob("*.cq4")
        with start("--follow", "--json", file) as process:
            read_until(process, "first")
            appender.append([b"second"], NOW_MS + 5000)
            assert "end of file" in read_until(process, "end of file")
            assert process.wait(20) == 0


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


# ---------------------------------------------------------------- limits


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of 150 MB, with one document of 100 MB, in an address space of 256 MB."""
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.write(struct.pack("<I", 100 << 20))
        file.truncate(4 + (100 << 20))
        file.seek(0, os.SEEK_END)
        for _ in range(50):
            file.write((struct.pack("<I", 1020) + b"\x83" * 1020) * 1024)
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28)); {COMMAND[2]}"
    )
    for option in ([], ["--json"]):
        with open(os.devnull, "wb") as nowhere:
            done = subprocess.run(
                [sys.executable, "-c", limited, *option, "--max", "9000", str(big)],
                stdout=nowhere,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_document_is_shown_before_the_next_one_has_come(store: Path) -> None:
    """Nothing is read to its end before something is shown: the input stays open here."""
    data = store.read_bytes()
    end = 4 + (int.from_bytes(data[:4], "little") & 0x3FFFFFFF)
    with subprocess.Popen([*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shown:
        assert shown.stdin is not None
        assert shown.stdout is not None
        shown.stdin.write(data[: end + 100])  # and a part of the second one
        shown.stdin.flush()
        first = dump(store).stdout.partition("# position: ")[2].partition("# position: ")[0]
        wanted = f"# position: {first}".encode()
        assert shown.stdout.read(len(wanted)) == wanted
        shown.kill()


def test_a_file_is_shown_without_loading_anything_slow(store: Path) -> None:
    """Most of the time until the first line is that for loading modules."""
    tail = "finally: import sys; print(*sys.modules, file=sys.stderr)"
    program = f"try: {COMMAND[2]}\n{tail}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    loaded = set(done.stderr.split())
    assert {"cqrepl.cli.wiredump", "cqrepl.dump.quickform"} <= loaded
    slow = {"trio", "asyncio", "ssl", "construct", "ruamel", "numpy", "pyarrow", "wire.grammar"}
    assert not loaded & (slow | {"cqrepl.net", "cqrepl.protocol", "cqrepl.spark"})
