"""Values, messages, named fields and documents: what the vectors do not ask."""

import array
import datetime
import enum
import gzip
import uuid
import zoneinfo
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from typing import Any, ClassVar

import pytest

import wire
from wire import (
    BodyWriter,
    BytesLiteral,
    DocumentReader,
    DocumentWriter,
    Fields,
    Float32,
    Hex64,
    History,
    Int8,
    Int16,
    Int32,
    Int64,
    LocalDate,
    LocalTime,
    RawReader,
    RawWriter,
    Reader,
    Typed,
    TypeLiteral,
    UInt8,
    Variant,
    WireError,
    ZonedDateTime,
    decode,
    dump_text,
    dumps,
    encode,
    encode_text,
    loads,
)
from wire.codes import Code
from wire.objects import conversions, object_reader
from wire.objects.annotated import form
from wire.objects.object_writer import write_object, write_untyped
from wire.objects.values import Whole
from wire.objects.variants import COMPRESSIONS


def written(value: object) -> str:
    """The item of an object."""
    writer = BodyWriter()
    write_object(writer, value)
    return writer.data.hex()


def fields_of(body: str) -> Fields:
    return Fields(Reader(bytes.fromhex(body)))


# --- the package ----------------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    assert all(getattr(wire, name) is not None for name in wire.__all__)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        wire.__getattr__("nothing_of_this_name")


# --- objects --------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


class Named(enum.Enum):
    wire_type = enum.nonmember("Colour")
    RED = 1


class Level(enum.IntEnum):
    HIGH = 7


@pytest.mark.parametrize(
    ("value", "item"),
    [
        (Colour.RED, "e3524544"),
        (Named.RED, "b606436f6c6f7572e3524544"),
        (Typed("Colour", Colour.RED), "b606436f6c6f7572e3524544"),
        (Level.HIGH, "e448494748"),
        (Decimal("1.10"), "e4312e3130"),
        (1 << 70, "f6" + str(1 << 70).encode().hex()),
        (1 << 40, "a7" + "000000000001" + "0000"),
        (Int64(5), "a70500000000000000"),
        (Hex64(5), "af0500000000000000"),
        (UInt8(5), "a105"),
        (bytearray(b"x"), "80028a78"),
        (memoryview(b"x"), "80028a78"),
        (BytesLiteral(b"x"), "800178"),
        ({"b", "a"}, "b6042173657482" + "04000000" + "e161e162"),
        (array.array("f", [0.5]), "b607666c6f61745b5d82" + "02000000" + "9232"),
        ({"€": 1}, "82" + "07000000" + "bde3e282ac" + "a101"),
        ({None: 1}, "82" + "04000000" + "bdbb" + "a101"),
        (History(((7, 5),), (1,)), "8017860107000000" + "05" + "00" * 7 + "0101" + "00" * 7),
        (Typed("Foo", Int8(1)), "b603466f6fa401"),
    ],
)  # fmt: skip
def test_objects(value: object, item: str) -> None:
    assert written(value) == item


@pytest.mark.parametrize("value", [1j, object(), array.array("B", b"x"), int])
def test_a_value_without_a_form_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="was expected"):
        written(value)


@pytest.mark.parametrize("value", ["NaN", "sNaN", "-Infinity", "1E+9999999999"])
def test_a_decimal_that_java_does_not_have_is_refused(value: str) -> None:
    for nested in (Decimal(value), {"a": [Decimal(value)]}):
        with pytest.raises(ValueError, match="a finite Decimal that Java's BigDecimal holds"):
            encode(nested)


def test_fixed_wire_keeps_the_width_of_what_is_written() -> None:
    writer = BodyWriter(Variant.BINARY_FIXED)  # the bytes are Java's
    for value in (Int8(5), Int16(5), Int32(5), Int64(5), Float32(5), wire.Float64(5)):
        write_untyped(writer, value)
    untyped = "a405a50500a605000000a70500000000000000900000a040910000000000001440"
    assert writer.data.hex() == untyped
    writer = BodyWriter(Variant.BINARY_FIXED)
    for kind in "ifh":
        write_object(writer, array.array(kind, [5]))
    assert writer.data.hex() == (
        "b605696e745b5d8205000000a605000000b607666c6f61745b5d8205000000900000a040"
        "b60773686f72745b5d8203000000a50500"
    )


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("b603696e74a105", 5),
        ("b6046c6f6e679000008053", 1 << 40),
        ("b606646f75626c65a105", 5.0),
        ("b604217365748003800101", {(1,)}),
        ("b604217365748204000000" + "8002e161", {("a",)}),
        ("b60421736574a105", Typed("!set", 5)),
        ("b604446174658001e1", None),
        ("b60444617465e131", Typed("Date", "1")),
        ("b605216e756c6ca105", Typed("!null", 5)),
        ("b605216e756c6cbb", None),
        ("8006bd8001" + "01a105", {(1,): 5}),
        ("8008bdb60141e162a105", {Typed("A", "b"): 5}),
        ("8a0102", b"\x01\x02"),
    ],
)
def test_typed_values_are_read(item: str, value: object) -> None:
    data = bytes.fromhex(item)
    if value is None and not item.endswith("bb"):
        with pytest.raises(WireError):
            object_reader.read_object(Reader(data))
    else:
        assert object_reader.read_object(Reader(data)) == value


@pytest.mark.parametrize("key", [{"a": [1]}, {1, 2}, array.array("q", [1]), [[1], 2]])
def test_keys_that_are_blocks_can_be_looked_up(key: Any) -> None:
    writer = BodyWriter()
    writer.event_object()
    write_object(writer, key)
    writer.int64(5)
    fields = decode(writer.data)
    assert isinstance(fields, dict)
    ((found, value),) = fields.items()
    assert hash(found) == hash(found)
    assert value == 5


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("b6036c7a778001ff", "compression lzw is not supported"),
        ("b604677a69708001ff", "compression gzip is not supported"),
        ("8801e161", "delta wire is not supported, code 0x88 \\(ANCHOR\\) came"),
        ("9a05", "delta wire is not supported"),
        ("bf", "code 0xBF came"),
        ("b604627974659101", "8 bytes were announced|9 bytes were announced"),
        ("b60462797465a2ffff", "Int8 holds -128 to 127, 65535 came"),
        ("b603696e7492ba02", "a whole number was expected, 3.14 came"),
        ("b6066c6f6e675b5d8002e161", "a whole number was expected, 'a' came"),
        ("8005c161a101a1", "a field name was expected"),
        ("8006c161a101a105", "a field name was expected, code 0xA1 came at position 6"),
        ("80038600", "were announced"),
        ("80028601", "a message history was expected, the block ends"),
        ("8004860000a1", "the end of a message history was expected"),
        ("b30161", "a date or time was expected, 'a' came at position 0"),
    ],
)
def test_values_that_are_refused(item: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        object_reader.read_object(Reader(bytes.fromhex(item)))


BOMB = gzip.compress(bytes(1 << 24))  # 16 MiB in 16 KiB


@pytest.mark.parametrize("name", sorted(COMPRESSIONS))
def test_t17_what_is_compressed_is_refused_or_shown_as_it_is(name: str) -> None:
    """Threat T17. Nothing takes it for what it would become."""
    data = dumps({"a": Typed(name, BOMB)})
    reason = f"compression {name} is not supported"
    with pytest.raises(WireError, match=reason):
        loads(data)
    for read in Fields.value, Fields.bytes_value, Fields.literal, Fields.text, Fields.fields:
        with suppress(WireError):
            assert read(Fields(Reader(data, 4, len(data))), "a") == BOMB
    assert len(dump_text(data)) < 3 * len(BOMB)
    assert encode_text(dump_text(data)) == data


@pytest.mark.parametrize("opening", ["82{:08x}", "b600", "bd"])
def test_nesting_has_a_limit(opening: str) -> None:
    if opening.startswith("82"):
        body = b""
        for _ in range(object_reader.NESTING_MAX + 1):
            body = b"\x82" + len(body).to_bytes(4, "little") + body
    else:
        body = bytes.fromhex(opening) * 100_000
    with pytest.raises(WireError):
        decode(body)


def test_nesting_within_the_limit() -> None:
    body = b""
    for _ in range(object_reader.NESTING_MAX):
        body = b"\x82" + len(body).to_bytes(4, "little") + body
    assert str(decode(body)) == "[" * object_reader.NESTING_MAX + "]" * object_reader.NESTING_MAX


# --- variants -------------------------------------------------------------------------------------


def test_raw_and_unknown_variants_are_refused() -> None:
    with pytest.raises(WireError, match=r"use wire\.RawWriter"):
        dumps({"a": 1}, variant=Variant.RAW)
    with pytest.raises(WireError, match="wire type COMPRESSED_BINARY is not supported"):
        Variant.named("COMPRESSED_BINARY")
    with pytest.raises(WireError, match="wire type FOO is not known"):
        Variant.named("FOO")
    assert Variant.named("BINARY") is Variant.BINARY


def test_numeric_names_that_are_long() -> None:
    writer = BodyWriter(Variant.BINARY_NUMERIC)
    writer.name("0" * 5000 + "7")
    assert writer.data.hex() == "ba07"
    writer.name("99999999999")
    assert Fields(Reader(bytes(writer.data) + b"\xa1\x05", 2)).int64("99999999999") == 5


@pytest.mark.parametrize(
    ("variant", "body"),
    [
        (Variant.BINARY_LIGHT, "c0ba07"),
        (Variant.BINARY_NUMERIC, "c0ba07"),
        (Variant.FIELDLESS_BINARY, "ba07"),
    ],
)
def test_no_name_and_numbers_of_events(variant: Variant, body: str) -> None:
    writer = BodyWriter(variant)
    writer.no_name()
    writer.event_id(7)
    assert writer.data.hex() == body


# --- the writer -----------------------------------------------------------------------------------


def test_a_block_that_is_too_long_is_taken_back() -> None:
    writer = BodyWriter()
    with pytest.raises(WireError, match="BYTES_LENGTH8 was expected, it has 256 bytes"):
        with writer.sized_block(Code.BYTES_LENGTH8):
            writer.data += bytes(256)
    assert not writer.data


def test_history_has_at_most_255_entries() -> None:
    with pytest.raises(WireError, match="at most 255"):
        BodyWriter().history(History(timings=(0,) * 256))


def test_history_event() -> None:
    writer = BodyWriter()
    writer.history_event(History(timings=(5,)))
    assert writer.data.hex() == "ba8000" + "800b860001" + "0500000000000000"
    assert decode(writer.data) == {"history": History(timings=(5,))}


def test_deltas_that_overflow() -> None:
    writer = BodyWriter()
    writer.int64_deltas([-(1 << 63), (1 << 63) - 1])
    assert decode(writer.data) == [-(2.0**63), -1]
    writer = BodyWriter()
    writer.float64_deltas([1e300, -1e300])
    assert decode(writer.data) == [1e300, -2e300]


def test_optional_text_and_type_literal() -> None:
    writer = BodyWriter()
    writer.optional_text(None)
    writer.type_literal(None)
    writer.fixed(Code.FLOAT32, 1e300)
    assert writer.data.hex() == "bbbb900000807f"


def test_names_beyond_latin_1() -> None:
    writer = BodyWriter()
    writer.name("€")
    writer.event("€")
    writer.name("€" * 32)
    assert writer.data.hex() == "c13f" + "b901ac" + "b720" + "ac" * 32


def test_differences_too_great_for_six_decimals_are_not_rounded() -> None:
    writer = BodyWriter()
    values = [0.25, 4503599627.75, 0.2500004]
    writer.float64_deltas(values)
    assert decode(writer.data) == [0.25, 4503599627.5, 0]


# --- conversions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", 0),
        ("1e300", (1 << 63) - 1),
        ("-Infinity", -(1 << 63)),
        ("9223372036854775808", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("0" * 5000 + "5", 5),
        ("+5", 5),
        (" 2.5d ", 3),
        ("-2.5", -2),
        (".5f", 1),
        ("5.", 5),
    ],
)
def test_whole_numbers_out_of_text(text: str, value: int) -> None:
    assert conversions.read_int64(Reader(encode(text))) == value


@pytest.mark.parametrize("text", ["1" * 100_000 + "x", "0x10", "1_000", "½", "--1", ".", "e5"])
def test_text_that_is_no_number(text: str) -> None:
    with pytest.raises(WireError, match="a number was expected, text"):
        conversions.read_int64(Reader(encode(text)))


def test_narrow_numbers_have_limits() -> None:
    assert fields_of("c161a5ff00").whole("a", UInt8) == 255
    with pytest.raises(WireError, match="a number of 0 to 255 was expected, 256 came"):
        fields_of("c161a50001").whole("a", UInt8)
    assert fields_of("c161e0").whole("a", Int16) == -32768
    with pytest.raises(WireError, match="a number was expected, text ''"):
        fields_of("c161e0").whole("a", UInt8)
    assert fields_of("c161a50001").whole("a", Hex64) == 256
    assert fields_of("c161a50001").whole("b", Whole, default=3) == 3


def test_text_behind_a_length() -> None:
    assert Reader(bytes.fromhex("b30161")).read_coded_text() == "a"
    with pytest.raises(WireError, match="a text behind a length was expected, code 0xA1 came"):
        Reader(b"\xa1\x05").read_coded_text()


# --- named fields ---------------------------------------------------------------------------------


def test_every_kind_of_field() -> None:
    data = encode(
        {
            "i": 5,
            "f": 0.5,
            "t": "x",
            "b": True,
            "y": b"abc",
            "n": None,
            "o": [1, Int16(2)],
            "m": {"k": 1},
            "r": Typed("byte[]", b"raw"),
        }
    )
    fields = Fields(Reader(data))
    assert fields.bytes_value("r") == b"raw"
    nested = fields.fields("m")
    assert nested is not None
    assert nested.int32("k") == 1
    assert nested.fields("nothing") is None
    assert fields.value("o", keep_widths=True) == [1, 2]
    assert fields.bytes_value("n") is None
    assert fields.literal("y") == b"\x8aabc"
    assert (fields.boolean("b"), fields.text("t"), fields.float64("f")) == (True, "x", 0.5)
    assert (fields.int64("i"), fields.int64("i"), fields.boolean("i")) == (5, 0, False)
    assert (fields.value("z"), fields.literal("z"), fields.bytes_value("z")) == (None, None, None)


def test_fields_whose_value_is_null() -> None:
    assert fields_of("c161bb").fields("a") is None
    assert fields_of("c161bb").literal("a") is None
    with pytest.raises(WireError, match="compression lzw"):
        fields_of("c161b6036c7a778000").fields("a")
    with pytest.raises(WireError, match="a block of bytes was expected"):
        fields_of("c161800105").bytes_value("a")


def test_names_that_are_objects() -> None:
    fields = fields_of("bda605000000a101" + "bd800105a102" + "bde161a103")
    assert [name for name, _ in fields.events()] == ["5", "[5]", "a"]
    assert fields_of("bdb603466f6fa105a107").next_event() is not None


def test_a_field_number_answers_to_what_it_spells() -> None:
    assert fields_of("ba07a105").int64("007") == 5
    assert fields_of("ba07a105").int64("8") == 0
    assert [name for name, _ in fields_of("ba8000bb").events()] == ["history"]


def test_delta_numbers_are_stepped_over_and_not_read() -> None:
    fields = fields_of("c1619a05c162a105")
    assert fields.int64("b") == 5
    with pytest.raises(WireError, match="delta wire is not supported"):
        fields.int64("a")
    with pytest.raises(WireError, match="the block ends"):
        fields_of("c1619a").int64("a")


# --- messages -------------------------------------------------------------------------------------


@dataclass
class Roll:
    wire_type: ClassVar[str] = "SCQSRoll"
    length: int
    format: str = "yyyyMMdd"
    made: int = field(default=0, init=False)


@dataclass
class Store:
    roll: Roll | None = None
    colour: Colour = Colour.RED
    kinds: list[TypeLiteral] = field(default_factory=list)
    next: "Store | None" = None


def test_a_message_in_a_list_has_its_type_name() -> None:
    data = encode([Roll(5)])
    assert data.hex().startswith("8228000000" + "b608" + b"SCQSRoll".hex() + "82")
    assert decode(data) == [Typed("SCQSRoll", {"length": 5, "format": "yyyyMMdd"})]
    assert dumps(Roll(5)) == dumps({"length": 5, "format": "yyyyMMdd"})


def test_nested_messages() -> None:
    store = Store(Roll(5), kinds=[TypeLiteral("int")], next=Store())
    assert decode(encode(store), Store) == store
    typed = {"roll": Typed("SCQSRoll", {"length": 1}), "colour": Typed("Colour", "RED")}
    assert decode(encode(typed), Store) == Store(Roll(1))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"roll": {}},
            "a field name was expected|a field 'length' of Roll was expected, none came",
        ),
        ({"roll": Typed("Other", {"length": 1})}, "a SCQSRoll was expected, a Other came"),
        ({"roll": {"length": 1, "format": None}}, "a value was expected, null came"),
        ({"colour": "BLUE"}, "a name of Colour was expected, 'BLUE' came"),
        ({"colour": None}, "a name of Colour was expected, None came"),
        ({"kinds": ["x"]}, "a TypeLiteral was expected, 'x' came"),
    ],
)
def test_messages_that_are_refused(body: dict[str, object], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(encode(body), Store)


def test_messages_nest_to_a_limit() -> None:
    store = Store()
    for _ in range(object_reader.NESTING_MAX + 1):
        store = Store(next=store)
    with pytest.raises(WireError, match="at most 64 nested messages were expected"):
        decode(encode(store), Store)


@pytest.mark.parametrize("annotation", [int | str, "text", list, set[int], type[int], 5])
def test_annotations_without_a_form(annotation: Any) -> None:
    if annotation is list:
        assert form(annotation).read(Reader(b"\x80\x01\x05"), 0) == [5]
    else:
        with pytest.raises(TypeError, match="was expected"):
            form(annotation)


@dataclass
class Order:
    sym: str
    px: float = 0.0


@dataclass
class Wide:
    whole: int = 0
    exact: Decimal = Decimal(0)
    orders: list[Order] = field(default_factory=list)
    plain: list = field(default_factory=list)  # type: ignore[type-arg]  # bare on purpose
    counts: dict = field(default_factory=dict)  # type: ignore[type-arg]  # bare as well
    ratio: float = 0.0
    byte: Int8 = field(default_factory=Int8)
    other: Any = None


def test_a_document_with_its_header_is_no_body() -> None:
    """`decode` refuses such a document, whatever is in it. It once made up an Order(sym='20',
    px=0.0)."""
    for value in (Order("A", 1.5), {"a": 1}, "x", [1, 2], None):
        framed = dumps(value)
        for data in (framed, framed + framed, memoryview(framed)):
            for into in ((), (Order,)):
                with pytest.raises(WireError, match="a document with its header came"):
                    decode(data, *into)
        with pytest.raises(WireError, match="was expected"):
            loads(encode(value))
    assert loads(dumps(Order("A", 1.5)), Order) == Order("A", 1.5)
    assert decode(encode(Order("A", 1.5)), Order) == Order("A", 1.5)


@pytest.mark.parametrize(
    ("value", "into", "reason"),
    [
        (Typed("x", 5), Order, "2 values came|1 values came, 1 of them without a name"),
        ("x", Order, "the fields of Order .sym, px. were expected, 1 values came"),
        ({"order": Order("A")}, Order, "a field of Order .sym, px. was expected, 'order' came"),
        ({"order": Order("A")}, Wide, "a field of Wide .*was expected, 'order' came"),
        ({"sym": 20}, Order, "a text was expected, code 0xA1 came"),
        ({"sym": True}, Order, "a text was expected"),
        ({"sym": b"20"}, Order, "a text was expected"),
        ({"sym": None}, Order, "a value was expected, null came"),
        ({"sym": "A", "px": "x"}, Order, "a number was expected, text 'x' came"),
        ({"sym": "A", "px": ""}, Order, "a number was expected, an empty text came"),
        ({"sym": "A", "px": None}, Order, "a number was expected"),
        ({"whole": 2.7}, Wide, "a whole number was expected, 2.7 came"),
        ({"whole": float("nan")}, Wide, "a whole number was expected, nan came"),
        ({"whole": None}, Wide, "a whole number was expected, null came"),
        ({"whole": "1.5"}, Wide, "a whole number was expected, '1.5' came"),
        ({"whole": "9" * 5000}, Wide, "a whole number was expected"),
        ({"byte": 300}, Wide, "a number of -128 to 127 was expected, 300 came"),
        ({"byte": None}, Wide, "a number of -128 to 127 was expected, null came"),
        ({"exact": "x"}, Wide, "a decimal number was expected, 'x' came"),
        ({"exact": "NaN"}, Wide, "a decimal number was expected"),
        ({"exact": None}, Wide, "a decimal number was expected, None came"),
        ({"orders": [5]}, Wide, "a block was expected"),
        ({"orders": [[5]]}, Wide, "the fields of Order"),
        ({"counts": [1]}, Wide, "a dict was expected"),
    ],
)
def test_what_does_not_fit_a_message_is_refused(value: object, into: type, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(encode(value), into)


def test_numbers_and_lists_of_messages_come_back() -> None:
    for whole in (0, -(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 70), 10**300):
        message = Wide(
            whole,
            Decimal("1.10"),
            [Order("A", float("inf")), Order("B")],
            [1, "x", [2.5]],
            {},
            other={"a": 1},
        )
        assert decode(encode(message), Wide) == message
    for exact in ("0", "-0.00", "1E+30", "1E-300", "123456789012345678901234567890.5"):
        found = decode(encode(Wide(exact=Decimal(exact))), Wide).exact
        assert found.as_tuple() == Decimal(exact).as_tuple()
    assert decode(encode({"exact": 1.1}), Wide).exact == Decimal("1.1")
    assert decode(encode({"exact": 5}), Wide).exact == 5
    ratio = decode(encode(Wide(ratio=float("nan"))), Wide).ratio
    assert ratio != ratio


def test_a_message_has_a_type_name_where_its_class_says_one() -> None:
    """Java would look for a class by the name of Python's."""
    for value in ({"order": Order("A", 1.5)}, {"order": [Order("A", 1.5)]}):
        assert b"Order" not in encode(value)
    assert decode(encode({"order": Order("A", 1.5)})) == {"order": {"sym": "A", "px": 1.5}}
    assert decode(encode([Typed("Order", Order("A", 1.5))])) == [
        Typed("Order", {"sym": "A", "px": 1.5})
    ]


def test_a_call_is_its_name_and_its_arguments() -> None:
    assert wire.encode_call("end").hex() == "b903656e64e0"
    assert decode(wire.encode_call("order", Order("A"))) == {"order": {"sym": "A", "px": 0.0}}
    assert decode(wire.encode_call("two", "A", 5)) == {"two": ["A", 5]}
    assert decode(wire.encode_call("list", ["A", 5])) == {"list": ["A", 5]}
    assert decode(wire.encode_call("grün", None)) == {"grün": None}
    for name in ("", "12", "a b", "a.b", "preis€", "a\n"):
        with pytest.raises(ValueError, match="a method name of Latin-1 letters was expected"):
            wire.encode_call(name, 5)


@dataclass
class Nothing:
    pass


# --- documents ------------------------------------------------------------------------------------


def test_an_empty_data_document_is_not_written() -> None:
    writer = DocumentWriter()
    with pytest.raises(ValueError, match="a data document with a body was expected"):
        writer.write(Nothing())
    assert writer.take() == b""
    writer.write(Nothing(), metadata=True)
    assert writer.position == 4
    assert loads(writer.take()) is None


def test_a_document_that_fails_is_taken_back() -> None:
    writer = DocumentWriter(padding=True)
    writer.write("x")
    before = writer.position
    with pytest.raises(TypeError):
        writer.write({"a": 1j})
    assert writer.position == before


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "a whole document was expected, 0 bytes came"),
        (b"\x05\0\0\0\xb1", "a whole document was expected, 5 bytes came"),
        (b"\x01\0\0\x80\xb1", "a whole document was expected"),
        (b"\x01\0\0\0\xb1\0", "the end was expected behind the document at position 5"),
    ],
)
def test_bytes_that_are_not_one_document(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        loads(data)


def test_documents_have_a_limit() -> None:
    with pytest.raises(WireError, match="at most 3 bytes was expected, header 0x00000004"):
        next(DocumentReader(b"\x04\0\0\0", length_max=3))


def test_names_that_would_change_are_written_otherwise() -> None:
    names = {"12": 1, "007": 2, "€": 3, 4: 4, "x": 5}
    data = encode(names)
    assert decode(data) == names
    assert data.hex() == "ba0ca101b903303037a102bde3e282aca103bda104a104c178a105"


# --- dates and times ------------------------------------------------------------------------------


def test_times_that_python_does_not_have_stay_text() -> None:
    for value in (
        LocalTime("12:00:00.000000001"),
        LocalDate("+12345-06-07"),
        ZonedDateTime("2020-07-01T00:00+01:00[Europe/London]"),
    ):
        found = decode(encode(value))
        assert type(found) is type(value)
        assert found == value
        assert repr(found) == repr(value)
    with pytest.raises(WireError, match="a date or time was expected"):
        encode(LocalTime("noon"))


def test_region_of_a_time_zone() -> None:
    when = datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    assert decode(encode(when)) == ZonedDateTime("2020-07-01T00:00Z[UTC]")


# --- typed values ---------------------------------------------------------------------------------


def test_marks_are_shown() -> None:
    shown = [Int32(5), Hex64(255), Float32(0.5), wire.Float64(0.5), BytesLiteral(b"x")]
    assert repr(shown) == "[Int32(5), Hex64(0xff), Float32(0.5), Float64(0.5), BytesLiteral(b'x')]"
    with pytest.raises(ValueError, match="UInt8 holds 0 to 255, -1 came"):
        UInt8(-1)


# --- RAW ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        ("text", "8200", "length -3 is negative"),
        ("text", "05", "5 bytes were expected, 0 are left"),
        ("boolean", "05", "true, false or null was expected, byte 0x05 came"),
        ("block", "ffffffff", "length -1 is negative"),
        ("uuid", "00", "16 bytes were expected"),
        ("time", "ff" * 8, "nanoseconds of a day were expected, -1 came"),
        ("time", "ff" * 7 + "7f", "nanoseconds of a day were expected"),
        ("date", "ff" * 8 + "7f", "a date was expected, day 9223372036854775807 came"),
        ("event", "80", "runs past the end"),
    ],
)
def test_raw_values_that_are_refused(method: str, data: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        getattr(RawReader(bytes.fromhex(data)), method)()


def test_raw_values() -> None:
    writer = RawWriter()
    with writer.document(metadata=False):
        writer.event_id(7)
        writer.type_prefix("Foo")
        writer.null()
        writer.uuid(uuid.UUID(int=5))
        writer.date("-0044-03-15")
        writer.time("23:59")
        writer.date_time("2020-02-29T12:34:56")
        writer.zoned_date_time("2020-02-29T12:34:56.0Z")
    reader = RawReader(writer.data, 4)
    assert (reader.text(), reader.text(), reader.uuid()) == ("Foo", None, uuid.UUID(int=5))
    assert (reader.date(), reader.time()) == (LocalDate("-0044-03-15"), datetime.time(23, 59))
    when = datetime.datetime(2020, 2, 29, 12, 34, 56)
    assert (reader.date_time(), reader.zoned_date_time()) == (when, when.replace(tzinfo=UTC))
    assert writer.data.hex().endswith(
        "918f010060fd4b32290000" + "14" + b"2020-02-29T12:34:56Z".hex()
    )
