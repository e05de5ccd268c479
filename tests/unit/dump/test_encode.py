"""`wire-dump --encode`: text in, bytes out."""

import io
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.console.output import OutputError
from cqrepl.dump import encoder
from cqrepl.dump.printer import Printer
from tests.support.goldens import unpack
from wire import dump_text, dumps


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def test_text_on_standard_input() -> None:
    result = run("--encode", stdin=b"csp: /\ncid: 1\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == dumps({"csp": "/", "cid": 1})


def test_dump_of_a_queue_file(tmp_path: Path) -> None:
    data = (unpack("fast_daily_basic", tmp_path) / "20240305F.cq4").read_bytes()
    text = dump_text(data, padding=True)
    file = tmp_path / "text"
    file.write_text(text, encoding="utf-8")
    result = run("--encode", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert dump_text(result.stdout_bytes, padding=True) == text


def test_error_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("a: 1\nb: [")
    result = run("--encode", file)
    assert (result.exit_code, result.stdout_bytes) == (4, b"")
    expected = "line 2, column 5: a value was expected, the end came"
    assert result.stderr == f"wire-dump: {file}: {expected}\n"


def test_text_that_is_not_utf_8() -> None:
    result = run("--encode", "-", stdin=b"a: 1\nb: \xc3\xa9\xff")
    expected = "line 2, column 5: text in UTF-8 was expected, 0xFF came"
    assert (result.exit_code, result.stderr) == (4, f"wire-dump: standard input: {expected}\n")


def test_file_that_is_not_there(tmp_path: Path) -> None:
    result = run("--encode", tmp_path / "none")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("more", [["a", "b"], ["--json"], ["--plain"]])
def test_goes_with_one_file_only(more: list[str]) -> None:
    assert run("--encode", *more).exit_code == 2


def test_cut_off_text_is_no_store() -> None:
    cut_off = b"#  has a 4 byte size prefix, 9 > 1 len is 9"
    assert encoder.encoded_documents(cut_off) == b"\x09\0\0\0\0"
    assert encoder.encoded_documents(b"") == b""


class Full(io.BytesIO):
    """Takes no bytes."""

    def write(self, data: object) -> int:
        raise OSError


def test_output_that_takes_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("a: 1")
    printer = Printer(as_json=False, with_hex=False)
    for output in (None, io.TextIOWrapper(io.BufferedWriter(Full()))):
        monkeypatch.setattr("sys.stdout", output)
        with pytest.raises(OutputError):
            encoder.encode_input(printer, str(file))
        monkeypatch.undo()
