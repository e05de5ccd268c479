"""The grammar against Java: what it parses it builds again, for every vector and real file."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError

from tests.support.goldens import OLD
from tests.support.vectors.constructs import grammar_of, same
from tests.support.vectors.manifest import FILES, Vector, calls_key, is_binary, load
from tests.support.vectors.values import ConvertedTypeError, body_value
from wire import Reader, WireError, decode
from wire.codes import Code
from wire.grammar import (
    Body,
    Document,
    Documents,
    Fields,
    PaddedDocuments,
    PaddedStates,
    States,
)
from wire.grammar import structures as structures
from wire.grammar.items import (
    BLOCK_OPERANDS,
    DELTA_OPERANDS,
    FILLER_OPERANDS,
    NAME_OPERANDS,
    UNASSIGNED,
    VALUE_OPERANDS,
)

QUEUES = Path(__file__).parents[2] / "vectors" / "queues"


def test_every_code_has_one_place_in_the_tables() -> None:
    tables = [
        FILLER_OPERANDS, NAME_OPERANDS, VALUE_OPERANDS, BLOCK_OPERANDS, DELTA_OPERANDS, UNASSIGNED,
        {Code.TYPE_PREFIX, Code.EVENT_OBJECT},
    ]  # fmt: skip
    assert sorted(code for table in tables for code in table) == list(range(256))


# ---- every vector --------------------------------------------------------------------------------


def calls_excepted(vector: Vector) -> str | None:
    """The reason why the grammar does not build the vector; None when it does."""
    key = calls_key(vector)
    if key is None:
        return "without calls: bytes that no writer makes, or of a real file"
    if vector["wire"] == "TEXT":
        return "text"
    if vector.get("do_not_emit"):
        return "a defect of Java's writer"
    if any(document["doc"] == "data" and not document["calls"] for document in vector[key]):
        return "an empty data document, which is none to any reader"
    return None


@pytest.mark.parametrize("file", FILES)
def test_calls_of_the_vectors_are_built_and_parsed(file: str) -> None:
    """The grammar of just these calls builds Java's bytes, and finds the arguments in them."""
    counts = Counter[str]()
    for vector in load(file):
        if reason := calls_excepted(vector):
            counts[reason] += 1
            continue
        construct, values = grammar_of(vector)
        assert construct.build(values).hex() == vector["hex"], vector["name"]
        assert same(construct.parse(bytes.fromhex(vector["hex"])), values), vector["name"]
        counts["passed"] += 1
    print(f"{file}: {dict(counts)}")
    assert counts["passed"] == BUILT.get(file, 0)


BUILT = {
    "bindings": 48,
    "bytes": 100,
    "documents": 28,
    "fields": 87,
    "floats": 133,
    "ints": 226,
    "legacy": 197,
    "nested": 170,
    "objects": 106,
    "random": 480,
    "replication": 116,
    "scalars": 40,
    "strings": 126,
    "variants": 119,
}


def states_of(vector: Vector) -> Any:
    """Its documents, half-written ones too."""
    grammar = PaddedStates if vector.get("padding") else States
    data = bytes.fromhex(vector["hex"])
    found = grammar.parse(data)
    assert grammar.build(found) == data
    return found.documents


def read_or_refused(body: bytes) -> tuple[object] | None:
    try:
        return (decode(body),)
    except WireError:
        return None


def parsed_or_refused(body: bytes) -> Any:
    try:
        return Body.parse(body)
    except ConstructError:
        return None


@pytest.mark.parametrize("file", FILES)
def test_bodies_of_the_vectors_are_what_the_reader_finds(file: str) -> None:
    """The grammar of any document takes what the reader takes, and finds the same items."""
    counts = Counter[str]()
    for vector in load(file):
        if vector["wire"] in ("RAW", "TEXT"):
            counts["no items in it: RAW, text"] += 1
            continue
        for document in states_of(vector):
            counts[compared(document.body, calls_excepted(vector) is None)] += 1
    print(f"{file}: {dict(counts)}")
    assert counts["passed"] > counts.total() / 2 or file == "malformed"


OPENED_MAX = 4096


def compared(body: bytes, is_built: bool) -> str:
    """The outcome of the comparison."""
    if len(body) > OPENED_MAX:
        assert Fields.build(Fields.parse(body)) == body
        return "long: only with its blocks closed, construct is slow"
    parsed, read = parsed_or_refused(body), read_or_refused(body)
    if parsed is None:
        assert read is None
        return "refused by both"
    if is_built:
        assert Body.build(parsed) == body
    try:
        value = body_value(parsed)
    except ConvertedTypeError:
        return "a type whose value the reader converts"
    assert read is not None
    assert repr(value) == repr(read[0])  # also of NaN, and of true and 1
    return "passed"


def documents_of(vector: Vector) -> Any:
    grammar = PaddedDocuments if vector.get("padding") else Documents
    data = bytes.fromhex(vector["hex"])
    found = grammar.parse(data)
    assert grammar.build(found) == data
    return found.documents


@pytest.mark.parametrize("file", ["decode_documents", "malformed"])
def test_java_s_document_list_is_the_grammar_s(file: str) -> None:
    for vector in load(file):
        java = [each for each in vector["documents"] if each["present"]]
        found = states_of(vector)
        # to Java what is not complete is data
        assert [
            {
                "length": len(state.body),
                "notComplete": state.header.not_complete,
                "meta": state.header.metadata and not state.header.not_complete,
            }
            for state in found
        ] == [{key: each[key] for key in ("length", "notComplete", "meta")} for each in java]
        ready = [state.body for state in found if not state.header.not_complete]
        complete = [document.body for document in documents_of(vector)]
        assert complete == ready[: len(complete)]
        assert len(complete) == len(ready)


# by name of the vector: the structure of each document; those by field name come back by event name
STRUCTURES = {
    "uber.seed": [structures.SeedDataHandler],
    "uber.network": [structures.UberHandler],
    "heartbeatHandler.seed": [structures.SeedRouting, structures.SeedMetaHandler],
    "heartbeatHandler.network": [structures.Registration],
    "heartbeat(": [structures.SelectHandler, structures.Heartbeat],
    "eos": [structures.SelectHandler, structures.EndOfStream],
    "ack(": [structures.SelectHandler, structures.Acknowledgement],
    "re.": [structures.SelectHandler, structures.ReplicationEvent],
}
SEED_REPLICATION = [structures.SeedRouting, structures.SeedDataHandler]
READ_ONLY = (".onedoc", "eos.with comment")


def structures_of(vector: Vector) -> list[Any]:
    if ".onedoc" in vector["name"]:
        return [structures.Registration]
    for start, found in STRUCTURES.items():
        if vector["name"].startswith(start):
            return found * (len(vector["build"]) // len(found))
    return SEED_REPLICATION


@pytest.mark.parametrize(
    "vector",
    [vector for vector in load("replication") if is_binary(vector)],
    ids=lambda vector: vector["name"],
)
def test_messages_by_name(vector: Vector) -> None:
    documents = [Document.build(document) for document in documents_of(vector)]
    for structure, document in zip(structures_of(vector), documents, strict=True):
        value = structure.parse(document)
        built = structure.build(value)
        if any(part in vector["name"] for part in READ_ONLY):
            value = structure.parse(built)
            assert structure.build(value) == built
        else:
            assert built == document


def queue_files(suffix: str) -> Iterator[tuple[str, bytes]]:
    for archive in sorted(QUEUES.glob("*.tar.gz")):
        with tarfile.open(archive) as files:
            for member in files:
                if member.name.endswith(suffix):
                    content = files.extractfile(member)
                    assert content is not None
                    yield member.name, content.read(1 << 17)


def test_header_of_every_real_store_file_comes_back() -> None:
    files = dict(queue_files(".cq4"))
    assert len(files) == 84
    for name, data in files.items():
        header = structures.StoreHeader.parse(data)
        if name.partition("/")[0] not in OLD:  # old versions padded in another way
            assert data.startswith(structures.StoreHeader.build(header)), name


def test_every_real_table_store_comes_back() -> None:
    files = dict(queue_files(".cq4t"))
    assert len(files) > 30
    for name, data in files.items():
        table = structures.TableStore.parse(data)
        if name.partition("/")[0] not in OLD:  # old versions wrote integers in another width
            assert data.startswith(structures.TableStore.build(table)), name
        assert len(table.entries) >= 3
        assert len({entry.key for entry in table.entries}) == len(table.entries)


def test_start_of_a_store_file_comes_back_with_its_index_pages() -> None:
    starts = {
        vector["name"]: bytes.fromhex(vector["hex"])
        for vector in load("queue_headers")
        if vector["name"] in ("queue.1.TEST4_DAILY.3.cq4", "queue.2.TEST4_DAILY.10.cq4")
    }
    assert len(starts) == 2
    for data in starts.values():
        start = structures.StoreFile.parse(data)
        assert data.startswith(structures.StoreFile.build(start))
        indexing = start.header.store.indexing
        assert (indexing.indexCount, indexing.indexSpacing, indexing.index2Index) == (32, 4, 200)
        first = start["index"].positions["values"][0]
        assert first == 784
        assert start.index2index.positions["values"][0] == 496
        assert Document.parse(data[first:]).body.startswith(b"\xc1n")


def test_what_the_grammar_refuses_in_the_vectors_the_reader_refuses() -> None:
    refused = 0
    for vector in load("malformed", "decode_fields", "decode_values"):
        for document in documents_of(vector):
            try:
                found = Fields.parse(document.body)
            except ConstructError:
                refused += 1
                with pytest.raises(WireError):
                    Reader(document.body).read_fields()
            else:
                # the reader of the data path has no names that are objects
                assert all("code" in each.name for each in found.fields)
                Reader(document.body).read_fields()
    assert refused > 80
