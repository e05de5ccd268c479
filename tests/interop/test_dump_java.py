"""`wire-dump --plain` beside Java's own dump, on the same bytes of every golden queue file.

One habit of Java's is not copied: in native memory, where queue files are, it takes the bytes of a
short field name as signed, so the byte C5 shows as U+FFC5; on the heap, where the golden vectors
were made, it shows as U+00C5. Some excerpts of random bytes begin like such names. In their files
these spellings are made equal before the comparison, in all others nothing is.
"""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cqrepl.cli.wiredump import main
from tests.support.goldens import NAMES, OLD, unpack
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from wire.text.print_documents import dump_text

SIGNED_NAMES = {"huge_daily", "large_daily", "minutely_many", "test4_secondly_overflow"}
SIGNED = re.compile(r"\\uFF([89A-F][0-9A-F])")
SHORT = {"85": r"\N", "A0": r"\_"}

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]


def java_dump(java: JavaQueue, file: Path) -> str:
    out, before = file.with_suffix(".java"), file.stat().st_mtime_ns
    java.call("dumpfile", file, out)
    assert file.stat().st_mtime_ns == before
    return out.read_bytes().decode()


def plain_dump(file: Path) -> str:
    """The text that the command prints; a file that ends within a document is damaged."""
    result = CliRunner().invoke(main, ["--plain", str(file)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (0, 4), result.stderr
    return result.stdout_bytes.decode()


def unsigned(text: str) -> str:
    """Java's text with the characters that it took as signed as what they are."""
    return SIGNED.sub(lambda match: SHORT.get(match[1], f"\\x{match[1]}"), text)


# Java's dump takes each file for one with aligned headers, and so loses its way in old ones
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OLD])
def test_plain_dump_of_every_golden_file_is_that_of_java(
    java: JavaQueue, tmp_path: Path, name: str
) -> None:
    files = sorted(unpack(name, tmp_path).glob("*.cq4*"))
    assert files
    for file in files:
        theirs = java_dump(java, file)
        if name in SIGNED_NAMES:
            theirs = unsigned(theirs)
        assert plain_dump(file) == theirs, file.name
        assert dump_text(file.read_bytes(), padding=True) == theirs, file.name


@pytest.mark.parametrize("cut_at", [2, 100, 300, 33100, 65815, 65840])
def test_plain_dump_of_a_truncated_file_is_that_of_java(
    java: JavaQueue, tmp_path: Path, cut_at: int
) -> None:
    (store,) = unpack("fast_daily_basic", tmp_path).glob("*.cq4")
    os.truncate(store, cut_at)
    assert plain_dump(store) == java_dump(java, store)
