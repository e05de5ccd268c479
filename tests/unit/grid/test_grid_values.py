"""Keys and values come back as they went in, and bytes that are none are refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wire
from cqrepl.grid.errors import GridRefused
from cqrepl.grid.gridsettings import GridSettings, MapSettings, ReplicaSettings
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.token import Token
from cqrepl.routing import key_bytes, partition_of

SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
VALUES = st.recursive(SIMPLE, lambda each: st.lists(each, max_size=4).map(tuple), max_leaves=8)


class Decimals:
    name = "decimal"
    type = Decimal

    def dumps(self, value: object) -> bytes:
        return str(value).encode()

    def loads(self, data: bytes) -> object:
        return Decimal(data.decode())


@given(VALUES)
def test_a_value_comes_back_as_it_went_in(value: object) -> None:
    codec = ValueCodec()
    back = codec.loads(codec.value(value))
    assert (back, type(back)) == (value, type(value))


@given(st.binary())
def test_bytes_are_a_value_or_refused(data: bytes) -> None:
    codec = ValueCodec()
    try:
        codec.dumps(codec.loads(data))
    except (GridRefused, UnicodeDecodeError):
        return


def test_an_object_needs_a_serializer() -> None:
    codec = ValueCodec([Decimals()])
    assert codec.loads(codec.value((Decimal("1.50"), "x"))) == (Decimal("1.50"), "x")
    with pytest.raises(GridRefused, match="a type with a serializer, got a Decimal"):
        ValueCodec().value(Decimal(1))
    with pytest.raises(GridRefused, match="expected an object of a known serializer"):
        ValueCodec().loads(codec.value(Decimal(1)))


@given(st.one_of(st.text(), st.integers(-(1 << 63), (1 << 63) - 1)))
def test_the_short_forms_of_keys_are_those_of_binary_wire(key: str | int) -> None:
    assert key_bytes(key) == wire.encode(key)


def test_a_part_of_a_key_decides_its_partition() -> None:
    settings = GridSettings(
        name="s",
        partitions=13,
        maps={"orders": MapSettings(routing="0"), "customers": MapSettings()},
    )
    assert settings.partition("orders", ("Ann", 7)) == settings.partition("customers", "Ann")
    assert settings.partition("customers", "Ann") == partition_of("Ann", 13)
    with pytest.raises(GridRefused, match="expected a key with a part '0', got 'Ann'"):
        settings.partition("orders", "Ann")
    with pytest.raises(GridRefused, match=r"expected a map of map set 's' \(customers, orders\)"):
        settings.partition("x", 1)


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ({"sync": 0, "sync_min": 1}, "expected no syncMin with sync 0, got 1"),
        ({"sync": 1, "sync_min": 2}, r"expected syncMin from 1 to sync \(1\), got 2"),
        ({"sync": 7}, "expected 0 to 6 copies"),
    ],
)
def test_copies_that_do_not_fit_are_refused(replicas: dict[str, int], problem: str) -> None:
    with pytest.raises(GridRefused, match=problem):
        ReplicaSettings(**replicas)


def test_a_token_travels_as_a_text() -> None:
    token = Token("a/b", "f00d", 3, 9, 0x4516)
    assert Token.parse(str(token)) == token
    with pytest.raises(GridRefused, match="expected a token such as"):
        Token.parse("x/y")
    for numbers in ("-1/f00d/9/1", "0/f00d/-9/1", "0/f00d/9/-2", f"0/f00d/9/{'f' * 17}"):
        with pytest.raises(GridRefused, match="expected a token such as"):
            Token.parse(f"a/{numbers}")
    with pytest.raises(GridRefused, match="got one of map set 'a/b', log f00d"):
        token.check("a/b", "beef")
