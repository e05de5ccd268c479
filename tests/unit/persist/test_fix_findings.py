"""The judge of the FIX demonstration finds what a lossy store would do: each count has a case in
which it is not 0."""

from dataclasses import asdict
from pathlib import Path

import pytest

from cqrepl.fixfindings import EngineLines, FixFindings, judged, undelivered
from cqrepl.persist.fix import FixSessionStore
from cqrepl.persist.localfactory import LocalPersistenceFactory
from tests.support.invoke import Invoke

SESSION = "FIX.4.4:A1->B1"


def news(number: int, text: str, more: str = "") -> str:
    """A message as engines print it."""
    return f"8=FIX.4.4|35=B|34={number}|{more}148={text}|"


def lines(folder: Path, name: str, *said: str) -> EngineLines:
    (folder / name).write_text("".join(f"{each}\n" for each in said))
    found = EngineLines()
    found.read(folder / name)
    return found


def copy(folder: Path, *texts: str) -> Path:
    """A copy that has these messages, from number 1 on."""
    path = folder / "copy"
    with LocalPersistenceFactory(path) as factory:
        store = FixSessionStore(factory, SESSION)
        for number, text in enumerate(texts, 1):
            store.set_message(number, news(number, text).replace("|", "\1").encode())
    return path


def judge(folder: Path, kept: list[str], came: list[str], held: list[str]) -> FixFindings:
    acceptor = [f"KEPT 1 {at} {news(at, text)}" for at, text in enumerate(kept, 1)]
    initiator = ["KEPT 1 1 8=FIX.4.4|35=A|34=1|", *came]
    errors = "storage FIX.4.4:A1->B1.out, item 2: no backup has said that it has it within 10 ms\n"
    return judged(
        lines(folder, "acceptor", *acceptor),
        lines(folder, "initiator", *initiator),
        copy(folder, *held),
        errors if "late" in kept else "",
    )


def came(number: int, text: str, more: str = "") -> str:
    return f"IN 1 {news(number, text, more)}"


RIGHT = [came(1, "a:1:1"), came(2, "a:1:2")]
KEPT = ["a:1:1", "a:1:2"]


def test_what_is_right_has_counts_of_nothing_wrong(tmp_path: Path) -> None:
    found = judge(tmp_path, KEPT, RIGHT, KEPT)
    assert found == FixFindings(kept=2)
    assert found.is_right
    assert not FixFindings().is_right  # nothing was kept at all


@pytest.mark.parametrize(
    ("came", "held", "wrong"),
    [
        (RIGHT, KEPT[:1], {"lost": 1}),
        (RIGHT, ["a:1:1", "b:1:2"], {"lost": 1}),
        (RIGHT[:1], KEPT, {"lost": 1}),
        ([*RIGHT, came(2, "b:1:2")], KEPT, {"twice": 1}),
        ([*RIGHT, came(2, "a:1:2", "43=Y|")], KEPT, {"resent": 1}),
        ([*RIGHT, "IN 1 35=5|34=3|58=MsgSeqNum too low, expecting 3|"], KEPT, {"set_back": 1}),
        ([*RIGHT, "IN 1 35=4|34=3|36=1|"], KEPT, {"set_back": 1}),
        ([*RIGHT, "IN 1 35=A|34=3|141=Y|"], KEPT, {"set_back": 1}),
        ([*RIGHT, "IN 1 35=4|34=3|36=9|123=Y|"], KEPT, {}),
    ],
)
def test_each_fault_is_counted(
    tmp_path: Path, came: list[str], held: list[str], wrong: dict[str, int]
) -> None:
    found = judge(tmp_path, KEPT, came, held)
    assert asdict(found) == asdict(FixFindings(kept=2)) | wrong
    assert found.is_right is (not wrong or "resent" in wrong)


def test_a_message_that_no_acceptor_has_had_is_counted(tmp_path: Path) -> None:
    initiator = lines(tmp_path, "i", *(f"KEPT 1 {at} {news(at, f'i:{at}')}" for at in (1, 2, 3)))
    acceptor = lines(tmp_path, "a", came(1, "i:1"), came(3, "i:3"))
    assert judged(acceptor, initiator, copy(tmp_path), "").unheard == 1


def test_lines_are_taken_once_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "acceptor"
    found = EngineLines()
    path.write_text(f"KEPT 1 1 {news(1, 'a:1:1')}\nKEPT 1 2 8=FIX")
    found.read(path)
    found.read(path)
    assert {number: len(texts) for number, texts in found.kept[1].items()} == {1: 1}
    path.write_text(f"KEPT 1 1 {news(1, 'a:1:1')}\nKEPT 1 2 {news(2, 'a:1:2')}\n")
    found.read(path)
    assert sorted(found.kept[1]) == [1, 2]
    nothing = EngineLines()
    assert undelivered(found, nothing) == [(1, 1), (1, 2)]


def test_a_store_that_does_not_know_is_counted(tmp_path: Path) -> None:
    late = [came(1, "late")]
    assert judge(tmp_path, ["late"], late, ["late"]).warnings == 1


def test_the_demonstration_wants_its_engine(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("demo", "--persist", "--fix", tmp_path)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("cqrepl demo: expected the store of FIX sessions")
    assert invoke("demo", "--fix", tmp_path).exit_code == 2
