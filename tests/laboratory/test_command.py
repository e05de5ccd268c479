"""`python -m cqrepl.testing`."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cqrepl.testing.__main__ import main
from tests.laboratory.test_planted import acknowledged_before_it_is_stored

FAILS = (1, 30)  # seed and seconds of a run that fails with the fault that a test puts in


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def faults(story: str) -> int:
    """The number of faults that the run of a story had, as its last line says."""
    return int(re.findall(r"(\d+) faults", story.splitlines()[-1])[0])


def test_a_seed_and_its_story() -> None:
    result = invoke("--seed", 3, "--seconds", 5)
    assert result.exit_code == 0
    assert "replication starts" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(": ok")
    assert "!!data #binary" not in result.stdout
    with_documents = invoke("--seed", 3, "--seconds", 5, "--story")
    assert "!!data #binary" in with_documents.stdout
    one, other = (each.stdout.splitlines()[-1] for each in (result, with_documents))
    assert one.split("trace")[1] == other.split("trace")[1]


def test_a_failing_seed_is_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledged_before_it_is_stored(monkeypatch)
    words = ["--seed", FAILS[0], "--seconds", FAILS[1], "--roles", "one-way"]
    result, whole = invoke(*words), invoke(*words, "--whole")
    assert result.exit_code == whole.exit_code == 1
    assert faults(result.stdout) < faults(whole.stdout)
    assert "acknowledged" in result.stdout.splitlines()[-1]
    assert "looking for a shorter run" in result.stderr


def test_a_capture_is_read_by_wire_dump(tmp_path: Path) -> None:
    from cqrepl.dump.captures import read_capture
    from cqrepl.dump.entries import Entry

    capture = tmp_path / "run.pcap"
    assert invoke("--seed", 3, "--seconds", 5, "--record", capture).exit_code == 0
    with capture.open("rb") as file:
        found = list(read_capture(file))
    assert sum(isinstance(each, Entry) for each in found) > 20


def test_results_are_kept_and_not_made_again(tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["--seconds", 3, "--results", results]
    assert invoke("--seeds", "1..3", *words).exit_code == 0
    first = results.read_text()
    results.write_text(first + '{"seed": 4, "pl')  # a kill has cut it off
    again = invoke("--seeds", "1..4", *words)
    *lines, cut, last = results.read_text().splitlines()
    assert results.read_text().startswith(first)
    assert [json.loads(line)["seed"] for line in [*lines, last]] == [1, 2, 3, 4]
    assert cut.startswith('{"seed": 4')
    assert again.stdout.count("trace") == 1


def test_results_of_other_runs_do_not_count(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for words in (
        ["--seconds", 3, "--roles", "one-way"],
        ["--seconds", 4, "--roles", "one-way"],
        ["--seconds", 4, "--roles", "one-way", "--hosts", 3],
        ["--seconds", 4, "--roles", "both-ways", "--hosts", 3],
    ):
        assert invoke("--seeds", "1..1", *words, "--results", results).stdout.count("trace") == 1
    assert len(results.read_text().splitlines()) == 4


def test_runs_are_for_all_hosts_or_for_none(tmp_path: Path) -> None:
    captures = {word: tmp_path / word for word in ("--runs", "--frames")}
    words = ["--seed", 3, "--seconds", 8, "--hosts", 2]
    for word, path in captures.items():
        assert invoke(*words, word, "--record", path).exit_code == 0
    assert b"\xc3run\x82" in captures["--runs"].read_bytes()
    assert b"\xc3run\x82" not in captures["--frames"].read_bytes()


def test_two_processes_share_the_seeds(tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["--seeds", "1..5", "--seconds", 3, "--jobs", 2, "--results", results]
    assert invoke(*words).exit_code == 0
    found = sorted(json.loads(line)["seed"] for line in results.read_text().splitlines())
    assert found == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--seed", "1", "--seeds", "1..2"],
        ["--seeds", "3..1"],
        ["--seeds", "x"],
        ["--seed", "1", "--without", "rain"],
        ["--seed", "1", "--hosts", "1"],
        ["--seed", "1", "--roles", "none"],
        ["--seed", "1", "--jobs", "2"],
        ["--seed", "1", "--results", "r"],
        ["--seeds", "1..2", "--story"],
        ["--seeds", "1..2", "--record", "-"],
        ["--seeds", "1..2", "--whole"],
    ],
)
def test_wrong_use(words: list[str]) -> None:
    result = invoke(*words)
    assert result.exit_code == 2
    assert "Error" in result.stderr


def test_a_file_that_is_no_results_file_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("a letter\n")
    result = invoke("--seeds", "1..2", "--seconds", 3, "--results", other)
    assert result.exit_code == 2
    assert f"{other} is no file of results" in result.stderr
    assert other.read_text() == "a letter\n"
