"""Properties files are read as Java's own `Properties.load` reads them, whatever their bytes."""

import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.console.exitcodes import BadArguments
from cqrepl.persist.properties import entries
from tests.support.java import require_java
from tests.support.javabuild import BUILD_TIMEOUT_S

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

PROGRAM: Final = """
import java.io.*;
import java.util.*;

public final class Loads {
    static String hex(String text) {
        StringBuilder out = new StringBuilder(".");
        for (char each : text.toCharArray()) out.append(String.format("%04x", (int) each));
        return out.toString();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] data = new byte[line.length() / 2];
            for (int i = 0; i < data.length; i++)
                data[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            Properties found = new Properties();
            String said;
            try {
                found.load(new ByteArrayInputStream(data));
                StringBuilder all = new StringBuilder("ok");
                found.remove(""); // of a lone backslash at the end: a key that has no name
                for (String key : new TreeSet<>(found.stringPropertyNames()))
                    all.append(' ').append(hex(key)).append(hex(found.getProperty(key)));
                said = all.toString();
            } catch (IllegalArgumentException e) {
                said = "malformed";
            }
            System.out.println(said);
            System.out.flush();
        }
    }
}
"""
# bytes that mean something, more often than others
PIECES: Final = st.one_of(
    st.sampled_from(
        [
            b"\\",
            b"\n",
            b"\r\n",
            b"\r",
            b"=",
            b":",
            b" ",
            b"\t",
            b"\f",
            b"#",
            b"!",
            b"\\u00e9",
            b"\\u",
        ]
    ),
    st.sampled_from([b"a", b"key", b"\\n", b"\\z", b"\xe9", b"\x00", b"\\ud83d\\ude00"]),
    st.binary(min_size=1, max_size=3),
)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    require_java()
    source = tmp_path_factory.mktemp("java") / "Loads.java"
    source.write_text(PROGRAM)
    with subprocess.Popen(
        ["java", str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield program
        assert program.stdin is not None
        program.stdin.close()


def said_by(java: "subprocess.Popen[str]", data: bytes) -> str:
    assert java.stdin is not None
    assert java.stdout is not None
    java.stdin.write(f"{data.hex()}\n")
    java.stdin.flush()
    return java.stdout.readline().rstrip("\n")


def said_here(data: bytes) -> str:
    try:
        found = {entry.name: entry.text for entry in entries(data, "f") if entry.name}
    except BadArguments:
        return "malformed"
    return " ".join(
        ["ok", *(hexed(name) + hexed(found[name]) for name in sorted(found, key=units))]
    )


def units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def hexed(text: str) -> str:
    return "." + units(text).hex()


@given(st.lists(PIECES, max_size=12).map(b"".join))
@example(b"a = b\\\n   c\n ! note \\\nd\n\\  e=f")
@example(b"storageFactory=com.epam\\.X\r\nreplicationTimeout : 10 ")
def test_entries_are_those_that_java_reads(java: "subprocess.Popen[str]", data: bytes) -> None:
    assert said_here(data) == said_by(java, data)
