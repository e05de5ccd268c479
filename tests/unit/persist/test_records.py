"""The records of storages, as bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.persist.storage.records import (
    NAME_MAX,
    NUMBER_MAX,
    WITH_ITEM,
    Op,
    StorageKind,
    StorageRecord,
    _usual_values,
    _values,
    check_storage_name,
    correlation_id,
    decode_record,
)
from wire import Reader, WireError, Writer

VECTORS = Path(__file__).parents[2] / "vectors/persist/records.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text().splitlines()]
LONGS = st.integers(0, (1 << 63) - 1)
COUNTS = st.integers(0, NUMBER_MAX)


def record_of(fields: dict[str, Any]) -> StorageRecord:
    values = {key: value for key, value in fields.items() if not key.startswith("item")}
    values["op"] = Op(values["op"])
    if "kind" in values:
        values["kind"] = StorageKind(values["kind"])
    if "item_hex" in fields:
        values["item"] = bytes.fromhex(fields["item_hex"]) * fields.get("item_times", 1)
    return StorageRecord(**values)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["name"]))
def test_records_are_the_bytes_of_their_vectors(row: dict[str, Any]) -> None:
    record = record_of(row["fields"])
    data = record.encoded()
    if "hex" in row:
        assert data.hex() == row["hex"]
    else:
        assert (len(data), hashlib.sha256(data).hexdigest()) == (row["length"], row["sha256"])
    assert decode_record(data) == record


@given(
    op=st.sampled_from([each for each in Op if each is not Op.CREATE]),
    numbers=st.tuples(LONGS, COUNTS, COUNTS, LONGS, LONGS),
    item=st.binary(max_size=300),
)
def test_records_are_read_as_they_were_written(
    op: Op, numbers: tuple[int, int, int, int, int], item: bytes
) -> None:
    id_, index, gen, epoch, at = numbers
    record = StorageRecord(
        op=op,
        id=id_,
        index=index,
        gen=gen,
        epoch=epoch,
        at=at if op is Op.RESET else 0,
        item=item if op in WITH_ITEM else None,
    )
    assert decode_record(record.encoded()) == record


@given(st.binary(max_size=100))
def test_other_bytes_are_no_records(data: bytes) -> None:
    try:
        decode_record(data)
    except WireError:
        return
    assert data


@given(
    numbers=st.tuples(LONGS, LONGS, LONGS, LONGS),
    item=st.binary(max_size=300),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
    with_item=st.booleans(),
)
def test_the_quick_way_reads_what_the_long_one_does(
    numbers: tuple[int, int, int, int], item: bytes, at: int, byte: int, with_item: bool
) -> None:
    """Of records with one byte that is another one: it gives the same, or leaves it alone."""
    id_, index, gen, epoch = numbers
    record = StorageRecord(op=Op.ADD, id=id_, index=index, gen=gen, epoch=epoch, item=item)
    data = bytearray(record.encoded())
    start = data.index(b"\xc2id")
    if max(numbers) < 1 << 20:  # greater ones may be written as floats
        assert _usual_values(Reader(bytes(data), start), with_item=with_item) is not None
    data[start + at % (len(data) - start)] = byte
    quick = _usual_values(Reader(bytes(data), start), with_item=with_item)
    if quick is not None:
        assert quick == _values(Reader(bytes(data), start), with_item=with_item)


@pytest.mark.parametrize("lacking", ["id", "index", "gen", "item"])
def test_a_record_without_a_field_is_refused(lacking: str) -> None:
    writer = Writer()
    writer.event("KEEP")
    with writer.block():
        for name in ("id", "index", "gen"):
            if name != lacking:
                writer.name(name)
                writer.integer(1)
        if lacking != "item":
            writer.name("item")
            writer.bytes_literal(b"")
    with pytest.raises(WireError, match=f"expected the field '{lacking}' of KEEP, got none"):
        decode_record(bytes(writer.data))


def test_the_id_of_a_name_is_the_same_everywhere() -> None:
    assert correlation_id("orders") == 0x1C168ADB00D208E4
    assert correlation_id("orders") != correlation_id("Orders")


@pytest.mark.parametrize("name", ["", "n" * (NAME_MAX + 1), "a\nb", "a\x00"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected a name"):
        check_storage_name(name)
