"""Text of documents to bytes: the dump of every vector, hand-written text, and text with errors."""

import json
import struct
from pathlib import Path

import pytest

from wire import WireError, dump_text, dumps, encode_text, loads
from wire.text.print_items import NESTING_MAX

VECTORS = Path(__file__).parents[2] / "vectors" / "wire"
FILES = [*sorted(VECTORS.glob("*.jsonl")), Path(__file__).parent / "renderings.jsonl"]
LENGTH_MAX = 20_000
# texts that are not the dump of what they say. Every other vector's is, also of damaged bytes:
UNSTABLE = {
    # `!int 5` is the number in 4 bytes, as old releases print it; here a type name stood before it
    "typed b603696e74a105": "type name int",
    "typePrefix int": "type name int",
    "legacy.typePrefix int": "type name int",
    "typed key, known": "type name int",
    # the dump shows another double than the one that there is, and that one in another way
    "float just below a thousandth": "inexact digits",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_text_of_every_vector_is_stable(file: Path) -> None:
    unstable, expected = [], []
    for line in file.read_text(encoding="ascii").splitlines():
        vector = json.loads(line)
        if vector["name"] in UNSTABLE:
            expected.append(vector["name"])
        padding = vector.get("padding", False)
        data = bytes.fromhex(vector["hex"])
        if len(data) > LENGTH_MAX:
            continue  # `test_text` has its text, and there is nothing in it that a short one lacks
        text = dump_text(data, padding=padding)
        again = encode_text(text, padding=padding)
        if again != data and dump_text(again, padding=padding) != text:
            unstable.append(vector["name"])
    assert unstable == expected


def is_stable(body: bytes) -> bool:
    text = dump_text(struct.pack("<I", len(body)) + body)
    try:
        return dump_text(encode_text(text)) == text
    except WireError:
        return False


def test_other_texts_that_are_not_stable() -> None:
    assert not is_stable(b"\xbe\x03a\n[")  # the second line of a comment is no comment
    assert not is_stable(b'\xe6"it\'s"')  # text with both kinds of quotes, itself in quotes
    assert is_stable(b'\xe7"it\'s"x')
    assert is_stable(b'\xe3"a"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("csp: /\ncid: 1", {"csp": "/", "cid": 1}),
        ("# a note\ncid: 1 # more\r\n", {"cid": 1}),
        ("a: b, c [d] x:y z#1", {"a": "b, c [d] x:y z#1"}),
        ("a:\n  b: 1\n  # note\n  c:\n    d: x\ne: 2", {"a": {"b": 1, "c": {"d": "x"}}, "e": 2}),
        (
            "a:\n- 1\n- b: 2\n  c: 3\n-\n  - x\n- - y\nd: 4",
            {"a": [1, {"b": 2, "c": 3}, ["x"], ["y"]], "d": 4},
        ),
        ("a: # why\n  b: 1", {"a": {"b": 1}}),
        (
            "a: {b: {}, c: [1, 'it''s', \"x\\ty\\u00e9\\U00000041\\N\"]}",
            {"a": {"b": [], "c": [1, "it's", "x\ty\u00e9A\x85"]}},
        ),
        ("a: {\n  # first\n  b: 1\n}", {"a": {"b": 1}}),
        (
            "a: 1e3\nb: -1.5\nc: 0x1F\nd: -3\ne: 5000000000",
            {"a": 1000.0, "b": -1.5, "c": 31, "d": -3, "e": 5000000000},
        ),
        ("ip: 127.0.0.1\nnote: \u20ac", {"ip": "127.0.0.1", "note": "\u20ac"}),
        (
            'a: !!null ""\nb: !!binary AP8=\nc: null\nd: true',
            {"a": None, "b": b"\0\xff", "c": "null", "d": True},
        ),
        ("--- !!data #binary\na: 1", {"a": 1}),
        ("# note\n---\na: 1", {"a": 1}),
        ("a: " + "1" * 401, {"a": "1" * 401}),
    ],
)
def test_hand_written_text(text: str, value: object) -> None:
    assert loads(encode_text(text)) == value


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("!byte 5", "a405"),
        ("!short 5", "a50500"),
        ("!int 5", "a605000000"),
        ("!long 5", "a70500000000000000"),
        ("!float 1.5", "900000c03f"),
        ("!double NaN", "91000000000000f87f"),
        ("!int 0x10", "a610000000"),
        ("5.0", "900000a040"),
        ("0.1", "920a"),
        ("300", "a22c01"),
        ("-1", "a6ffffffff"),
        ("0xffffffffffffffff", "afffffffffffffffff"),
        ("-0.0", "9000000080"),
        ("-Infinity", "90000080ff"),
        ("12:34:00", "b20531323a3334"),
        ("!Foo x", "b603466f6fe178"),
        ("!type Foo", "bc03466f6f"),
        ("!byte[] ab", "b606627974655b5d80038a6162"),
        ("? 5: x", "bda105e178"),
        ("!type [x]", "b6047479706582020000 00e178"),
    ],
)
def test_spelling_says_the_code(text: str, body: str) -> None:
    assert encode_text(text)[4:] == bytes.fromhex(body)


def test_array_alone_in_a_sequence_is_not_taken_for_the_block() -> None:
    text = "--- !!data #binary\na: [\n  [\n    # length: 1, used: 0\n    7\n  ]\n]\n"
    for blanks in range(8):
        longer = text.replace("a:", "a" * (blanks + 1) + ":")
        assert loads(encode_text(longer)) is not None


MARK = "--- !!data #binary\n"
ARRAY = struct.pack("<qq6q", 6, 1, 7, 0, 8, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("csp: /\ncid: 1\n", dumps({"csp": "/", "cid": 1})),
        (
            f"{MARK}a: much longer\n# position: 8, header: 1\n{MARK}b: 1\n",
            dumps({"a": "much longer"}) + dumps({"b": 1}),
        ),
        (
            f"{MARK}a: 1\n# position: 800, header: 7\n{MARK}b: 1\n",
            dumps({"a": 1}) + dumps({"b": 1}),
        ),
        (
            f"{MARK}a: 1\n# position: 8, header: 0x00000004 data, 4 bytes\n{MARK}b: 1\n",
            dumps({"a": 1}) + dumps({"b": 1}),
        ),
        (f"# position: 0, header: 0, index 0x10\n{MARK}a: 1\n", dumps({"a": 1})),
        (
            "a: [\n  # length: 6, used: 1\n  7,\n  0,\n  8,\n  # 3 more, all 0\n]\n",
            ARRAY,
        ),
        ("history: {\n  sources: [\n 1,\n 0xff\n  ],\n  timings: [\n 3 ] }", b"\xba\x80\0\x80"),
    ],
    ids=["no marks", "position", "number", "header word", "first line", "zeros", "history"],
)
def test_text_is_read_as_the_bytes_that_it_stands_for(text: str, data: bytes) -> None:
    assert data in encode_text(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [1, 2", "line 1, column 9: a comma or ] was expected, the end came"),
        ("a: 1\nb: [1 {", "line 2, column 7: a comma or ] was expected, '{' came"),
        ("a: [,]", "line 1, column 5: a value was expected, ',]' came"),
        ("a: {1}", "line 1, column 5: a name was expected, '1}' came"),
        ("a: {", "line 1, column 5: a value was expected, the end came"),
        ('a: "x', "line 1, column 4: a closing quote was expected, '\"x' came"),
        ('a: "\\q"', "line 1, column 4: an escape was expected, '\\\\q' came"),
        ('a: "\\U99999999"', "line 1, column 4: an escape was expected"),
        ("a: &x", "line 1, column 4: a value was expected, '&x' came"),
        ("a: [] b", "line 1, column 7: the end of the line was expected, 'b' came"),
        ("a: 1\n  b: 1", "line 2, column 3: an indentation of 0 was expected, 'b: 1' came"),
        ("a:\nb: 1", "line 2, column 1: a value was expected, 'b: 1' came"),
        ("? a\n", "line 1, column 4: a colon was expected, the end of the line came"),
        ("a: !byte 300", "line 1, column 4: a number of INT8 was expected, '300' came"),
        ("a: !int x1", None),
        ("a: !int 1x", "line 1, column 4: a number of INT32 was expected, '1x' came"),
        ("a: 99999999999999999999", "line 1, column 4: a number of 64 bits was expected"),
        ("a: !!binary A", "line 1, column 4: Base64 was expected, 'A' came"),
        ("a: !byte[] \u20ac", "line 1, column 4: characters up to 0xFF were expected"),
        ("\u20ac: 1", "line 1, column 1: a name of Latin-1 characters was expected"),
        ("--- !!dada\n", "line 1, column 4: a kind of document was expected, '!!dada' came"),
        ("--- !!data\n\u20ac", "line 2, column 1: a character up to 0xFF was expected"),
        ("a: [\n# length: 3, used: 0\n1\n]", "line 1, column 4: an array of 3 was expected"),
        ("a: [\n# length: 1, used: 0\n99999999999999999999\n]", "line 1, column 4: an array of"),
        ("a: {\nsources: [9999999999, 0x1], timings: []}", "line 1, column 4: a history of 32"),
        ("? " * 5000, f"nesting of at most {NESTING_MAX} blocks was expected"),
        ("a: " + "[" * (NESTING_MAX + 1), f"nesting of at most {NESTING_MAX} blocks was expected"),
        ("---\n00000000             a1 zz\n", "line 2, column 25: two hex digits were expected"),
        ("---\n00000000             a1 05\nx\n", "line 3, column 1: a line of a hex dump"),
        ("---\n" + "00000010 a1\n00000000 a1\n", "line 2, column 1: rising offsets were expected"),
        ("---\n" + "00000010 a1\n00000020 a1\n00000018 a1\n00000030 a1\n", "rising offsets"),
        ("---\n00000010   \n", "line 2, column 1: a byte was expected"),
        ("#  has a 4 byte size prefix, 4 > 9 len is 4", "line 1, column 30: a length beyond"),
    ],
)
def test_errors_name_line_and_column(text: str, error: str | None) -> None:
    if error is None:
        assert encode_text(text)
        return
    with pytest.raises(WireError) as caught:
        encode_text(text)
    assert error in str(caught.value)
    assert str(caught.value).count(", column ") == 1


@pytest.mark.parametrize("opening", ["[", "{a: ", "? ", "!t [", "- ", "- - ", "a:\n"])
@pytest.mark.parametrize("count", [NESTING_MAX + 2, 10_000])
def test_t18_text_nests_to_a_limit(opening: str, count: int) -> None:
    """Threat T18. It is told, and ends no reader, however deep it goes."""
    pieces = [opening] * count
    if "\n" in opening:
        pieces = [" " * nth + opening for nth in range(min(count, 1000))]
    with pytest.raises(WireError, match=f"at most {NESTING_MAX} blocks was expected"):
        encode_text("x: " * (opening[0] in "[{?!") + "".join(pieces))


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [*x]",
        "a: &x {b: *x}",
        "a: &x 1\nb: *x",
        "a: *x",
        "- &x [1]\n- *x",
        "<<: *x",
        "&x a: 1",
        "*x : 1",
        "a: !t *x",
        "a: [1, *x]",
    ],
)
def test_t18_text_refers_to_nothing(text: str) -> None:
    """Threat T18. What refers to itself would have no end, and what refers ten times to ten times
    ten would fill the memory: anchors and aliases are no text of a wire."""
    with pytest.raises(WireError, match=r"a value was expected, '[&*]x"):
        encode_text(text)


def test_t18_what_only_looks_like_a_reference_is_text() -> None:
    text = 'a: "*x"\nb: x*y\nc: x & y\n'
    assert loads(encode_text(text)) == {"a": "*x", "b": "x*y", "c": "x & y"}
