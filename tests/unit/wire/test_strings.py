"""Text in Java's encoding: UTF-16 units, each encoded alone; and names, which are Latin-1."""

import pytest

from wire import WireError
from wire.strings import decode_name, decode_text, encode_name, encode_text


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", ""),
        ("a", "61"),
        ("\0", "00"),
        ("\x7f\x80", "7fc280"),
        ("é€", "c3a9e282ac"),
        ("\U0001f600", "eda0bdedb880"),
        ("\ud83d", "eda0bd"),
        ("\ude00\ud83d", "edb880eda0bd"),
        ("\ufeffa", "efbbbf61"),
        ("x\U0010ffff", "78edafbfedbfbf"),
    ],
)
def test_text(text: str, encoded: str) -> None:
    assert encode_text(text).hex() == encoded
    assert decode_text(bytes.fromhex(encoded)) == text


def test_two_byte_form_of_zero_is_taken() -> None:
    assert decode_text(bytes.fromhex("61c08062")) == "a\0b"


@pytest.mark.parametrize(
    "encoded",
    [
        "f09f9880",  # four bytes
        "ff",
        "c3",
        "c3ff",
        "80",
        "e282",
        "c0",
        "c081",
        "c1bf",
        "e0809f",
        "e0c080",
        "e1c080",
        "61f8",
    ],
)
def test_bytes_that_are_no_text(encoded: str) -> None:
    with pytest.raises(WireError) as caught:
        decode_text(bytes.fromhex(encoded), 17)
    assert caught.value.position == 17


def test_names() -> None:
    assert encode_name("caf\xe9\u0100\U0001f600") == b"caf\xe9???"
    assert decode_name(bytes(range(256))) == "".join(map(chr, range(256)))
