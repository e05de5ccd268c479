"""The grammar against Java: what it parses it builds again, for every vector and real file."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError

from cqrepl.protocol.messages import read_replication_event
from tests.support.goldens import OLD
from tests.support.vectors.constructs import grammar_of, same
from tests.support.vectors.manifest import FILES, Vector, calls_key, is_binary, load
from tests.support.vectors.values import ConvertedTypeError, body_value
from wire import Reader, WireError, decode
from wire.codes import Code
from wire.grammar import (
    Body,
    Content,
    Document,
    Documents,
    EndOfData,
    Fields,
    NotReady,
    Number,
    PaddedDocuments,
    PaddedStates,
    States,
    Values,
    field,
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
from wire.header import END_OF_FILE, NOT_COMPLETE

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


def test_words_of_documents_that_are_not_there() -> None:
    assert NotReady.build(None) == NOT_COMPLETE.to_bytes(4, "little")
    assert EndOfData.build(None) == END_OF_FILE.to_bytes(4, "little")
    assert [len(state.body) for state in States.parse(EndOfData.build(None)).documents] == [0]


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


@pytest.mark.parametrize(
    "body",
    [
        "820d000000" + "a101" + "8008c161a101c162e178" + "05",
        "800d" + "a101" + "8008c161a101c162e178" + "05",
        "b60146" + "820d000000" + "a101" + "8008c161a101c162e178" + "05",
        "a101" + "8008c161a101c162e178" + "05",
        "820c000000" + "a101" + "8008c161a101c162e178",
    ],
)
def test_replication_event_in_every_form_that_is_read(body: str) -> None:
    content = bytes.fromhex("c27265" + body)
    event = structures.ReplicationEvent.parse(len(content).to_bytes(4, "little") + content).re
    reader = Reader(content)
    assert reader.read_name() == "re"
    batch, ns = read_replication_event(reader)
    assert (event.index, event.payload, event.ns or 0) == (
        batch.index_first,
        bytes(batch.payload(0)),
        ns,
    )


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
        ("a101c162a102", "values"),
        ("bda105a101", "fields"),
        ("", "values"),
        ("860105000000020000000000000001ffffffffffffffff", "timings"),
        ("8a0102", None),
    ],
)
def test_content_of_a_block_by_its_first_byte(content: str, kind: str | None) -> None:
    data = bytes.fromhex(content)
    found = Content.parse(data)
    assert kind in found if kind else found == b"\1\2"
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
