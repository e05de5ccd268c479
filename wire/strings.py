"""Text as Java lays it out: each UTF-16 unit is encoded alone; names are Latin-1.

A character outside the basic plane is two 3-byte sequences, an unpaired surrogate survives, U+0000
is the byte 00 (`C0 80` is accepted), and a 4-byte UTF-8 sequence is an error. In names a character
above 255 becomes `?`, or the lower half of its UTF-16 unit where the name has a length in front.
Source: the vectors `strings.jsonl`; the last fact was measured, Java 2.27 writes event "\u20ac" so.
"""

from wire.errors import WireError

_FIRST_ASTRAL = 0x10000
_FOUR_BYTE_LEAD = 0xF0


def encode_text(text: str) -> bytes:
    """The bytes of a text value."""
    if text.isascii():
        return text.encode("ascii")
    return _single_units(text).encode("utf-8", "surrogatepass")


def decode_text(data: bytes, position: int = 0) -> str:
    """The text in `data`; `position` is only told in the error.

    Raises:
        WireError: the bytes are no text in Java's encoding.
    """
    if data.isascii():
        return data.decode("ascii")
    if max(data) >= _FOUR_BYTE_LEAD:
        raise WireError("text holds a byte that starts no 1 to 3 byte sequence", position)
    try:
        units = data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise WireError(f"text is not valid UTF-8 ({error.reason})", position) from error
    # joins surrogate pairs and leaves unpaired ones as they are
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def encode_name(name: str) -> bytes:
    """The bytes of a field or event name, one for each UTF-16 unit."""
    if name.isascii():
        return name.encode("ascii")
    return _single_units(name).encode("latin-1", "replace")


def encode_prefixed_name(name: str) -> bytes:
    """The bytes of a name that goes out behind its length: the lower half of each UTF-16 unit."""
    if name.isascii():
        return name.encode("ascii")
    return name.encode("utf-16-le", "surrogatepass")[::2]


def kept_name(name: str) -> str:
    """The name as it is read back where it goes out behind its length.

    >>> kept_name("gr\u00fcn\u20ac")
    'gr\xfcn\xac'
    """
    return name if name.isascii() else decode_name(encode_prefixed_name(name))


def decode_name(data: bytes) -> str:
    """The name in `data`; every byte is a character."""
    return data.decode("latin-1")


def _single_units(text: str) -> str:
    """The same UTF-16 units, each a character of its own."""
    if not any(ord(char) >= _FIRST_ASTRAL for char in text):
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(units[at] | units[at + 1] << 8) for at in range(0, len(units), 2))
