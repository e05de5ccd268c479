"""The quick parts of a dump beside the plain ones that they stand for."""

from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.dump.hexlines import HexLines
from cqrepl.dump.unrenderable import is_surely_unrenderable
from wire.codes import Code
from wire.errors import WireError
from wire.text.print_documents import hex_dump
from wire.text.print_items import render_items

# bodies that come close to being items
ITEMS = st.lists(
    st.one_of(
        st.binary(max_size=3),
        st.sampled_from([bytes([code]) for code in Code]),
        st.builds(lambda text: bytes([0xE0 + len(text)]) + text, st.binary(max_size=31)),
        st.builds(lambda text: bytes([0xC0 + len(text)]) + text, st.binary(max_size=31)),
        st.builds(lambda text: bytes([0x80, len(text)]) + text, st.binary(max_size=40)),
        st.builds(
            lambda code, text: bytes([code, len(text)]) + text,
            st.sampled_from([0xB2, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBC, 0xBE]),
            st.binary(max_size=20),
        ),
    ),
    max_size=8,
).map(b"".join)


@given(st.one_of(st.binary(max_size=60), ITEMS))
@example(b"")
@example(b"\xa1")  # the byte that is missing at the end is read as -1
@example(b"\x80")
@example(b"\xb8\xff\x00")
@example(b"\x80\x01\xa1")
def test_what_is_called_unrenderable_is(body: bytes) -> None:
    if not is_surely_unrenderable(body):
        return
    try:
        text = render_items(body, fold_unused=True)
    except WireError:
        return
    raise AssertionError(f"rendered as {text!r}")


@given(
    st.binary(min_size=1, max_size=300),
    st.integers(0, 1 << 36).map(lambda number: number & ~15),
    st.data(),
)
def test_lines_are_those_of_a_hex_dump(data: bytes, offset: int, draw: st.DataObject) -> None:
    lines = HexLines(data, offset)
    start = draw.draw(st.integers(0, len(data) - 1))
    stop = draw.draw(st.integers(start + 1, len(data)))
    if lines.is_usable and not lines.has_repeats(offset + start, offset + stop):
        expected = hex_dump(data[start:stop], offset + start)
        assert lines.dump(offset + start, offset + stop) == expected


def test_lines_that_differ_in_their_width_are_not_used() -> None:
    assert not HexLines(bytes(64), (1 << 32) - 32).is_usable
    assert HexLines(bytes(64), 1 << 32).is_usable
