"""Schemas: from a sample, as JSON Schema and back, as Python's source."""

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

import wire
from cqrepl.typed.classsource import source_of
from cqrepl.typed.documentsample import DocumentSample
from cqrepl.typed.schemafile import (
    KEPT_NAME,
    SchemaError,
    classes_of,
    json_schema,
    kept_schema,
    paths_of,
)
from tests.unit.queue.test_typed_documents import FULL, Order, Placed

DOCUMENTS: list[object] = [
    {"sym": "A", "px": 5, "legs": [{"r": 1}, {"r": 1.5, "n": None}], "x y": 1, "class": True},
    {"sym": "B", "px": 1.5, "legs": [], "note": "n", "x y": 2, "class": False},
]


def read(documents: list[object], kind: Any) -> list[Any]:
    return [wire.decode(wire.encode(each), kind) for each in documents]


def sampled(documents: list[object]) -> DocumentSample:
    sample = DocumentSample()
    for each in documents:
        sample.add(each if isinstance(each, bytes) else wire.encode(each))
    return sample


def test_a_sample_tells_types_and_which_fields_all_have() -> None:
    kind: Any = sampled(DOCUMENTS).classes()[0]
    hints: dict[str, Any] = {each.name: each.type for each in dataclasses.fields(kind)}
    assert (hints["sym"], hints["px"], hints["note"]) == (str, float, str | None)
    first, second = read(DOCUMENTS, kind)
    assert (first.px, first.legs[1].r, first.legs[0].n) == (5.0, 1.5, None)
    assert (second.field_3, second.field_4, second.note) == (2, False, "n")


def test_calls_are_told_apart_by_their_methods_also_behind_a_history() -> None:
    history = wire.BodyWriter()
    history.history_event(wire.History(((1, 5),), (7, 8)))
    call = wire.encode_call("order", Placed("A", 1.5))
    sample = sampled(
        [call, bytes(history.data) + call, b"text", b'{"a": 1}', wire.encode({"b": 1})]
    )
    assert (sample.documents, sample.others) == (4, 1)
    placed, other = sample.classes()
    assert wire.decode(bytes(history.data) + call, placed) == placed("A", 1.5)
    assert [each.name for each in dataclasses.fields(other)] == ["a", "b"]


@pytest.mark.parametrize("kinds", [(Order,), (Order, Placed), sampled(DOCUMENTS).classes()])
def test_classes_come_back_from_json(kinds: tuple[type, ...]) -> None:
    given = json_schema(*kinds)
    jsonschema.Draft202012Validator.check_schema(given)
    again = classes_of(json.dumps(given), "x")
    # a default that JSON has not, an empty list, comes back as null: from then on nothing changes
    once = json_schema(*again)
    assert json_schema(*classes_of(json.dumps(once), "x")) == once
    data = wire.encode(FULL) if Order in kinds else wire.encode(DOCUMENTS[0])
    first: Any = wire.decode(data, cast("Any", again[0]))
    assert first.sym == "A"
    assert wire.encode(first) == wire.encode(wire.decode(data, kinds[0]))


@pytest.mark.parametrize("kinds", [(Order, Placed), sampled(DOCUMENTS).classes()])
def test_the_source_of_classes_is_python_that_reads_the_same(kinds: tuple[type, ...]) -> None:
    names: dict[str, Any] = {"__name__": "made"}
    exec(compile(source_of(kinds), "made", "exec", dont_inherit=True), names)
    data = wire.encode(FULL) if Order in kinds else wire.encode(DOCUMENTS[0])
    made = wire.decode(data, names[kinds[0].__name__])
    assert wire.encode(made) == wire.encode(wire.decode(data, kinds[0]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "an object expected"),
        ("{}", "properties expected"),
        ('{"properties": {"a": {"type": "integer", "format": "int99"}}}', "a: format: one of"),
        ('{"properties": {"a": {"type": "what"}}}', "a: a type of JSON expected, got 'what'"),
        ('{"properties": {"a": {"properties": {"b": 5}, "type": "object"}}}', "a.b: a schema exp"),
        ('{"properties": {"a": {"type": ["integer", "string"]}}}', "a: one type, or one and null"),
        ('{"properties": {"a": {}}, "required": ["b"]}', "required: names of properties"),
        ('{"properties": {"a": {}}, "x-event": 5}', "x-event: the name of a method"),
        ('{"oneOf": []}', "oneOf: a list"),
        ('{"properties": {"a": ' * 40 + "{}" + "}}" * 40, "expected"),
        ("[" * 100_000, "recursion|expected"),
    ],
)
def test_a_file_that_is_no_schema_says_where(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=f"(?s)file: .*({reason})"):
        classes_of(text, "file")


def test_a_queue_keeps_a_schema_beside_its_files(tmp_path: Path) -> None:
    assert kept_schema(tmp_path) == ()
    (tmp_path / KEPT_NAME).write_text(json.dumps(json_schema(Placed)))
    (kind,) = kinds = kept_schema(tmp_path)
    assert paths_of(kinds) == (("order", "sym"), ("order", "px"))
    assert wire.decode(wire.encode(Placed("A", 1.5)), kind) == kind("A", 1.5)
    (tmp_path / KEPT_NAME).write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="UTF-8 expected"):
        kept_schema(tmp_path)
