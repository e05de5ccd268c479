"""The text of documents equals Java's: for every golden vector, and for what they leave out.

`renderings.jsonl` beside this file holds further documents with the text that `WireDumper` of
chronicle-wire 2.27ea1 (Java 17) gave for them: each was once a difference, or a branch that no
golden vector reaches.
"""

import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from cqrepl.dump.plainform import plain_texts
from wire import WireError
from wire.text.parse_documents import encode_text
from wire.text.print_documents import document_text, dump_text, hex_dump
from wire.text.print_items import NESTING_MAX
from wire.text.terminal import terminal_safe

VECTORS = Path(__file__).parents[2] / "vectors" / "wire"
RENDERINGS = Path(__file__).parent / "renderings.jsonl"
FILES = sorted(VECTORS.glob("*.jsonl"))
# the manifest: a hex dump is as good; and digits that the shortest form would not have
EXEMPT = ("text_optional", "jdk17_digits")

Vector = dict[str, Any]


def vectors(file: Path) -> list[Vector]:
    lines = file.read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def is_as_expected(vector: Vector) -> bool:
    text = dump_text(bytes.fromhex(vector["hex"]), padding=vector.get("padding", False))
    if any(vector.get(key) for key in EXEMPT):
        return True
    if "text" in vector:
        return bool(text == vector["text"])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return bool((len(text), digest) == (vector["text_len"], vector["text_sha256"]))


def document(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def block(content: bytes) -> bytes:
    return b"\x82" + struct.pack("<I", len(content)) + content


@pytest.mark.parametrize("file", [*FILES, RENDERINGS], ids=lambda file: file.stem)
def test_every_vector_has_javas_text(file: Path) -> None:
    rendered = [vector for vector in vectors(file) if "text" in vector or "text_sha256" in vector]
    assert rendered
    assert [vector["name"] for vector in rendered if not is_as_expected(vector)] == []


def test_nesting_beyond_the_limit_is_dumped_as_hex() -> None:
    body = b"\xa1\x05"
    for _ in range(NESTING_MAX):
        body = block(body)
    assert "!!data #binary\n[" in dump_text(document(body))
    assert "!!data #binary\n00000000 " in dump_text(document(block(body)))


def test_keys_count_as_nesting() -> None:
    assert "\n00000000 " in dump_text(document(b"\xbd" * 5000))


def test_folded_array_gives_a_count_for_the_unused_zeros() -> None:
    array = b"\xc1a\x8d" + struct.pack("<qq6q", 6, 1, 7, 0, 8, 0, 0, 0)
    text = document_text(array, len(array), offset=4, fold_unused=True)
    assert text == (
        "--- !!data #binary\na: [\n  # length: 6, used: 1\n  7,\n  0,\n  8,\n  # 3 more, all 0\n]\n"
    )


def test_hex_dump_without_the_bytes_before_shows_the_second_line() -> None:
    dump = hex_dump(bytes(46), 2)
    assert dump.splitlines()[0].startswith("00000000       00")
    assert [line[:8] for line in dump.splitlines()] == ["00000000", "00000010", "00000020"]


def test_first_line_of_a_hex_dump_is_shown_though_it_is_the_header_again() -> None:
    """The text is that of Java. Found by fuzzing: four bytes stand in that line, and four in the
    header."""
    body = b"\x1b\0\0\0" + bytes(range(0x80, 0x97))
    dump = document_text(body, len(body), offset=12)
    assert dump.splitlines()[1].startswith("00000000" + " " * 38 + "1b 00 00 00")
    assert encode_text(dump) == b"\x1b\0\0\0" + body


def test_second_line_of_a_hex_dump_may_be_the_first_with_what_stands_before_the_header() -> None:
    row = b"\4\0\0\0\xc1a\xa1\1" + b"\x27\0\0\0" + b"\5\6\7\x08"
    data = row + row + bytes(range(1, 20))
    lines = dump_text(data).splitlines()[4:]
    assert [line[:8] for line in lines] == ["00000000", "........", "00000020", "00000030"]
    assert encode_text(dump_text(data)) == data
    assert "".join(plain_texts(io.BytesIO(data), padding=False)) == dump_text(data)
    moved = dump_text(data).replace("a: 1", "a: !int 1")
    with pytest.raises(WireError, match="a line was expected before those that are left out"):
        encode_text(moved)


def test_pairs_of_surrogates_are_escaped_one_by_one() -> None:
    pair = b"\xc1a\xe6\xed\xa0\xbd\xed\xb8\x80"
    assert dump_text(document(pair)) == '--- !!data #binary\na: "\\uD83D\\uDE00"\n'


def test_t19_control_characters_do_not_reach_a_terminal() -> None:
    assert terminal_safe("a\x1b[2J\nb\x7f\x9b") == "a\\x1B[2J\nb\\x7F\\x9B"


class Terminal(io.TextIOWrapper):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_module_escapes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from wire.__main__ import main

    screen = io.BytesIO()
    monkeypatch.setattr("sys.argv", ["wire"])
    monkeypatch.setattr("sys.stdout", Terminal(screen))
    text = document(b"x" * 40 + b"\x1b")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main() == 0
    assert screen.getvalue().endswith(b"x\\x1B\n")
