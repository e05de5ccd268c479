"""`wire-dump` on Java's queues and captured sessions, and on what is missing, cut off or no dump.

The queues are unpacked from the golden archives; their manifests say how many documents there are
and where the last one ends. The streams are the recorded documents of one direction, joined.
"""

import errno
import io
import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.console.exitcodes import DAMAGED, USAGE
from cqrepl.dump import Document, read_documents
from cqrepl.dump.documentreader import BEGINNING_BYTES, BODY_MAX
from tests.support.goldens import NAMES, manifest, unpack
from wire.header import META_DATA

VECTORS = Path(__file__).parents[2] / "vectors"
POSITION = re.compile(r"^# position: (\d+), header: (0x[0-9a-f]{8}) (.*)$", re.MULTILINE)
ONE = bytes.fromhex("04000000c161a101")
ONE_TEXT = "# position: 0, header: 0x00000004 data, 4 bytes\n--- !!data #binary\na: 1\n"

Json = dict[str, Any]


def session(name: str, direction: str) -> tuple[bytes, list[Json]]:
    entries = json.loads((VECTORS / "network" / f"{name}.json").read_text())
    chosen = [entry for entry in entries if entry["dir"] == direction and entry["conn"] == 1]
    return bytes.fromhex("".join(entry["hex"] for entry in chosen)), chosen


def dump(*arguments: str | Path, stdin: bytes = b"") -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def complaint(result: Result, path: str | Path) -> str:
    """The one line on standard error, without its beginning."""
    begin = f"wire-dump: {path}: "
    assert result.stderr.startswith(begin)
    assert result.stderr.count("\n") == 1
    return result.stderr[len(begin) : -1]


@pytest.mark.parametrize("name", NAMES)
def test_queue_files_are_shown_to_their_last_document(name: str, tmp_path: Path) -> None:
    queue = unpack(name, tmp_path)
    for file in manifest(name).files:
        result = dump(queue / file["file"])
        assert (result.exit_code, result.stderr) == (0, "")
        lines = POSITION.findall(result.stdout)
        ready = [kind for _, word, kind in lines if kind.startswith(("data", "meta-data"))]
        assert len(ready) == file["dataDocuments"] + file["metaDocuments"]
        end = [line for line in lines if int(line[0]) == file["endPosition"]]
        assert [word for _, word, _ in end] == [f"0x{file['endHeader']}"]


@pytest.mark.parametrize("name", [name for name in NAMES if manifest(name).has_metadata])
def test_table_stores_are_shown(name: str, tmp_path: Path) -> None:
    result = dump(unpack(name, tmp_path) / "metadata.cq4t")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\nheader: !STStore {\n" in result.stdout
    assert "\nlisting.highestCycle: " in result.stdout
    assert result.stdout.endswith("header: 0x00000000 nothing here yet\n")


def test_fresh_queue_is_readable(tmp_path: Path) -> None:
    queue = unpack("fast_daily_basic", tmp_path)
    text = dump(queue / "20240305F.cq4").stdout
    assert text.startswith(
        "# position: 0, header: 0x400000c1 meta-data, 193 bytes\n"
        "--- !!meta-data #binary\n"
        "header: !SCQStore {\n"
    )
    assert (
        "# position: 200, header: 0x40008024 meta-data, 32804 bytes\n"
        "--- !!meta-data #binary\n"
        "index2index: [\n"
        "  # length: 4096, used: 1\n"
        "  33008,\n"
        "  # 4095 more, all 0\n"
        "]\n"
    ) in text
    assert (
        "# position: 65808, header: 0x00000005 data, 5 bytes, index 0x4d4b00000000\n"
        "--- !!data\nhello\n"
    ) in text
    assert "# position: 65836, header: 0x00000001 data, 1 byte, index 0x4d4b00000003\n" in text


def test_end_of_file_word_ends_the_dump(tmp_path: Path) -> None:
    text = dump(unpack("eof_in_last", tmp_path) / "20240305F.cq4").stdout
    assert text.endswith("header: 0xc0000000 end of file\n")


def test_name_of_a_file_is_of_no_interest(tmp_path: Path) -> None:
    store = unpack("fast_daily_basic", tmp_path) / "metadata.cq4t"
    named_otherwise = tmp_path / "stream.bin"
    named_otherwise.write_bytes(store.read_bytes())
    assert dump(store).stdout == dump(named_otherwise).stdout
    assert dump("-", stdin=store.read_bytes()).stdout == dump(store).stdout


@pytest.mark.parametrize("direction", ["source->sink", "sink->source"])
@pytest.mark.parametrize("name", ["connect", "back-copy", "twenty-acks", "cycles", "runs"])
def test_sessions_are_shown(name: str, direction: str, tmp_path: Path) -> None:
    data, entries = session(name, direction)
    capture = tmp_path / "capture"
    capture.write_bytes(data)
    result = dump(capture)
    assert (result.exit_code, result.stderr) == (0, "")
    kinds = [kind.split(",")[0] for _, _, kind in POSITION.findall(result.stdout)]
    assert kinds == [entry["kind"] for entry in entries]
    assert entries[0]["text"] in result.stdout


def test_nothing_is_no_error() -> None:
    result = dump("-", stdin=b"")
    assert (result.exit_code, result.output) == (0, "")


def test_empty_metadata_document_is_shown() -> None:
    text = dump("-", stdin=struct.pack("<I", META_DATA)).stdout
    assert text == "# position: 0, header: 0x40000000 meta-data, 0 bytes\n--- !!meta-data\n"


def test_each_of_several_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(ONE)
    result = dump(tmp_path / "one", "-", stdin=ONE)
    assert result.stdout == (
        f"==> {tmp_path}/one <==\n{ONE_TEXT}\n==> standard input <==\n{ONE_TEXT}"
    )


def test_missing_file_does_not_stop_the_others(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    result = dump(missing, "-", stdin=ONE)
    assert result.exit_code == USAGE
    assert complaint(result, missing) == "a file was expected, none is there"
    assert ONE_TEXT in result.stdout


def test_directory_is_refused(tmp_path: Path) -> None:
    result = dump(tmp_path)
    assert result.exit_code == USAGE
    assert complaint(result, tmp_path) == "a file was expected, a directory came"


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    result = dump(loop)
    assert result.exit_code == USAGE
    assert os.strerror(errno.ELOOP) in complaint(result, loop)


def test_name_with_control_characters_stays_on_one_line(tmp_path: Path) -> None:
    result = dump(tmp_path / "a\nb\x1b[2J")
    assert complaint(result, f"{tmp_path}/a\\x0Ab\\x1B[2J").startswith("a file was expected")


def test_call_without_files_is_refused() -> None:
    result = dump()
    assert result.exit_code == USAGE
    assert "Usage: " in result.stderr


def test_garbage_is_not_recognised() -> None:
    result = dump("-", stdin=b"GET / HTTP/1.1\r\n\r\n")
    assert (result.exit_code, result.stdout) == (DAMAGED, "")
    assert complaint(result, "standard input") == (
        "a queue file, table store or stream of documents was expected: "
        "542393671 bytes behind header 0x20544547 were expected, 14 came at position 0"
    )


@pytest.mark.parametrize("missing", range(1, len(ONE)))
def test_truncated_stream_is_shown_up_to_the_damage(missing: int) -> None:
    result = dump("-", stdin=ONE + ONE[:-missing])
    assert (result.exit_code, result.stdout) == (DAMAGED, ONE_TEXT)
    assert complaint(result, "standard input").endswith("came at position 8")


def test_truncated_store_is_shown_up_to_the_damage(tmp_path: Path) -> None:
    store = unpack("fast_daily_basic", tmp_path) / "20240305F.cq4"
    os.truncate(store, 65814)
    result = dump(store)
    assert result.exit_code == DAMAGED
    assert "# position: 33008, header: 0x4000801c" in result.stdout
    assert complaint(result, store) == (
        "5 bytes behind header 0x00000005 were expected, 2 came at position 65808"
    )


def test_store_that_ends_with_a_document_is_whole(tmp_path: Path) -> None:
    store = unpack("fast_daily_basic", tmp_path) / "20240305F.cq4"
    os.truncate(store, 193 + 4)
    result = dump(store)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("word", [0, 0x80000000, 0x80000004, 0xC0000000])
def test_headers_that_no_stream_has_are_damage(word: int) -> None:
    result = dump("-", stdin=ONE + struct.pack("<I", word) + bytes(8))
    assert (result.exit_code, result.stdout) == (DAMAGED, ONE_TEXT)
    assert complaint(result, "standard input") == (
        f"a complete document was expected, header 0x{word:08x} came at position 8"
    )


def test_document_a_writer_left_behind_is_shown(tmp_path: Path) -> None:
    text = dump(unpack("not_complete_header", tmp_path) / "20240305F.cq4").stdout
    assert "header: 0x80000020 not complete data, 32 bytes\n--- !!not-ready-data #binary\n" in text


def store_of(fields: bytes, *, type_name: bytes = b"SCQStore") -> bytes:
    """A store header with these fields, and one document right behind it."""
    prefix = b"\xb9\x06header\xb6" + bytes([len(type_name)]) + type_name
    body = prefix + b"\x80" + bytes([len(fields)]) + fields
    return struct.pack("<I", len(body) | META_DATA) + body + ONE + bytes(16)


def test_place_reserved_without_a_length_ends_a_store() -> None:
    store = store_of(b"\xc1a\xa1\x01")[: -len(ONE) - 16] + struct.pack("<I", 0x80000000)
    result = dump("-", stdin=store)
    assert result.exit_code == 0
    assert result.stdout.endswith("header: 0x80000000 not complete, length unknown\n")


def test_old_store_without_data_format_has_no_gaps() -> None:
    store = store_of(b"\xc2xy\xa1\x01")
    assert store.index(ONE) % 4
    result = dump("-", stdin=store)
    assert result.exit_code == 0
    assert result.stdout.count("\na: 1\n") == 1


@pytest.mark.parametrize(
    "store",
    [
        store_of(b"\xc1x\xa1\x01", type_name=b"Another"),
        store_of(b"\xc1x\xa1\x01").replace(b"header", b"Header"),
        store_of(b"\xc1x\x83"),
    ],
    ids=["type", "event", "fields"],
)
def test_what_only_resembles_a_store_is_a_stream(store: bytes) -> None:
    result = dump("-", stdin=store)
    assert result.exit_code == DAMAGED
    assert "header 0x00000000 came" in complaint(result, "standard input")


def test_very_long_body_is_shown_by_its_beginning() -> None:
    length = BODY_MAX + 1
    (document,) = read_documents(io.BytesIO(struct.pack("<I", length) + b"\x83" * length))
    assert isinstance(document, Document)
    assert len(document.body) == BEGINNING_BYTES
    assert document.text().endswith(f"# {length - BEGINNING_BYTES} more bytes, not shown\n")


def test_truncated_very_long_body_is_damage() -> None:
    length = BODY_MAX + 1
    result = dump("-", stdin=struct.pack("<I", length) + bytes(length - 1))
    assert complaint(result, "standard input").endswith(f"{length - 1} came at position 0")
