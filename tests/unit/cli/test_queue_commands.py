"""`cqrepl init`, `info`, `verify`, `repair`, `unlock` and `gc` on real queues."""

import json
import os
import re
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from cqrepl.cli.wiredump import main as wire_dump
from cqrepl.queue import Queue
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY
from cqrepl.queue.files.keptmarks import KEY_END_MAX, KEYS_END_WARNED
from cqrepl.queue.files.listing import HIGHEST_KEY
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.syncedmark import store_synced
from cqrepl.queue.format.index import cycle_of
from cqrepl.queue.read.registration import Readers
from cqrepl.queue.write.nextcycle import precreate
from tests.support.goldens import unpack
from tests.support.invoke import Invoke
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read
from tests.support.tables import fill_keys, set_word

DEAD_PID = 999_999_999


# ---------------------------------------------------------------- init


def test_init_makes_an_empty_queue(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("init", tmp_path / "a" / "q", "--roll-cycle", "FAST_HOURLY", "--source-id", 3)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith("an empty queue, FAST_HOURLY\n")
    with Queue.open(tmp_path / "a" / "q") as queue:
        assert queue.layout.source_id == 3
        assert queue.layout.roll_cycle.name == "FAST_HOURLY"
        assert queue.first_index() is None


def test_init_leaves_a_queue_that_is_there(invoke: Invoke, queue: Path) -> None:
    before = read(queue)
    result = invoke("init", queue, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["is_empty"] is False
    assert invoke("init", queue, "--roll-cycle", "FAST_HOURLY").exit_code in (2, 5)
    assert read(queue) == before


@pytest.mark.parametrize("name", ["WEEKLY", "nonsense"])
def test_init_refuses_a_roll_cycle(invoke: Invoke, tmp_path: Path, name: str) -> None:
    result = invoke("init", tmp_path / "q", "--roll-cycle", name)
    assert result.exit_code == 2
    assert name in result.stderr
    assert not (tmp_path / "q").exists()


# ---------------------------------------------------------------- info


def test_info_as_text(invoke: Invoke, tmp_path: Path) -> None:
    path = unpack("named_tailers", tmp_path)
    result = invoke("info", path)
    assert result.exit_code == 0
    for said in (
        "FAST_DAILY epoch 0 indexCount 4096 indexSpacing 256",
        "excerpts    10  0x4d4b00000000 .. 0x4d4b00000009",
        "20240305F.cq4  cycle 19787  10 excerpts",
        "alpha             0x4d4b00000004",
    ):
        assert said in result.stdout


@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_info_as_json(invoke: Invoke, tmp_path: Path, deep: list[str]) -> None:
    path = unpack("fast_daily_rolled", tmp_path)
    found = json.loads(invoke("info", path, "--json", *deep).stdout)
    assert found["v"] == 1
    assert found["excerpts"] == 313
    assert found["index_last"] == "0x4d5100000006"
    assert [file["excerpts"] for file in found["files"]] == [5, 300, 1, 7]
    assert [file["end"] for file in found["files"]] == ["closed", "closed", "closed", "open"]
    assert ("digest" in found["files"][0]) == bool(deep)


def test_info_of_damage(invoke: Invoke, tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    os.truncate(noon_path(tmp_path / "q"), 1000)
    result = invoke("info", tmp_path / "q")
    assert result.exit_code == 4
    assert "damage" in result.stdout


@pytest.mark.parametrize("command", ["info", "repair"])
def test_a_file_that_may_not_be_read_is_no_damage(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    for reader in ("glance_store", "scan_store"):
        monkeypatch.setattr(f"cqrepl.queue.inspection.overview.{reader}", refused)
    result = invoke(command, tmp_path / "q")
    assert result.exit_code == 2
    assert "unreadable" in result.stdout
    assert "Permission denied" in result.stdout
    assert "damage" not in result.stdout


NOTHING_MORE = {"synced": None, "applied": None}


def test_info_of_hosts(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    assert "\nhost" not in invoke("info", path).stdout
    set_word(path, "cqrepl.3.snt", 0x4D4B00000002)
    set_word(path, "cqrepl.12.idx", 0x4D4B00000001)
    set_word(path, "cqrepl.5.snt", -1)
    fill_keys(path, KEY_END_MAX)
    with Queue.open(path) as queue:
        for level in MarkLevel:
            assert queue.host_marks.raise_to(100, level, 0x4D4B00000004)
        assert queue.raise_sent(0x4D4B00000004)
    shown = invoke("info", path)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-4:] == [
        "mark  chronicle.lastIndexReplicated  0x4d4b00000004",
        "host  3    sent 0x4d4b00000002  acknowledged nothing",
        "host  12   sent nothing         acknowledged 0x4d4b00000001",
        "host  100  sent 0x4d4b00000004  acknowledged 0x4d4b00000004  synced 0x4d4b00000004"
        "  applied 0x4d4b00000004",
    ]
    found, both = json.loads(invoke("info", path, "--json").stdout), "0x4d4b00000004"
    assert found["hosts"] == [
        {"host": 3, "sent": "0x4d4b00000002", "acknowledged": None} | NOTHING_MORE,
        {"host": 12, "sent": None, "acknowledged": "0x4d4b00000001"} | NOTHING_MORE,
        {"host": 100} | dict.fromkeys(("sent", "acknowledged", "synced", "applied"), both),
    ]
    assert not [key for key in found["other_keys"] if key.endswith((".snt", ".idx"))]
    assert KEY_END_MAX <= found["keys_end"] < KEY_END_MAX + 32


def test_info_of_registered_readers(invoke: Invoke, tmp_path: Path) -> None:
    """They keep store files from `gc`."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 3})
    with Queue.open(path) as queue:
        readers = Readers(queue.cycles)
        readers.register("Copy-1", noon_index(sequence=2))
        readers.register("new")
        readers.register("gone")
        readers.unregister("gone")
    said = " ".join(invoke("info", path).stdout.split())
    assert "reader Copy-1 0x4d4b00000002 1 cycle behind" in said
    assert "reader new the start" in said
    assert "gone" not in said
    found = json.loads(invoke("info", path, "--json").stdout)
    assert found["readers"] == [
        {"name": "Copy-1", "next_index": "0x4d4b00000002", "cycles_behind": 1},
        {"name": "new", "next_index": "0x0", "cycles_behind": 2},
    ]
    assert found["tailers"] == []


def test_text_from_files_is_escaped(invoke: Invoke, tmp_path: Path) -> None:
    """A name neither steers a terminal nor makes up lines of its own, piped or not."""
    path, name = tmp_path / "q", "replicated:\x1b[31m\x9b\nlock  x  free"
    fill(path, "FAST_DAILY", {0: 2})
    with Queue.open(path) as queue, closing(queue.named_position(name)) as named:
        named.move(noon_index(sequence=1))
        Readers(queue.cycles).register(name, 1)
    escaped = "\\x1B[31m\\x9B\\x0Alock  x  free"
    said = invoke("info", path).stdout
    assert said.count(escaped) == 3
    assert said.replace("\n", "").isprintable()
    assert json.loads(invoke("info", path, "--json").stdout)["tailers"][0]["name"] == name
    assert escaped in invoke("unlock", path).stdout
    set_word(path, APPEND_LOCK_KEY, os.getppid())
    refused = invoke("tail", path, "--named", name)
    assert (
        f"expected {name.split(':')[0]}:{escaped} on a queue that is no replica" in refused.stderr
    )
    table = path / "metadata.cq4t"
    data = table.read_bytes()
    at = data.index(b"\xa7", data.index(name.encode("latin-1")))
    table.write_bytes(data[:at] + b"\xa6" + data[at + 1 :])  # a number that is not in place
    for command in ("info", "verify", "repair"):
        result = invoke(command, path)
        assert result.output.replace("\n", "").isprintable(), result.output


def test_info_of_a_table_store_that_is_nearly_full(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    fill_keys(path, KEYS_END_WARNED + 1)
    shown = invoke("info", path)
    assert shown.exit_code == 0
    end = json.loads(invoke("info", path, "--json").stdout)["keys_end"]
    assert shown.stdout.splitlines()[-1] == (
        f"keys  end at {end:,} bytes; behind 65,536 Java adds none"
    )


def test_info_says_what_follows_without_a_table_store(invoke: Invoke, tmp_path: Path) -> None:
    """`info` tells which command leads back to a queue that can be appended to."""
    path = tmp_path / "q"
    fill(path, "FAST_HOURLY", {0: 5, 1: 2})
    (path / "metadata.cq4t").unlink()
    result = invoke("info", path)
    assert result.exit_code == 0
    [hint] = [line for line in result.stdout.splitlines() if "metadata.cq4t: hint:" in line]
    assert "nothing can be appended" in hint
    assert "the epoch is not known" in hint
    match = re.search(r"cqrepl init QUEUE (--roll-cycle \w+ --epoch) MS", hint)
    assert match is not None
    assert invoke("init", path, *match[1].split(), "0").exit_code == 0
    assert "hint" not in invoke("info", path).stdout
    with Queue.open(path) as queue:
        queue.append(b"more", now_ms=NOON_MS + 3_600_000)
    assert len(read(path)) == 8


# ---------------------------------------------------------------- verify


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two queues with the same excerpts."""
    for name in ("a", "b"):
        fill(tmp_path / name, "TEST4_DAILY", {0: 40, 1: 10}, per_batch=7 if name == "a" else 50)
    return tmp_path / "a", tmp_path / "b"


def test_verify_the_same(invoke: Invoke, copies: tuple[Path, Path]) -> None:
    result = invoke("verify", *copies, "--digests")
    assert result.exit_code == 0
    assert all(line.startswith("same ") for line in result.stdout.splitlines())
    assert "40 excerpts" in result.stdout


def test_verify_finds_a_flipped_byte(invoke: Invoke, copies: tuple[Path, Path]) -> None:
    store = noon_path(copies[1], "TEST4_DAILY")
    data = bytearray(store.read_bytes())
    payload = next(payload for _, payload in read(copies[1]) if len(payload) > 30)
    data[data.index(payload) + 17] ^= 0x20
    store.write_bytes(data)
    result = invoke("verify", *copies)
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("differ")]
    assert "1 excerpt " in line
    assert "first byte that differs: 17" in line
    found = json.loads(invoke("verify", *copies, "--json", "--first").stdout.splitlines()[-1])
    assert found["kind"] == "differ"
    assert found["byte_first"] == 17


def test_verify_finds_what_is_missing(invoke: Invoke, copies: tuple[Path, Path]) -> None:
    with Queue.open(copies[0]) as queue:
        queue.append_many([b"more"] * 7, now_ms=NOON_MS + 86_400_000)
    result = invoke("verify", *copies)
    assert result.exit_code == 1
    assert f"7 excerpts only in {copies[0]}" in result.stdout
    assert invoke("verify", *copies, "--common").exit_code == 0
    last = hex(noon_index("TEST4_DAILY", ahead=1, sequence=9))
    assert invoke("verify", *copies, "--to", last).exit_code == 0


@pytest.mark.parametrize("is_gone", [True, False])
def test_verify_common_does_not_take_a_lost_end_for_a_copy_that_is_behind(
    invoke: Invoke, tmp_path: Path, is_gone: bool
) -> None:
    """A copy lacks its last store file, or has an empty one. What that file held is unknown, so
    `--common` tells of damage."""
    copies = tmp_path / "a", tmp_path / "b"
    for copy in copies:
        fill(copy, "TEST4_DAILY", {0: 3, 1: 4})
    lost = noon_path(copies[1], "TEST4_DAILY", ahead=1)
    os.truncate(lost, 0)
    if is_gone:
        lost.unlink()
    result = invoke("verify", *copies, "--common")
    assert result.exit_code == 4, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("damaged")]
    assert f"{lost}, index {hex(noon_index('TEST4_DAILY', ahead=1))}: " in line
    assert "expected a store file, " in line
    found = json.loads(invoke("verify", *copies, "--common", "--json").stdout.splitlines()[-1])
    assert (found["kind"], found["copy"]) == ("damaged", str(copies[1]))
    # a difference that is told already is not told twice
    result = invoke("verify", *copies)
    assert (result.exit_code, "damaged" in result.stdout) == (1, False)


@pytest.mark.parametrize("all_cycles", [True, False])
def test_verify_of_one_queue_finds_its_lost_end(
    invoke: Invoke, tmp_path: Path, all_cycles: bool
) -> None:
    queue = tmp_path / "a"
    fill(queue, "TEST4_DAILY", {1: 4} if all_cycles else {0: 3, 1: 4})
    noon_path(queue, "TEST4_DAILY", ahead=1).unlink()
    result = invoke("verify", queue)
    assert result.exit_code == 4, result.stdout
    assert "damaged" in result.stdout
    assert "expected a store file, as listing.highestCycle in metadata.cq4t says" in result.stdout


def test_verify_of_one_queue_finds_an_emptied_file_by_what_was_synced(
    invoke: Invoke, tmp_path: Path
) -> None:
    queue = tmp_path / "a"
    fill(queue, "TEST4_DAILY", {0: 3, 1: 4})
    os.truncate(noon_path(queue, "TEST4_DAILY", ahead=1), 0)
    # its creator may have died over it: then no excerpt is lost
    assert invoke("verify", queue).exit_code == 0
    store_synced(queue, noon_index("TEST4_DAILY", ahead=1, sequence=4))
    result = invoke("verify", queue)
    assert result.exit_code == 4, result.stdout
    assert "expected a store file, found 0 bytes without a header" in result.stdout


@pytest.mark.parametrize("boot", [None, bytes(16)])
def test_a_lost_end_that_was_synced_is_damage_until_a_repair_accepts_the_loss(
    invoke: Invoke, tmp_path: Path, boot: bytes | None
) -> None:
    """The loss is damage whichever start of the machine the mark is of: what was on the disk then
    is gone."""
    queue = tmp_path / "a"
    fill(queue, "TEST4_DAILY", {0: 3, 1: 4})
    store_synced(queue, noon_index("TEST4_DAILY", ahead=1, sequence=4), boot=boot)
    noon_path(queue, "TEST4_DAILY", ahead=1).unlink()
    invoke("repair", queue)  # shows only
    for words in ((), ("--common",), ("--quick",)):
        result = invoke("verify", queue, *words)
        assert result.exit_code == 4, result.stdout
        assert "or accept that: cqrepl repair" in result.stdout
    result = invoke("repair", queue, "--apply")
    assert result.exit_code == 0
    assert "accepted as lost" in result.stdout
    assert invoke("verify", queue).exit_code == 0


@pytest.mark.parametrize(
    ("ahead", "sequence", "gone"),
    [(0, 3, 0), (1, 0, None), (1, 4, None), (2, 0, None), (5, 0, None)],
)
def test_a_synced_mark_that_promises_nothing_more_is_no_lost_end(
    invoke: Invoke, tmp_path: Path, ahead: int, sequence: int, gone: int | None
) -> None:
    """The mark lies in what retention has deleted, at an end, or where a cycle would begin."""
    queue = tmp_path / "a"
    fill(queue, "TEST4_DAILY", {0: 3, 1: 4})
    store_synced(queue, noon_index("TEST4_DAILY", ahead=ahead, sequence=sequence))
    if gone is not None:
        noon_path(queue, "TEST4_DAILY", ahead=gone).unlink()
    result = invoke("verify", queue)
    assert result.exit_code == 0, result.stdout
    assert "damaged" not in result.stdout


@pytest.mark.parametrize("words", [(), ("--common",), ("--quick",)])
@pytest.mark.parametrize("all_cycles", [True, False])
def test_verify_finds_an_end_that_every_copy_has_lost(
    invoke: Invoke, tmp_path: Path, words: tuple[str, ...], all_cycles: bool
) -> None:
    copies = tmp_path / "a", tmp_path / "b"
    for copy in copies:
        fill(copy, "TEST4_DAILY", {1: 4} if all_cycles else {0: 3, 1: 4})
        noon_path(copy, "TEST4_DAILY", ahead=1).unlink()
    result = invoke("verify", *copies, *words)
    assert result.exit_code == 4, result.stdout
    assert result.stdout.count("listing.highestCycle in metadata.cq4t says") == len(copies)
    assert "nothing to compare" not in result.stdout
    for copy in copies:  # for good
        assert invoke("repair", copy, "--apply").exit_code == 0
    assert "damaged" not in invoke("verify", *copies, *words).stdout
    assert invoke("verify", *copies).exit_code == 0


def test_verify_of_a_highest_cycle_that_is_none(invoke: Invoke, tmp_path: Path) -> None:
    """A word of the table store was written over: `verify` tells of it, and finds all excerpts
    there."""
    queue = tmp_path / "a"
    fill(queue, "TEST4_DAILY", {0: 3})
    set_word(queue, HIGHEST_KEY, 1 << 40)
    result = invoke("verify", queue)
    assert result.exit_code == 0, result.stdout
    assert f"listing.highestCycle is {1 << 40}, the directory has" in result.stdout


def test_verify_quick_tells_a_lost_end_once(invoke: Invoke, tmp_path: Path) -> None:
    copies = tmp_path / "a", tmp_path / "b"
    for copy in copies:
        fill(copy, "TEST4_DAILY", {0: 3, 1: 4})
    noon_path(copies[0], "TEST4_DAILY", ahead=1).unlink()
    assert invoke("verify", copies[0], "--quick").exit_code == 4
    result = invoke("verify", *copies, "--quick")
    assert (result.exit_code, "damaged" in result.stdout) == (1, False)


def test_verify_of_empty_queues(invoke: Invoke, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Queue.open(tmp_path / name, create=layout()).close()
    for words in ((), ("--common",), ("--quick",)):
        result = invoke("verify", tmp_path / "a", tmp_path / "b", *words)
        assert result.exit_code == 0
        assert result.stdout == "same     nothing to compare: no excerpts\n"
    assert invoke("verify", tmp_path / "a").exit_code == 0


def test_verify_of_a_range_in_which_nothing_lies_proves_nothing(
    invoke: Invoke, tmp_path: Path
) -> None:
    """This is so of one queue alone too, of empty queues, and where one copy has nothing yet."""
    copies = tmp_path / "a", tmp_path / "b"
    for copy in copies:
        fill(copy, "TEST4_DAILY", {0: 3, 1: 4})
    empty, too = tmp_path / "empty", tmp_path / "too"
    for path in (empty, too):
        Queue.open(path, create=layout("TEST4_DAILY")).close()
    at = [hex(noon_index("TEST4_DAILY", ahead=n, sequence=s)) for n, s in ((0, 3), (0, 9), (5, 0))]
    cases: list[tuple[tuple[object, ...], str]] = [
        (
            (*copies, "--from", at[0], "--to", at[1]),
            f"no excerpt lies from {at[0]} on up to {at[1]}",
        ),
        ((*copies, "--from", at[2]), f"no excerpt lies from {at[2]} on"),
        ((*copies, "--from", at[2], "--common"), f"no excerpt lies from {at[2]} on up to "),
        ((*copies, "--to", "0x5"), "no excerpt lies up to 0x5"),
        ((copies[0], "--from", at[2]), f"no excerpt lies from {at[2]} on"),
        ((empty, too, "--from", at[0]), f"no excerpt lies from {at[0]} on"),
        ((copies[0], empty, "--common"), f"there is no excerpt in {empty}"),
    ]
    for words, text in cases:
        result = invoke("verify", *words)
        assert result.exit_code == 1, words
        assert result.stdout.splitlines()[-1].startswith(f"nothing  nothing was compared: {text}")
    told = json.loads(invoke("verify", *copies, "--from", at[2], "--json").stdout)
    assert (told["kind"], told["same"]) == ("nothing", False)
    assert invoke("verify", *copies, "--from", at[1], "--to", at[0]).exit_code == 2


@pytest.mark.parametrize("form", ["0x{:x}", "0X{:X}", "{:x}", "{:X}", "{}"])
def test_each_form_of_an_index_is_taken_by_each_command(
    invoke: Invoke, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    index = form.format(noon_index(sequence=3))
    assert len(invoke("tail", path, "--from", index).stdout.splitlines()) == 2
    for words in (
        ("verify", path, "--from", index, "--to", index),
        ("repair", path, "--quarantine", index),
    ):
        assert invoke(*words).exit_code == 0, words
    assert invoke("verify", path, "--from", "first", "--to", index).exit_code == 0
    if form == "{}":  # a dump takes digits alone as hexadecimal, as it shows them
        return
    runner = CliRunner()
    same = [str(noon_path(path)), "--from", index, "--to", index]
    shown = runner.invoke(wire_dump, [*same, "--json"])
    assert f'"index":"{noon_index(sequence=3):#x}"' in shown.output
    assert '"sequence":4' not in shown.output


@pytest.mark.parametrize(
    "words", [("verify", "--from"), ("verify", "--to"), ("repair", "--quarantine")]
)
@pytest.mark.parametrize("place", ["last", "-10", "2026-11-21", "yesterday"])
def test_no_place_is_offered_that_is_refused(
    invoke: Invoke, tmp_path: Path, words: tuple[str, str], place: str
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 1})
    command, option = words
    result = invoke(command, tmp_path / "q", option, place)
    assert result.exit_code == 2
    assert f"an index such as 0x451600000004 was expected, {place!r} came" in result.stderr


def test_verify_quick_of_copies_without_side_files_proves_nothing(
    invoke: Invoke, tmp_path: Path
) -> None:
    copies = tmp_path / "a", tmp_path / "b"
    for copy in copies:
        fill(copy, "TEST4_DAILY", {0: 3})
    result = invoke("verify", *copies, "--quick")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "nothing  no side file proves that an excerpt is the same"
    )
    assert invoke("verify", copies[0], "--quick").exit_code == 0  # its numbers and ends are right


def test_verify_of_what_cannot_be_compared(invoke: Invoke, queue: Path, tmp_path: Path) -> None:
    assert invoke("verify").exit_code == 2
    assert invoke("verify", queue, tmp_path / "none").exit_code == 2
    fill(tmp_path / "other", "FAST_HOURLY", {0: 1})
    result = invoke("verify", queue, tmp_path / "other")
    assert result.exit_code == 1
    assert result.stdout.startswith("layouts")


# ---------------------------------------------------------------- repair


def test_repair_says_first_and_does_then(invoke: Invoke, tmp_path: Path) -> None:
    path = unpack("missing_eof_middle", tmp_path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    planned = invoke("repair", path)
    assert planned.exit_code == 0
    assert "to be made, nothing was changed" in planned.stdout
    assert before == {file.name: file.read_bytes() for file in path.iterdir()}
    applied = invoke("repair", path, "--apply", "--backup", tmp_path / "backup")
    assert applied.exit_code == 0, applied.stderr
    assert "made" in applied.stdout
    assert invoke("repair", path).stdout == f"{path}: nothing to repair\n"
    for copy in (tmp_path / "backup").iterdir():
        assert copy.read_bytes() == before[copy.name]
    with Queue.open(path) as queue:
        assert len(list(queue.tailer())) == queue.count()


def test_repair_as_json(invoke: Invoke, tmp_path: Path) -> None:
    path = unpack("missing_eof_middle", tmp_path)
    lines = [json.loads(line) for line in invoke("repair", path, "--json").stdout.splitlines()]
    assert lines
    assert all(line["kind"] == "repair" and not line["applied"] for line in lines)


def test_a_backup_goes_with_apply(invoke: Invoke, queue: Path, tmp_path: Path) -> None:
    assert invoke("repair", queue, "--backup", tmp_path / "b").exit_code == 2


# ---------------------------------------------------------------- unlock


def test_unlock_frees_the_locks_of_the_dead(invoke: Invoke, queue: Path) -> None:
    set_word(queue, APPEND_LOCK_KEY, DEAD_PID)
    shown = invoke("unlock", queue)
    assert shown.exit_code == 0
    assert f"held by process {DEAD_PID}, which is dead: left as it is" in shown.stdout
    assert "dead: freed" in invoke("unlock", queue, "--apply").stdout
    assert "held" not in invoke("unlock", queue).stdout


def test_unlock_never_robs_the_living_unasked(invoke: Invoke, queue: Path) -> None:
    set_word(queue, WRITE_LOCK_KEY, os.getppid())
    result = invoke("unlock", queue, "--apply")
    assert result.exit_code == 5
    assert "is alive: left as it is" in result.stdout
    assert invoke("unlock", queue, "--apply", "--force").exit_code == 2
    forced = invoke("unlock", queue, "--apply", "--force", "--yes", "--json")
    assert forced.exit_code == 0
    freed = [json.loads(line)["name"] for line in forced.stdout.splitlines() if "true" in line]
    assert WRITE_LOCK_KEY in freed


# ---------------------------------------------------------------- gc


def test_gc_says_why_and_deletes_what_all_have_passed(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 5, 2: 5, 3: 5})
    with Queue.open(path) as queue:
        position = queue.named_position("reader")
        position.move(noon_index(ahead=2))
        position.close()
    everything = read(path)
    shown = invoke("gc", path)
    assert shown.exit_code == 0
    assert "nothing was changed" in shown.stdout
    assert "named tailer reader is at" in shown.stdout
    assert read(path) == everything
    kept = json.loads(invoke("gc", path, "--json", "--keep", 3).stdout.splitlines()[1])
    assert not kept["may_go"]
    deleted = invoke("gc", path, "--apply")
    assert "2 files" in deleted.stdout
    assert read(path) == everything[10:]
    assert invoke("info", path).exit_code == 0
    assert invoke("gc", path, "--keep-time", "20m").exit_code == 0


def test_a_host_that_comes_no_more_is_forgotten(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "queue"
    everything = fill(path, "FAST_DAILY", {0: 5, 1: 3})
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(3, MarkLevel.SENT, everything[0][0])
    set_word(path, ACKNOWLEDGED_KEY, everything[-1][0])
    assert "host 3, acknowledged, is at the start" in invoke("gc", path).stdout
    assert "1 file, " in invoke("gc", path, "--forget", 3).stdout
    assert "host 3, acknowledged, is at the start" in invoke("gc", path).stdout
    assert "deleted" in invoke("gc", path, "--forget", 3, "--apply").stdout
    assert read(path) == everything[5:]
    unknown = invoke("gc", path, "--forget", 3)
    assert unknown.exit_code == 2
    assert "a known host expected to be forgotten (none), 3 came" in unknown.stderr
    assert invoke("gc", path, "--forget", 128).exit_code == 2


def test_unreadable_arguments(invoke: Invoke, tmp_path: Path) -> None:
    for command in ("info", "repair", "unlock", "gc", "tail"):
        result = invoke(command, tmp_path / "none")
        assert result.exit_code == 2, command
        assert "expected a queue directory" in result.stderr


def test_files_made_ready_for_a_later_cycle_are_looked_over(tmp_path: Path, invoke: Invoke) -> None:
    path, other = tmp_path / "queue", tmp_path / "other"
    for each in (path, other):
        fill(each, "FAST_DAILY", {0: 5, 1: 3})
    commands = [("info", path), ("verify", path), ("verify", path, other), ("gc", path)]
    commands += [("repair", path), ("tail", path)]

    def told() -> list[str]:
        """All but the free space of the disk, which others use too."""
        return [re.sub(r", [\d.]+ \w+ free", "", invoke(*each).output) for each in commands]

    before = told()
    with Queue.open(path) as queue:
        cycle = cycle_of(noon_index(ahead=2), queue.cycles.shift)
        assert precreate(queue.cycles, queue.layout, cycle, 1 << 20) is not None
    (path / "20240309F.precreated.123").write_bytes(b"never finished")
    assert told() == before
    assert len(list(path.glob("*.precreated*"))) == 2


def test_info_tells_a_mark_above_the_end(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 2})
    with Queue.open(path) as queue:
        queue.host_marks.raise_to(2, MarkLevel.ACKNOWLEDGED, noon_index(ahead=1, sequence=1))
    assert invoke("info", path).exit_code == 0
    noon_path(path, ahead=1).unlink()
    said = invoke("info", path)
    end, last = noon_index(sequence=5), noon_index(ahead=1, sequence=1)
    assert said.exit_code == 4
    assert f"damage: expected excerpts up to {last:#x}, as the mark of what host 2" in said.stdout
    assert f"found the end at {end:#x}" in said.stdout
    assert "cqrepl repair QUEUE --apply accepts the loss" in said.stdout
    (found,) = [
        each
        for each in json.loads(invoke("info", path, "--json").stdout)["findings"]
        if "as the mark of" in each["text"]
    ]
    assert (found["kind"], found["index"]) == ("damage", hex(end))
    assert invoke("repair", path, "--apply").exit_code == 0
    assert invoke("info", path).exit_code == 0
