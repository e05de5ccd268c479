"""Conditions over fields: which hold, which are none, and that no text is ever run."""

import datetime
from decimal import Decimal
from enum import Enum
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wire
from cqrepl.typed.condition import DEPTH_MAX, LENGTH_MAX, Condition, order_of


class Side(Enum):
    BUY = 1


NOON = datetime.datetime(2024, 3, 5, 12, tzinfo=datetime.UTC)
DOCUMENT = {
    "price": 100.5,
    "qty": 7,
    "big": (1 << 63) - 1,
    "exact": Decimal("0.1"),
    "tenth": 0.1,
    "symbol": "X",
    "live": True,
    "none": None,
    "nan": float("nan"),
    "side": Side.BUY,
    "at": NOON,
    "day": NOON.date(),
    "ns": 1_709_640_000_000_000_000,
    "fine": wire.LocalDateTime("2024-03-05T12:00:00.000000001"),
    "order": wire.Typed("Order", {"px": 5, "my field": "y"}),
    "and-so": 1,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('price > 100 and symbol == "X"', True),
        ("price>100.5", False),
        ("price >= 100.5", True),
        ("100 < price", True),
        ("100 >= price", False),
        ("qty = 7 or price < 0", True),
        ("qty != 7", False),
        ("qty != 8", True),
        ("qty < 7.5", True),
        ("big == 9223372036854775807", True),
        ("big == 9223372036854775808", False),
        ("exact == 0.1", True),
        ("exact == 0.10000000000000000001", False),
        ("exact == tenth", True),
        ("tenth == 0.1", True),
        ("tenth > 0.1", False),
        ("price > qty", True),
        ("symbol in ('Y', 'X')", True),
        ("symbol not in ('Y', 'X')", False),
        ("symbol not in ('Y')", True),
        ("qty in (1, 2, 7)", True),
        ("live", True),
        ("not live", False),
        ("live == true", True),
        ("live == 1", False),
        ("symbol", False),
        # absent, null, of another type, no number: false, whatever the comparison
        ("missing > 1", False),
        ("missing != 1", False),
        ("missing not in (1)", False),
        ("not missing > 1", True),
        ("none == 1", False),
        ("none != 1", False),
        ("symbol > 1", False),
        ("symbol != 1", False),
        ("price == 'x'", False),
        ("nan == 1", False),
        ("nan != 1", False),
        ("side == 'BUY'", True),
        ("at == 2024-03-05T12:00Z", True),
        ("at == 2024-03-05T13:00+01:00", True),
        ("at < 2024-03-05T12:00:00.000001Z", True),
        ("ns == 2024-03-05T12:00Z", True),
        ("fine > 2024-03-05T12:00Z", True),
        ("day >= 2024-03-05", True),
        ("symbol < 2024-03-05", False),
        ("order.px == 5", True),
        ("order.`my field` == 'y'", True),
        ("order.px.deeper == 5", False),
        ("order == 5", False),
        ("`and-so` == 1 and and-so == 1", True),
        ("(qty == 7 or qty == 8) and not (price < 1 or symbol == 'Y')", True),
        ("qty == 0 or qty == 7 and price < 1", False),
        ("not not live", True),
    ],
)
def test_a_condition_holds_or_not(text: str, holds: bool) -> None:
    assert Condition(text).holds(DOCUMENT) is holds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a field, a number, .* expected at character 1, the end came"),
        ("price", None),
        ("price >", "expected at character 8, the end came"),
        ("price > > 1", "expected at character 9, '>' came"),
        ("price > 1 qty", "`and`, `or` or the end expected at character 11, 'qty' came"),
        ("(price > 1", "`\\)` expected"),
        ("1 < 2", "a field on one side"),
        ("5 in (1)", "a field in front of `in`"),
        ("price in 5", "`\\(` expected"),
        ("price in ()", "expected at character 11, '\\)' came"),
        ("price in (qty)", "expected at character 11, 'qty' came"),
        ("price > 'x", 'expected at character 9, "\'" came'),
        ("price + 1 > 2", "expected at character 7, '\\+' came"),
        ("price > 2024-99-01", "a time such as"),
        ("price[0] > 1", "expected at character 6, '\\[' came"),
        ("f(x)", "expected at character 2, '\\(' came"),
        ("__import__('os').system('true')", "expected at character 11"),
        ("lambda: 1", "expected at character 7, ':' came"),
        ("price > 1e99999", "expected"),
        ("(" * (DEPTH_MAX + 1) + "live" + ")" * (DEPTH_MAX + 1), "at most 32 open parentheses"),
        ("x" * (LENGTH_MAX + 1), "at most 4096 characters"),
    ],
)
def test_a_text_is_a_condition_or_says_where_it_is_none(text: str, reason: str | None) -> None:
    if reason is None:
        assert Condition(text)
        return
    with pytest.raises(ValueError, match=reason):
        Condition(text)


@given(st.text(alphabet="ab.<>=!()'\",`0 1-not ind\\T:Z+é", max_size=40))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    try:
        condition = Condition(text)
    except ValueError:
        return
    assert condition.holds({"a": 1, "b": "x"}) in (True, False)


def test_documents_that_lack_a_field_are_counted_once_each() -> None:
    condition = Condition("price > 1 and price < 9 or order.px == 1 and price == 5")
    documents: list[dict[str, object]]
    documents = [{"price": 1}, {}, {"order": {}}, {"price": None, "order": {"px": 1}}]
    for fields in documents:
        condition.holds(fields)
    assert (
        condition.notes() == ["2 documents without 'price'", "3 documents without 'order.px'"][::-1]
    )


def test_a_time_without_an_offset_is_in_the_zone_that_was_given() -> None:
    paris = Condition("at == 2024-03-05T13:00", ZoneInfo("Europe/Paris"))
    assert paris.holds(DOCUMENT)
    assert not Condition("at == 2024-03-05T13:00").holds(DOCUMENT)


def test_values_that_cannot_be_compared_have_no_order() -> None:
    pairs = ((1, "1"), ("1", 1), (True, 1), (None, 1), ([1], 1), (b"x", "x"), (float("nan"), 1))
    assert [order_of(value, literal) for value, literal in pairs] == [None] * len(pairs)
