"""The grammar against Java: what it parses it builds again, for every vector and real file."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError, GreedyRange, Select, Struct, Terminated

from tests.unit.wire.vectors import NOT_YET_READ, VECTORS, Vector, is_binary, kinds, load
from wire import Reader, WireError
from wire import grammar_structures as structures
from wire.grammar import (
    Content,
    Document,
    Documents,
    Field,
    Fields,
    Fillers,
    Number,
    PaddedDocuments,
    Value,
    Values,
    field,
)
from wire.header import END_OF_FILE

QUEUES = Path(__file__).parents[2] / "vectors" / "queues"
BUILT = sorted(file.stem for file in VECTORS.glob("*.jsonl") if file.stem != "legacy")
# some vectors have values without a name directly in a document
FIELDS_AND_VALUES = Struct("items" / GreedyRange(Select(Field, Value)), Fillers, Terminated)
# fields whose names are objects; the bytes of two defects; calls that stand outside any field
LEFT_OUT = NOT_YET_READ | {"map", "marshallableMap", "object", "rawWireBytes", "untypedObject"}


def documents_of(vector: Vector) -> Any:
    grammar = PaddedDocuments if vector.get("padding") else Documents
    data = bytes.fromhex(vector["hex"])
    found = grammar.parse(data)
    assert grammar.build(found) == data
    return found.documents


@pytest.mark.parametrize("file", BUILT)
def test_documents_come_back(file: str) -> None:
    for vector in load(file):
        documents_of(vector)


@pytest.mark.parametrize(
    "file", [file for file in BUILT if file not in ("decode_documents", "queue_headers")]
)
def test_fields_come_back(file: str) -> None:
    for vector in load(file):
        if "build" in vector and is_binary(vector) and not kinds(vector) & LEFT_OUT:
            for document in documents_of(vector):
                grammar = Fields if ".root" not in vector["name"] else FIELDS_AND_VALUES
                assert grammar.build(grammar.parse(document.body)) == document.body


def test_java_s_document_list_is_the_grammar_s() -> None:
    for vector in load("decode_documents", "malformed"):
        ready = [
            each for each in vector["documents"] if each["present"] and not each["notComplete"]
        ]
        found = documents_of(vector)
        lengths = [each["length"] for each in ready]
        assert [len(document.body) for document in found] == lengths[: len(found)]
        assert [document.header.metadata for document in found] == [
            each["meta"] for each in ready[: len(found)]
        ]
        assert len(found) == len(ready)


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
    assert len(files) == 79
    for name, data in files.items():
        header = structures.StoreHeader.parse(data)
        assert data.startswith(structures.StoreHeader.build(header)), name


def test_every_real_table_store_comes_back() -> None:
    files = dict(queue_files(".cq4t"))
    assert len(files) > 30
    for name, data in files.items():
        table = structures.TableStore.parse(data)
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


@pytest.mark.parametrize("origin", range(0, 32, 4))
def test_index_page_is_aligned_in_its_file(origin: int) -> None:
    page = structures.index_page("index")
    values = {"capacity": 2, "used": 0, "values": [7, 8]}
    built = page.build({"positions": values}, origin=origin)
    reader = Reader(built, 4)
    assert reader.read_name() == "index"
    assert (origin + reader.read_bound_array()) % 8 == 0


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("c161a101", "fields"),
        ("b90161a101ba05e161", "fields"),
        ("a101a102", "values"),
        ("8fa101", "values"),
        ("8a0102", None),
    ],
)
def test_content_of_a_block_by_its_first_byte(content: str, kind: str | None) -> None:
    data = bytes.fromhex(content)
    found = Content.parse(data)
    assert found == b"\1\2" if kind is None else kind in found
    assert Content.build(found) == data


def test_values_come_back() -> None:
    sequence = bytes.fromhex("05" + "b603466f6fa105" + "8e0100000000" + "90000080bf" + "8f")
    assert Values.build(Values.parse(sequence)) == sequence


@pytest.mark.parametrize("word", [0, 1 << 31, 1 << 31 | 1, END_OF_FILE])
def test_words_that_start_no_document(word: int) -> None:
    data = word.to_bytes(4, "little") + b"x"
    with pytest.raises(ConstructError):
        Document.parse(data)
    assert Documents.parse(data).rest == data


@pytest.mark.parametrize(
    ("structure", "data"),
    [
        (structures.SelectHandler, "07000000c3636964a105"),  # data, not meta-data
        (structures.SelectHandler, "0700008063696400a105"),
        (structures.Heartbeat, "0b000040c9686561727462656174e0"),
        (structures.EndOfStream, "06000000c3656f73bb05"),
        (structures.EndOfStream, "05000000c3656f78bb"),
        (structures.SeedMetaHandler, "0b000040c768616e646c6572b60161"),
        (field("a", Number), "c162a105"),
        (field("a", Number), "c161e135"),
    ],
)
def test_what_is_no_such_structure_is_refused(structure: Any, data: str) -> None:
    with pytest.raises(ConstructError):
        structure.parse(bytes.fromhex(data))


def test_numbers_of_every_code_are_java_s() -> None:
    read = 0
    for vector in load("decode_values"):
        try:
            number = Number.parse(bytes.fromhex(vector["value_hex"]))
        except ConstructError:
            continue
        assert {"i64": number} == vector["read"]["int64"]["value"]
        read += 1
    assert read == 37


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("12", "ba0c"),
        ("007", "ba07"),
        ("2147483648", "ca" + b"2147483648".hex()),
        ("1.5", "c3312e35"),
        ("f" * 32, "b720" + "66" * 32),
    ],
)
def test_names_are_built_as_java_does(name: str, built: str) -> None:
    assert field(name, Number).build(5).hex() == built + "a105"


def test_what_the_grammar_refuses_in_the_vectors_the_reader_refuses() -> None:
    refused = 0
    for vector in load("malformed", "decode_fields", "decode_values"):
        for document in documents_of(vector):
            try:
                Fields.parse(document.body)
            except ConstructError:
                refused += 1
                with pytest.raises(WireError):
                    Reader(document.body).read_fields()
            else:
                Reader(document.body).read_fields()
    assert refused > 80
