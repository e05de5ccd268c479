"""The header word and its special values."""

import pytest

from wire.header import END_OF_FILE, align4, body_length, is_metadata, is_ready


@pytest.mark.parametrize(
    ("word", "length", "metadata", "ready"),
    [
        (0x00000000, 0, False, False),
        (0x00000001, 1, False, True),
        (0x3FFFFFFF, (1 << 30) - 1, False, True),
        (0x40000000, 0, True, True),
        (0x400000C1, 193, True, True),
        (0x80000000, 0, False, False),
        (0x80000007, 7, False, False),
        (END_OF_FILE, 0, True, False),
        (0xFFFFFFFF, (1 << 30) - 1, True, False),
    ],
)
def test_header_word(word: int, length: int, metadata: bool, ready: bool) -> None:
    assert (body_length(word), is_metadata(word), is_ready(word)) == (length, metadata, ready)


def test_headers_of_a_file_stand_at_multiples_of_4() -> None:
    assert [align4(position) for position in range(6)] == [0, 4, 4, 4, 4, 8]
