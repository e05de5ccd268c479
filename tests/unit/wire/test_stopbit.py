"""Stop-bit numbers: the forms that the format's description lists, and those that it refuses."""

import pytest

from wire import WireError
from wire.stopbit import decode, encode

FORMS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (255, "ff01"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**63 - 1, "ffffffffffffffff7f"),
    (-1, "8000"),
    (-2, "8100"),
    (-64, "bf00"),
    (-128, "ff00"),
    (-129, "808100"),
    (-16384, "ffff00"),
    (-(2**31), "ffffffff8700"),
    (-(2**63), "ffffffffffffffffff00"),
]


@pytest.mark.parametrize(("number", "form"), FORMS)
def test_forms(number: int, form: str) -> None:
    data = bytes.fromhex(form)
    assert encode(number) == data
    assert decode(b"\xff" + data + b"\xff", 1, len(data) + 2) == (number, len(data) + 1)


def test_there_is_no_longer_form_of_a_positive_number() -> None:
    assert decode(bytes.fromhex("8500"), 0, 2) == (-6, 2)


def test_longer_form_of_a_negative_number() -> None:
    assert decode(bytes.fromhex("80808000"), 0, 4) == (-1, 4)


@pytest.mark.parametrize(
    "form",
    [
        "ffffffffffffffffff01",  # 64 bits and positive
        "80808080808080808001",
        "8080808080808080808000",  # 11 bytes
        "ffffffffffffffffffff00",
        "80" * 10,
        "80" * 100,
    ],
)
def test_number_that_does_not_fit(form: str) -> None:
    with pytest.raises(WireError, match="does not fit 64 bits at position 0"):
        decode(bytes.fromhex(form), 0, len(form) // 2)


@pytest.mark.parametrize(("_number", "form"), FORMS)
def test_number_that_runs_past_the_end(_number: int, form: str) -> None:
    data = bytes.fromhex(form)
    for end in range(len(data)):
        with pytest.raises(WireError, match="past the end"):
            decode(data, 0, end)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_more_than_64_bits_is_our_own_mistake(number: int) -> None:
    with pytest.raises(AssertionError):
        encode(number)
