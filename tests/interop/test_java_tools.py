"""The Java tools themselves: what other interop tests take for granted about them."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.goldens import manifest, unpack
from tests.support.java import (
    JavaEndedError,
    JavaPeer,
    JavaQueue,
    Line,
    queue_jar,
    require_java,
    run_network,
)
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payloads
from tests.support.ports import reserved_port
from tests.support.requirements import require

# the first test that runs may have to wait for Maven
pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

UNLOCKED = -(1 << 63)
SOON = {"interop.timeoutMs": 200}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return unpack("fast_daily_basic", tmp_path)


def meta_of(java: JavaQueue, queue: Path) -> dict[str, int]:
    lines = java.call("meta", queue, props={"interop.readOnly": True}).lines
    return {line["key"]: line["value"] for line in lines}


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "name", ["fast_daily_basic", "two_writers", "big_payloads", "epoch_2020", "ten_minutely"]
)
def test_dump_agrees_with_the_manifest(java: JavaQueue, tmp_path: Path, name: str) -> None:
    queue = unpack(name, tmp_path)
    golden = manifest(name)
    *excerpts, summary = java.call("dump", queue, "--sha").lines
    assert excerpts == golden.dumped()
    assert summary["count"] == len(golden.excerpts)
    assert summary["lastIndex"] == golden.excerpts[-1]["index"]
    assert summary["rollCycle"] == golden.roll_cycle_name


def test_verify_counts_each_cycle(java: JavaQueue, tmp_path: Path) -> None:
    answer = java.call("verify", unpack("two_writers", tmp_path))
    assert answer.exit == 0
    assert answer.lines == [
        {"ok": True, "count": 60, "cycles": {"28493891": 31, "28493892": 29}, "errors": []}
    ]


def test_verify_finds_a_wrong_length(java: JavaQueue, tmp_path: Path) -> None:
    queue = unpack("two_writers", tmp_path)
    store = min(queue.glob("*.cq4"))
    raw = bytearray(store.read_bytes())
    first_body = raw.index(bytes.fromhex("5fc51814b0f09442e2249729"))
    raw[first_body - 4 : first_body] = (24).to_bytes(4, "little")  # it has 20 bytes
    store.write_bytes(raw)
    answer = java.call("verify", queue)
    assert (answer.exit, answer.error) == (1, None)
    assert not answer.lines[0]["ok"]
    assert answer.lines[0]["errors"]


def test_meta_gives_the_keys_of_the_table_store(java: JavaQueue, golden: Path) -> None:
    meta = meta_of(java, golden)
    assert meta["listing.highestCycle"] == 19787
    assert meta["chronicle.write.lock"] == UNLOCKED


def test_plain_command_line_prints_the_same_lines(java: JavaQueue, golden: Path) -> None:
    run = subprocess.run(
        ["java", "-Dinterop.blockSize=65536", "-jar", str(queue_jar()), "Dump", str(golden)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines: list[Line] = [json.loads(text) for text in run.stdout.splitlines()]
    assert lines == java.call("dump", golden).lines


# ---------------------------------------------------------------- appending


def test_append_writes_the_payloads_of_its_seed(java: JavaQueue, tmp_path: Path) -> None:
    """Rate-limited, in cycles of a second, while the same process answers other requests."""
    queue, other = tmp_path / "queue", unpack("two_writers", tmp_path)
    appended = java.start("append", queue, "TEST_SECONDLY", 3000, "0-60", 7, 20000)
    assert java.call("verify", other).exit == 0
    assert appended.result(300).lines[-1]["count"] == 3000
    out = tmp_path / "dump"
    assert java.call("dump", queue, out=out).lines == []
    lines: list[Line] = [json.loads(text) for text in out.read_text().splitlines()]
    written = [bytes.fromhex(line["payload"]) for line in lines[:-1]]
    wanted = [data or b"\x8f" for data in payloads(7, 3000, 0, 60)]  # Java marks an empty body
    assert written == wanted


def test_a_fixed_clock_decides_the_cycle(java: JavaQueue, tmp_path: Path) -> None:
    clock = {"interop.time": 1_709_633_471_000}
    answer = java.call("append", tmp_path / "q", "TEST_SECONDLY", 3, 8, 1, props=clock)
    cycle = 1_709_633_471
    assert answer.lines[-1]["lastIndex"] == f"{cycle << 32 | 2:016x}"


def test_append_at_tells_written_present_and_error(java: JavaQueue, tmp_path: Path) -> None:
    base = 19787 << 32
    stdin = [f"{base:016x} aabb", f"{base:016x} ccdd", f"{base + 5:016x} ee", f"{base + 1:016x} ff"]
    answer = java.call("appendat", tmp_path / "q", "FAST_DAILY", stdin=stdin)
    assert [line["status"] for line in answer.lines] == ["written", "present", "error", "written"]
    assert answer.lines[2]["error"] == "IllegalIndexException"
    *excerpts, _ = java.call("dump", tmp_path / "q").lines
    assert [line["payload"] for line in excerpts] == ["aabb", "ff"]


# ---------------------------------------------------------------- requests


def test_answers_come_when_they_are_ready(java: JavaQueue, golden: Path, tmp_path: Path) -> None:
    out = tmp_path / "tail"
    tail = java.start("tail", golden, 34, 120, out=out)
    assert java.call("verify", unpack("two_writers", tmp_path)).exit == 0
    assert not tail.done(), "the 34th excerpt is not there yet"
    assert java.call("tryappend", golden, "0102").lines[0]["status"] == "written"
    assert tail.result(300).exit == 0
    assert json.loads(out.read_text().splitlines()[-2])["payload"] == "0102"


def test_a_tail_without_enough_excerpts_ends_with_code_3(java: JavaQueue, golden: Path) -> None:
    answer = java.call("tail", golden, 34, 0)
    assert (answer.exit, answer.lines[-1]) == (3, {"seen": 33})


def test_a_failed_request_names_its_exception(java: JavaQueue, tmp_path: Path) -> None:
    answer = java.call("nonsense")
    assert (answer.exit, answer.error) == (1, "IllegalArgumentException: no such command: nonsense")
    answer = java.call("dump", tmp_path / "nowhere")
    assert answer.exit == 1
    assert "no such directory" in (answer.error or "")
    assert not (tmp_path / "nowhere").exists()


def test_a_killed_process_fails_what_waits_for_it(golden: Path) -> None:
    require_java()
    victim = JavaQueue()
    tail = victim.start("tail", golden, 1000, 60)
    victim.kill()
    with pytest.raises(JavaEndedError):
        tail.result(60)
    with pytest.raises(JavaEndedError):
        victim.call("verify", golden)


def test_calls_from_many_threads_get_their_own_answers(java: JavaQueue, golden: Path) -> None:
    """Read-only: two writers of one process would drop each other's file locks."""
    lengths: dict[int, int] = {}

    def dump(number: int) -> None:
        props = {"interop.readOnly": True}
        arguments = ["--sha"] if number % 2 else []
        lines = java.call("dump", golden, *arguments, props=props).lines
        lengths[number] = sum("sha256" in line for line in lines)

    threads = [threading.Thread(target=dump, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == {number: 33 if number % 2 else 0 for number in range(12)}


# ---------------------------------------------------------------- locks


@pytest.mark.parametrize("kind", ["append", "write"])
def test_a_held_lock_refuses_appends_until_released(
    java: JavaQueue, golden: Path, kind: str
) -> None:
    held = java.call("holdlock", golden, kind, props=SOON)
    assert held.lines == [{"held": kind, "value": java.pid}]
    assert meta_of(java, golden)[f"chronicle.{kind}.lock"] == java.pid
    [refused] = java.call("tryappend", golden, "0102", props=SOON, timeout=60).lines
    assert refused["status"] == "refused"
    assert java.call("holdlock", golden, kind).exit == 1
    assert java.call("releaselock", golden, kind).exit == 0
    [written] = java.call("tryappend", golden, "0102", props=SOON).lines
    assert written["status"] == "written"


def test_a_dead_holder_loses_the_write_lock_but_keeps_the_append_lock(
    java: JavaQueue, golden: Path
) -> None:
    victim = JavaQueue()
    for kind in ("append", "write"):
        assert victim.call("holdlock", golden, kind).exit == 0
    victim.kill()
    assert meta_of(java, golden)["chronicle.write.lock"] == victim.pid
    answer = java.call("tryappend", golden, "0102", props=SOON)
    assert answer.lines[0]["status"] == "refused"
    assert "Forced unlocking" in answer.stderr
    meta = meta_of(java, golden)
    assert meta["chronicle.write.lock"] == UNLOCKED
    assert meta["chronicle.append.lock"] == victim.pid


# ---------------------------------------------------------------- peers


def test_two_peers_replicate_with_acknowledgements(java: JavaQueue, tmp_path: Path) -> None:
    port = reserved_port()
    both: dict[str, Any] = {"ack": True, "expect_count": 20, "run_ms": 120_000}
    with JavaPeer(
        role="source", queue=tmp_path / "source", listen=port, local_id=1, remote_id=2, append=20,
        expect_ack=True, **both,
    ) as source:  # fmt: skip
        source.wait_for("STARTED")
        with JavaPeer(
            role="sink", queue=tmp_path / "sink", connect=f"127.0.0.1:{port}", local_id=2,
            remote_id=1, **both,
        ) as sink:  # fmt: skip
            last = sink.wait_for("APPENDED", count=20)
            assert (source.exit_code(), sink.exit_code()) == (0, 0)
    assert source.wait_for("ACK", count=20).values["idx"] == last.values["idx"]
    copies = [java.call("dump", tmp_path / side).lines for side in ("source", "sink")]
    assert copies[0] == copies[1]
    assert copies[0][-1]["count"] == 20
    listing = run_network("QueueTool", queue=tmp_path / "sink", dump=True)
    assert len(listing.splitlines()) == 20


def test_a_peer_that_ends_early_says_why() -> None:
    require_java()
    with (
        JavaPeer(role="neither") as peer,
        pytest.raises(JavaEndedError, match=r"--role source\|sink"),
    ):
        peer.wait_for("STARTED")


def test_decode_gives_the_text_of_a_document() -> None:
    require_java()
    document = bytes.fromhex("07000040 c3637370 e26178")  # meta-data, 7 bytes: csp, "ax"
    assert "csp: ax" in run_network("Decode", stdin=document.hex() + "\n")


# ---------------------------------------------------------------- requirements


@pytest.mark.parametrize(
    ("promised", "outcome"),
    [
        ("", pytest.skip.Exception),
        ("native", pytest.skip.Exception),
        ("native, java", pytest.fail.Exception),
    ],
)
def test_a_promised_requirement_fails_instead_of_skipping(
    monkeypatch: pytest.MonkeyPatch, promised: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CQREPL_REQUIRE", promised)
    with pytest.raises(outcome, match="no java"):
        require("java", "no java on the path")
