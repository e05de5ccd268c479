"""Two hundred configurations that cannot be used: each gets one clear line, with its place.

Most are made from a right one: each key with values that are not of its kind, misspelled, twice;
each mapping as something else, or with a type that it cannot have; the file cut off. The rest stand
in a table.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqrepl.config.yamltree import BYTES_MAX
from tests.support.clusters import FULL, OLDER_PAGE
from tests.support.invoke import Invoke

LINES = FULL.splitlines()
_ENTRY = re.compile(r"( +|\w+: \{|.*?, )?(\w+):(?: (.*))?$")


@dataclass(frozen=True)
class Bad:
    """A text that is no configuration, the line that is named, and what is said."""

    text: str | bytes
    line: int | None
    says: str
    name: str


# keys on lines of their own, with values that are not of their kinds
VALUES = {
    "heartbeatIntervalMs": ["499", "x", "-1", "1.5", "[1]", "{a: 1}", "", "9999999999999", "true"],
    "heartbeatTimeoutMs": ["999", "1000", "500ms", "''", "1e3"],
    "baseSourcePath": ["", "[a]", "{a: b}", "~"],
    "baseSinkPath": ["", "[a, b]", "''"],
    "wireType": ["TEXT", "!WireType TEXT", "!Wire BINARY", "1"],
    "hostId": ["0", "128", "x", "", "[3]", "1", "2.0"],
    "connectUri": ["fourth", "h:0", "h:65536", "'127.0.0.1:9001'", "[a]", "'::1:9000'", "h:"],
    "path": ["[a]", "{a: b}", "trades"],
    "acknowledge": ["yes", "1", "maybe", "", "[true]"],
    "masterId": ["4", "0", "x", "", "host1", "{id: 1}"],
    "sourceId": ["-1", "32768", "!name 1"],
    "rollCycle": ["FAST", "WEEKLY", "7", "[DAILY]"],
    "listen": ["here", "h:99999", "9000", "{a: b}"],
    "addresses": ["third", "{third: here}", "[a]", "{third: 'h:0'}", "{}"],
    "ack": [
        "[a]",
        "now",
        "{orders: always}",
        "{orders: {level: stored}}",
        "{orders: {from: some}}",
        "{orders: {from: 0}}",
        "{orders: {from: 3, hosts: [2, 3]}}",
        "{orders: {hosts: [0]}}",
        "{orders: {hosts: []}}",
        "{orders: {hosts: {a: b}}}",
        "{orders: {timeout: 10}}",
        "{orders: {timeout: -1s}}",
        "{orders: {on_timeout: panic}}",
        "{orders: {on_timeout: fail}}",
        "{orders: {window: 0}}",
        "{orders: {quorum: 2}}",
        "{orders: {preset: zab}}",
        "{orders: }",
    ],
    "maxExcerpt": ["0.5", "16 MiB", "2GiB", "-1", "all", "0"],
    "scrub": ["fast", "-1", "[1]", "2048GiB"],
    "runs": ["yes", "1", ""],
    "wireShape": ["Network", "java", ""],
    "pauser": ["idle", "BUSY", "[busy]"],
    "guests": ["-1", "many", "1.0"],
    "guestRate": ["x", "-5", "0"],
    "limitRate": [
        "x",
        "-5",
        "2048GiB",
        "[1]",
        "{}",
        "{2: x}",
        "{128: 1}",
        "{a: 1}",
        "{2: {3: 1}}",
        "{9: 1MiB}",
    ],
    "ackLog": ["[a]", "{a: b}"],
    "acceptReturns": ["all", "[0]", "[128]", "[a]", "[]", "{a: b}"],
    "returnExcerpts": ["0", "x"],
    "returnSeconds": ["0", "5s", "1.5"],
    "waitFor": ["known", "[200]", "[[2]]"],
    "waitForSeconds": ["-1", "forever"],
    "tailers": ["none", "[all]"],
    "touchAhead": ["x", "8 MiB"],
    "appendLog": ["[a]", "{}"],
    "anyCycle": ["on", "0"],
    "onDivergence": ["go on", "[stop]"],
}
# what another key's line is told, or none
ELSEWHERE = {("addresses", "{}"): 14, ("path", "trades"): 22}
MAPPINGS = {
    "cluster": 2, "context": 3, "host3": 12, "queues": 15, "orders": 16, "cqrepl": 23,
    "source": 36, "sink": 44,
}  # fmt: skip


def line_of(key: str) -> int:
    """The line where a key of the right configuration stands, counted from 1."""
    found = [at for at, line in enumerate(LINES, 1) if re.match(rf" *{key}:", line)]
    return found[0]


def with_line(at: int, line: str) -> str:
    return "\n".join([*LINES[: at - 1], line, *LINES[at:]]) + "\n"


def wrong_values() -> Iterator[Bad]:
    for key, values in VALUES.items():
        at = line_of(key)
        start = LINES[at - 1].partition(":")[0]
        for value in values:
            line = ELSEWHERE.get((key, value), at)
            yield Bad(with_line(at, f"{start}: {value}"), line, "expected", f"{key}={value}")


def misspelled() -> Iterator[Bad]:
    for key in VALUES:
        at = line_of(key)
        wrong = key[:2] + key[3:]
        line = LINES[at - 1].replace(f"{key}:", f"{wrong}:", 1)
        says = f"{wrong!r} came; the nearest one is {key!r}"
        yield Bad(with_line(at, line), at, says, f"{key} as {wrong}")


def twice() -> Iterator[Bad]:
    for key in ("cluster", "heartbeatIntervalMs", "hostId", "masterId", "scrub", "ackLog"):
        at = line_of(key)
        text = "\n".join([*LINES[:at], LINES[at - 1], *LINES[at:]])
        if key != "cluster":
            yield Bad(text, at + 1, f"{key!r} came again, first in line {at}", f"{key} twice")


def no_mappings() -> Iterator[Bad]:
    for key, at in MAPPINGS.items():
        depth = len(LINES[at - 1]) - len(LINES[at - 1].lstrip())
        end = next(
            (n for n in range(at, len(LINES)) if len(LINES[n]) - len(LINES[n].lstrip()) <= depth),
            len(LINES),
        )
        for value in ("", "text", "[a, b]", "!Unknown {a: b}"):
            lines = [*LINES[: at - 1], f"{' ' * depth}{key}: {value}", *LINES[end:]]
            yield Bad("\n".join(lines), None, "expected", f"{key} as {value}")


def cut_off() -> Iterator[Bad]:
    """Chronicle's page, without its end."""
    lines = OLDER_PAGE.splitlines()
    for count in range(1, len(lines), 2):
        yield Bad("\n".join(lines[:count]), None, "expected", f"{count} lines")


def replaced(old: str, new: str, line: int | None, says: str) -> Bad:
    assert old in FULL
    return Bad(FULL.replace(old, new, 1), line, says, f"{old} as {new}"[:60])


TABLE = [
    Bad("", None, "a configuration expected, nothing came", "empty"),
    Bad("# nothing\n", None, "a configuration expected, nothing came", "a comment"),
    Bad("text", 1, "a mapping expected for configuration, 'text' came", "a text"),
    Bad("[1]", 1, "a mapping expected for configuration, a list came", "a list"),
    Bad("a: *b\n", 1, "the name of an anchor before it expected, 'b' came", "no anchor"),
    Bad("*b\n", 1, "a mapping expected, an alias came", "only an alias"),
    Bad("? [a]\n: b\n", 1, "a name expected as a key, a list came", "a list as a key"),
    Bad("? {a: b}\n: b\n", 1, "a name expected as a key, a mapping came", "a mapping as a key"),
    Bad("--- {}\n--- {}\n", 2, "one document expected, a second one came", "two documents"),
    Bad("a: [" * 20 + "]" * 20, 1, "at most 16 levels expected, one more came", "deep"),
    Bad("[" * 100_000, 1, "at most 16 levels expected, one more came", "very deep"),
    Bad(f"a: &a 1\nb: [{'*a,' * 10_001}]", 2, "at most 10000 aliases expected", "many aliases"),
    Bad(b"a" * (16 * 1024 * 1024 + 1), None, "at most 16777216 bytes expected", "large"),
    Bad(b"cluster:\n  \xff\n", 2, "UTF-8 expected, byte 0xff came", "no text"),
    Bad("cluster:\n  a\0b: 1\n", 2, r"printable text expected, '\x00' came", "no printable text"),
    Bad("cluster:\n\ta: 1\n", 2, "YAML expected", "a tab"),
    Bad("cluster: 'a\n", None, "YAML expected", "an open quote"),
    Bad("%YAML 3.0\n--- {}\n", 1, "expected", "another YAML"),
    Bad(
        "%TAG ! tag:x,2000:\n--- !a {}\n",
        2,
        "expected for configuration, 'tag:x,2000:a' came",
        "tags",
    ),
    Bad(
        "!!python/object:os.system {}\n", 1, "expected for configuration, 'tag:yaml.org", "a class"
    ),
    Bad("!java.lang.Runtime {a: b}\n", 1, "'!java.lang.Runtime' came", "a Java class"),
    Bad("{cluster: {}}", 1, "'context' with the base paths expected", "an empty cluster"),
    Bad("{queues: {}}", 1, "'cluster' expected, nothing came", "no cluster"),
    Bad("<<: {a: b}\n", 1, "'<<' came; the nearest one is", "a merge key"),
    replaced("!QueueReplicationCfg", "!QueueReplication", 1, "'!QueueReplication' came"),
    replaced("!QueueClusterContext", "!ClusterContext", 3, "'!ClusterContext' came"),
    replaced("!ReplicatedQueueCfg", "!QueueCfg", 22, "'!QueueCfg' came"),
    replaced("queues:\n", "queue:\n", 15, "the nearest one is 'queues'"),
    replaced("cqrepl:\n", "cqRepl:\n", 23, "the nearest one is 'cqrepl'"),
    replaced("context:", "contxt:", 3, "'context' with the base paths expected"),
    replaced("cluster:\n", "context: {}\ncluster:\n", 2, "either 'cluster' or 'context'"),
    replaced("hostId: 2", "hostId: 1", 11, "'host1' has 1 too"),
    replaced("{hostId: 2, ", "{", 11, "'hostId' expected for host 'host2'"),
    replaced("masterId: 2", "", 22, "'masterId' expected for queue 'trades'"),
    replaced("orders:\n", "or ders:\n", 16, "a queue name of letters, digits"),
    replaced("orders:\n", "-orders:\n", 16, "a queue name of letters, digits"),
    replaced("orders:\n", f"{'o' * 129}:\n", 16, "at most 128"),
    replaced("orders:\n", "../orders:\n", 16, "a queue name of letters, digits"),
    replaced("shop/orders", "./shop/../trades", 22, "'orders' has 'trades' too"),
    replaced("9002", "9001", 11, "host 1 has 127.0.0.1:9001 too"),
    replaced("127.0.0.1:9003", "127.0.0.1:9002", 14, "host 2 has 127.0.0.1:9002 too"),
    replaced("    connectUri: third\n", "", None, ""),
]


def without_addresses() -> Iterator[Bad]:
    for who, line in (("host1", 10), ("host2", 11)):
        text = FULL.replace("    connectUri: third\n", "")
        text = re.sub(rf"({who}: {{hostId: .), connectUri: \"[^\"]*\"", r"\1", text)
        yield Bad(text, line, "neither has one", f"{who} and host3 without addresses")


def several() -> Iterator[Bad]:
    yield from wrong_values()
    yield from misspelled()
    yield from twice()
    yield from no_mappings()
    yield from cut_off()
    yield from without_addresses()
    yield from (each for each in TABLE if each.says)


ALL = list(several())


def test_there_are_two_hundred() -> None:
    assert len({each.text for each in ALL}) >= 200


def test_the_right_one_is_taken(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FULL)
    result = invoke("config", "check", tmp_path / "cluster.yaml")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("bad", ALL, ids=lambda bad: bad.name[:60])
def test_a_bad_configuration_gets_one_clear_line(invoke: Invoke, tmp_path: Path, bad: Bad) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(bad.text.encode() if isinstance(bad.text, str) else bad.text)
    result = invoke("config", "check", path)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < len(str(path)) + 300
    assert bad.says in result.stderr
    start = f"cqrepl config: {path}:"
    assert result.stderr.startswith(start if bad.line is None else f"{start}{bad.line}:")
    assert "expected" in result.stderr


def test_a_file_without_end_is_not_read_to_it(invoke: Invoke, tmp_path: Path) -> None:
    """A device's name given by mistake would take all memory; so would a file of eight TiB."""
    path = tmp_path / "cluster.yaml"
    path.touch()
    os.truncate(path, 1 << 43)
    result = invoke("config", "check", path)
    says = f"at most {BYTES_MAX} bytes expected, more came"
    assert result.stderr == f"cqrepl config: {path}: {says}\n"
    assert result.exit_code == 2
