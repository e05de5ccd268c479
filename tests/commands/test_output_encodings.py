"""Commands whose standard output has an encoding that lacks what they are to print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqrepl.queue import Queue

LETTERS = "grün \u20ac \U0001f600"
ESCAPED = r"gr\u00fcn \u20ac \ud83d\ude00"


def printed(encoding: str, *words: str) -> bytes:
    """The bytes that a command prints, which succeeds."""
    asked = [sys.executable, "-P", "-m", "cqrepl", *words]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(asked, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def queue_at(path: Path) -> str:
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        queue.append(LETTERS.encode(), now_ms=1_700_000_000_000)
    return str(path)


@pytest.mark.parametrize("words", [[], ["--as", "text"], ["--format", "{data}"]])
def test_letters_that_an_encoding_lacks_are_escaped(tmp_path: Path, words: list[str]) -> None:
    path = queue_at(tmp_path / "q")
    assert printed("ascii", "tail", path, *words).decode("ascii").strip().endswith(ESCAPED)
    latin = printed("latin-1", "tail", path, *words).decode("latin-1").strip()
    assert latin.endswith(r"grün \u20ac \ud83d\ude00")
    assert printed("utf-8", "tail", path, *words).decode().strip().endswith(LETTERS)


def test_escaped_json_says_the_same(tmp_path: Path) -> None:
    line = printed("ascii", "tail", queue_at(tmp_path / "q"), "--json")
    assert line.isascii()
    assert json.loads(line)["data"] == LETTERS


def test_a_name_that_is_no_text_is_printed_as_it_is(tmp_path: Path) -> None:
    """As in a locale whose standard output is strict, which that of C is not."""
    path = queue_at(tmp_path / os.fsdecode(b"odd\xffname"))
    assert b"odd\xffname" in printed("utf-8:strict", "info", path)
