"""Columns of the native codec against those of the plain one: the same tables, the same misfits."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wire
from cqrepl.queue import Queue
from tests.property.test_codecs_agree import FULL, mutated
from tests.support.requirements import require
from tests.support.samples import NOON_MS
from wire.codec import NATIVE

try:
    import cqrepl.arrow
    from tests.unit.test_typed_arrow import MISFITS, ORDERS, Order, Placed
except ImportError:
    require("arrow", "pyarrow is not installed")
if NATIVE is None:
    require("native", "the native codec is not built here")


def streamed(path: Path, kind: Any, *, is_native: bool, **options: Any) -> list[Any]:
    """All that a stream gives, made natively as far as that goes, or plainly."""
    stream = cqrepl.arrow.to_arrow(path, kind, keep_misfits=True, **options)
    assert stream._typed._columns.is_native
    stream._typed._columns.is_native = is_native
    table = stream.read_all()
    table.validate(full=True)
    misfits = [(each.index, each.payload, str(each.error)) for each in stream.kept_misfits]
    # repr has NaN equal to itself
    return [repr(table.to_pylist()), stream.rows, stream.misfits, stream.passed, misfits]


def check(documents: list[bytes], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Queue.open(Path(folder) / "q", create="FAST_DAILY") as queue:
            queue.append_many(documents, now_ms=NOON_MS)
        for kind in (Order, Placed) if "columns" not in options else (Order,):
            native = streamed(Path(folder) / "q", kind, is_native=True, **options)
            assert native == streamed(Path(folder) / "q", kind, is_native=False, **options)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.one_of(mutated(), st.sampled_from([wire.encode(FULL)])), min_size=1, max_size=30)
)
def test_any_documents(documents: list[bytes]) -> None:
    check([data for data in documents if data] or [b"\x8f"])


@pytest.mark.parametrize("columns", [None, ["qty", "sym", "legs"], ["index"], ["leg", "exact"]])
def test_usual_documents_and_such_that_do_not_fit(columns: list[str] | None) -> None:
    documents = [wire.encode(each) for each in [*ORDERS, *MISFITS, *ORDERS[::-1], Placed("A", 2.5)]]
    check(documents, **({} if columns is None else {"columns": columns}))


TEXTS = st.one_of(
    st.decimals(allow_nan=False).map(str),
    st.from_regex(r"[+-]?[0-9]{0,22}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.just("0." + "0" * 17 + "1"),
    st.just("99999999999999999999.999999999999999999"),
    st.just("100000000000000000000"),
)
TIMES = st.from_regex(
    r"(0999|1000|1969|1970|2024|9000|9001)-(00|01|02|12|13)-(00|01|28|29|30|31|32)T"
    r"(00|23|24):(00|59|60)(:(00|59|60)(\.[0-9]{0,10})?)?",
    fullmatch=True,
)
ZONES = st.sampled_from(
    ["Z", "+01:00", "-18:00", "+18:01", "+00:00", "+01:00:01", "[UTC]", "z", ""]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS, TIMES, ZONES), min_size=1, max_size=8))
def test_decimals_and_times_as_texts(given_texts: list[tuple[str, str, str]]) -> None:
    documents = []
    for decimal, time, zone in given_texts:
        for code, text in ((0xB4, time), (0xB5, time + zone), (0xB3, time[:10])):
            for name in ("at", "day"):
                body = wire.BodyWriter()
                body.name("sym")
                body.text("A")
                body.name("exact")
                body.text(decimal)
                body.name(name)
                encoded = text.encode()
                body.data += bytes([code, len(encoded)]) + encoded
                documents.append(bytes(body.data))
    check(documents)
