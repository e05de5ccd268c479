"""Mistakes of a user with `cqrepl bench`: exit code 2, and a line that names the mistake."""

import sys
from pathlib import Path

import pytest

from tests.support.invoke import Invoke

WHATS = ("append", "tail", "replicate", "latency", "fan-out")

WRONG: list[tuple[list[str], str]] = [
    (["append", "--size", "big"], "a size such as 16MiB, 10GB or 65536 expected, 'big' came"),
    (["append", "--size", "64,64"], "different sizes expected, '64,64' came"),
    (["append", "--size", ""], "a size such as 16MiB, 10GB or 65536 expected"),
    (["append", "--count", "0"], "0 is not in the range"),
    (["append", "--rounds", "0"], "0 is not in the range"),
    (["append", "--batch", "-1"], "-1 is not in the range"),
    (["replicate", "--pauser", "lazy"], "'lazy' is not one of"),
    (["latency", "--interval", "5"], "a time such as 500us, 2ms or 1s expected, '5' came"),
    (["latency", "--interval", "0us"], "an interval above 0 expected, 0 came"),
    (["latency", "--seconds", "0"], "0"),
    (["latency", "--size", "256,8"], "--size: at least 16 bytes expected, 8 came"),
    (["fan-out", "--sinks", "1,x"], "numbers such as 1,4,16 expected, '1,x' came"),
    (["fan-out", "--sinks", "0"], "numbers such as 1,4,16 expected, '0' came"),
    (["fan-out", "--sinks", "101"], "--sinks: at most 100 expected, 101 came"),
    (["fan-out", "--queues", "11", "--count", "10"], "at most --count (10) expected, 11 came"),
    (["fan-out", "--plot", "x"], "No such option"),
    (["everything"], "No such command"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_arguments_that_do_not_fit(invoke: Invoke, arguments: list[str], message: str) -> None:
    result = invoke("bench", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) <= 4


@pytest.mark.parametrize("what", WHATS)
def test_help(invoke: Invoke, what: str) -> None:
    result = invoke("bench", what, "--help")
    assert result.exit_code == 0
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


def test_plot_without_its_extra_says_how_to_get_it(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke("bench", "append", "--count", "10", "--plot", tmp_path / "plots")
    assert result.exit_code == 2
    assert result.stderr == (
        "cqrepl bench: --plot needs matplotlib, which is not installed: "
        "pip install 'cqrepl[plot]'\n"
    )
    assert not (tmp_path / "plots").exists()
