"""Properties files of FIX Antenna: each key of its replication service has its row here, with the
default, a value that can be used, one that cannot, and its effect."""

from pathlib import Path
from typing import Final

import pytest

from cqrepl.console.exitcodes import BadArguments
from cqrepl.persist.properties import PersistProperties, load_properties, read_properties
from cqrepl.persist.properties import without_effect as sentence_of
from cqrepl.persist.propertykeys import KEYS, WAIT_STRATEGIES
from tests.support.invoke import Invoke

WAIT: Final = "com.lmax.disruptor.BlockingWaitStrategy"
IDLE: Final = "org.agrona.concurrent.SleepingIdleStrategy"
LEADER: Final = "fej.replication.leader"
BACKUP: Final = "fej.replication.backup"
AERON: Final = "fej.replication.aeron"
EPAM: Final = "com.epam.fixengine.storage.persistence"
# property, default, a text that can be used, its value, a text that cannot, whether it has an
# effect: the keys as the older edition of the vendor's page prints them
ROWS: Final = (
    (f"{LEADER}.sync", False, "false", False, "yes", True),
    (f"{LEADER}.async.timeout", 0, "25", 25, "-1", True),
    (f"{LEADER}.receive.buffer.size", 512, "1024", 1024, "1000", False),
    (f"{LEADER}.receive.wait.strategy", "balanced", WAIT, "balanced", "os.System", False),
    (f"{LEADER}.send.buffer.size", 2048, "4096", 4096, "2049", True),
    (f"{LEADER}.send.wait.strategy", "balanced", WAIT, "balanced", "Blocking", True),
    (f"{BACKUP}.receive.buffer.size", 1024, "1", 1, "0", False),
    (f"{BACKUP}.receive.wait.strategy", "balanced", WAIT, "balanced", "", False),
    (f"{BACKUP}.send.buffer.size", 512, "512", 512, "12.0", False),
    (f"{BACKUP}.send.wait.strategy", "balanced", WAIT, "balanced", WAIT + "X", False),
    (f"{AERON}.mediadriver.embedded", True, "False", False, "0", False),
    (f"{AERON}.idle.strategy", "balanced", IDLE, "sleepy", WAIT, True),
    (
        "storageFactory",
        None,
        f"{EPAM}.PersistenceEnableFactory",
        "PersistenceEnableFactory",
        f"{EPAM}.Other",
        True,
    ),
    (
        "storage.persistenceFactoryBuilder",
        None,
        f"{EPAM}.ReplicatedPersistenceFactoryBuilder",
        "ReplicatedPersistenceFactoryBuilder",
        "builtins.eval",
        True,
    ),
    ("replicationTimeout", None, "10", 10, "10ms", True),
)


def read(*lines: str) -> PersistProperties:
    return read_properties("\n".join(lines).encode(), "f")


def said(*lines: str) -> str:
    with pytest.raises(BadArguments) as caught:
        read(*lines)
    return str(caught.value)


def test_the_rows_are_all_keys_but_the_clear_name_of_the_time() -> None:
    assert {row[0] for row in ROWS} == KEYS.keys() - {f"{LEADER}.sync.timeout"}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_key_has_its_default_its_values_and_its_effect(
    row: tuple[str, object, str, object, str, bool],
) -> None:
    name, default, text, value, wrong, has_effect = row
    assert KEYS[name].default == default
    (use,) = read(f"{name}={text}").uses
    assert (use.value, use.has_effect) == (value, has_effect)
    assert use.entry.line == 1
    wanted = said("# a comment", f"{name}={wrong}")
    assert wanted.startswith(f"f:2: {name}: expected "), wanted
    assert wanted.endswith((f"got {wrong!r}", f"got {wrong}")), wanted


def test_an_empty_file_stands_for_the_defaults() -> None:
    found = read()
    assert (found.is_synchronous, found.timeout_ms, found.default_timeout_ms) == (False, 0, 0)
    assert (found.window, found.pauser, found.session_timeout_ms("s")) == (None, None, 0)


def test_synchronous_with_no_time_is_refused_by_both_names() -> None:
    for lines in (
        (f"{LEADER}.sync=true",),
        (f"{LEADER}.sync=true", f"{LEADER}.async.timeout=0"),
        (f"{LEADER}.sync.timeout=0", f"{LEADER}.sync=TRUE"),
    ):
        wanted = said(*lines)
        assert f"{LEADER}.sync=true" in wanted
        assert "sync.timeout" in wanted or "async.timeout" in wanted
    found = read(f"{LEADER}.sync=true", f"{LEADER}.async.timeout=10")
    assert (found.is_synchronous, found.default_timeout_ms) == (True, 10)


def test_a_time_alone_makes_nothing_synchronous() -> None:
    found = read(f"{LEADER}.async.timeout=10")
    assert (found.is_synchronous, found.timeout_ms, found.default_timeout_ms) == (False, 10, 0)


def test_the_clear_name_of_the_time_is_the_same_property() -> None:
    found = read(f"{LEADER}.sync=true", f"{LEADER}.sync.timeout=7")
    assert found.default_timeout_ms == 7
    both = (f"{LEADER}.sync.timeout=7", f"{LEADER}.async.timeout=8")
    assert "got 7 and 8" in said(*both)
    assert read(both[0], f"{LEADER}.async.timeout=7").timeout_ms == 7


def test_a_send_buffer_is_a_window_and_its_wait_strategy_a_pauser() -> None:
    found = read(
        f"{LEADER}.send.buffer.size=256",
        f"{LEADER}.send.wait.strategy=com.lmax.disruptor.SleepingWaitStrategy",
        f"{AERON}.idle.strategy=NoOpIdleStrategy",
    )
    assert (found.window, found.pauser) == (256, "sleepy")
    assert read(f"{AERON}.idle.strategy=NoOpIdleStrategy").pauser == "busy"
    for name, pauser in WAIT_STRATEGIES.items():
        assert read(f"{LEADER}.send.wait.strategy={name}").pauser == pauser


def test_a_session_has_its_own_time_above_that_of_the_engine() -> None:
    found = read(
        "replicationTimeout=10",
        "sessions.default.replicationTimeout=20",
        "sessions.A-B.replicationTimeout=0",
    )
    assert [found.session_timeout_ms(each) for each in ("A-B", "C-D")] == [0, 20]
    assert read("replicationTimeout=10").session_timeout_ms("A-B") == 10
    default = read(f"{LEADER}.sync=true", f"{LEADER}.async.timeout=5")
    assert default.session_timeout_ms("A-B") == 5
    assert "sessions.A-B.replicationTimeout" in said("sessions.A-B.replicationTimeout=soon")


def test_an_unknown_key_of_replication_is_refused_and_one_of_aeron_or_the_engine_is_not() -> None:
    assert "got 'fej.replication.leader.synch'" in said("fej.replication.leader.synch=true")
    found = read("aeron.dir=/dev/shm/a", "aeron.never.heard=1", "sessionIDs=A-B", "port=9")
    assert [use.has_effect for use in found.uses] == [False, False]
    assert found.passed_over == 2


def test_one_sentence_names_all_that_has_no_effect() -> None:
    lines = (f"{BACKUP}.send.buffer.size=512", "aeron.dir=/a", f"{LEADER}.sync=false")
    sentence = sentence_of(read(*lines))
    assert sentence == (
        f"f: these properties have no effect here: aeron.dir, {BACKUP}.send.buffer.size"
    )
    assert sentence_of(read(f"{LEADER}.sync=false")) == ""


def test_lines_are_counted_as_people_count_them_and_the_last_entry_counts() -> None:
    found = read(f"{LEADER}.sync = \\", "  false", "", "! note", "replicationTimeout:3")
    assert [use.entry.line for use in found.uses] == [1, 5]
    assert read("replicationTimeout=3", "replicationTimeout 4").session_timeout_ms("") == 4
    assert said("", "a=\\u00g0").startswith("f:2: expected four digits")


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.properties"
    path.write_bytes(b"a=b\n" * (1 << 18) + b"#")
    with pytest.raises(BadArguments, match="at most 1048576 bytes"):
        load_properties(path)


def test_check_says_what_each_key_does(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "replication.properties"
    path.write_text(
        f"{LEADER}.sync=true\n{LEADER}.async.timeout=10\naeron.dir=/a\nsessions.A.replicationTimeout=0\n"
    )
    result = invoke("persist", "check", path)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{path}:1: {LEADER}.sync=true: ")
    assert "no effect" in lines[2]
    assert lines[4:] == ["defaults: {mode: sync, ackTimeout: 10ms}", "session A: asynchronous"]
    assert '"ackTimeoutMs":10' in invoke("persist", "check", path, "--json").output


@pytest.mark.parametrize("text", [f"{LEADER}.sync=true", f"{LEADER}.sync=2", "a=\\u1"])
def test_check_says_one_line_of_what_is_wrong(tmp_path: Path, invoke: Invoke, text: str) -> None:
    path = tmp_path / "replication.properties"
    path.write_text(text)
    result = invoke("persist", "check", path)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"cqrepl persist: {path}:1: ")
    assert "expected" in line
    assert invoke("persist", "check", tmp_path / "none").exit_code == 2
