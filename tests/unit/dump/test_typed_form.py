"""`wire-dump --typed`, and the same bytes again by `wire-dump --encode`."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.cli.wiredump import main
from cqrepl.dump import read_documents
from cqrepl.dump.encoder import encoded_documents
from cqrepl.dump.typedform import typed_texts
from tests.strategies import THOROUGH, garbage, item_bytes
from wire.header import META_DATA

VECTORS = Path(__file__).parents[2] / "vectors"


def typed(data: bytes) -> str:
    return "".join(typed_texts(read_documents(io.BytesIO(data))))


def framed(body: bytes, flags: int = 0) -> bytes:
    return (len(body) | flags).to_bytes(4, "little") + body


@THOROUGH
@given(st.lists(st.tuples(item_bytes | garbage, st.sampled_from((0, META_DATA))), max_size=4))
@example([(bytes.fromhex("c178a60100000060"), 0)])
def test_any_documents_come_back_as_they_were(bodies: list[tuple[bytes, int]]) -> None:
    data = b"".join(framed(body, flags) for body, flags in bodies if body)
    assert encoded_documents(typed(data).encode()) == data


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("a101", "!uint8 1"),
        ("a20100", "!uint16 1"),
        ("a301000000", "!uint32 1"),
        ("a401", "!byte 1"),
        ("a50100", "!short 1"),
        ("a601000000", "!int 1"),
        ("a70100000000000000", "!long 1"),
        ("900000803f", "!float 1.0"),
        ("91000000000000f03f", "!double 1.0"),
    ],
)
def test_a_number_says_its_width(item: str, text: str) -> None:
    data = framed(bytes.fromhex("c178" + item))
    assert typed(data) == f"--- !!data #binary\nx: {text}\n"
    assert encoded_documents(typed(data).encode()) == data


def test_recorded_sessions_come_back_as_they_were() -> None:
    for file in sorted((VECTORS / "network").glob("*.json")):
        entries = json.loads(file.read_text())
        for direction in sorted({entry["dir"] for entry in entries if "hex" in entry}):
            chosen = [
                each
                for each in entries
                if "hex" in each and each["dir"] == direction and each["conn"] == 1
            ]
            data = bytes.fromhex("".join(each["hex"] for each in chosen))
            if data:
                assert encoded_documents(typed(data).encode()) == data, file.name


def test_a_body_of_text_stays_text() -> None:
    data = framed(b"a: 1\n")
    assert typed(data) == "--- !!data\na: 1\n"
    assert encoded_documents(typed(data).encode()) == data


def test_the_commands_do_so(tmp_path: Path) -> None:
    data = framed(bytes.fromhex("c178a601000000c179a70200000000000000"))
    (tmp_path / "stream").write_bytes(data)
    shown = CliRunner().invoke(main, ["--typed", str(tmp_path / "stream")])
    assert shown.stdout == "--- !!data #binary\nx: !int 1\ny: !long 2\n"
    assert CliRunner().invoke(main, ["--encode"], input=shown.stdout).stdout_bytes == data
    refused = CliRunner().invoke(main, ["--typed", "--plain", str(tmp_path / "stream")])
    assert (refused.exit_code, "do not go together" in refused.stderr) == (2, True)
