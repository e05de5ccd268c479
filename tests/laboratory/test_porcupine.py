"""The checker of histories says what porcupine says of them."""

import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cqrepl.testing.history import Operation
from cqrepl.testing.linearizability import Register, check_linearizable
from tests.unit.testing.test_linearizability import drawn

PROGRAM = Path(__file__).parents[1] / "support" / "porcupine"
HISTORIES = 3000


def as_json(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    clients = sorted({each.who for each in operations})
    return [
        {
            # one client has one call at a time; a call whose outcome is unknown goes on for ever
            "client": clients.index(each.who) if each.is_known else len(clients) + nth,
            "name": each.name,
            "value": list(each.value) if each.name == "cas" else [each.value or 0],
            "known": each.is_known,
            "result": int(each.result or 0),
            "began": each.began,
            "ended": each.ended or 0,
        }
        for nth, each in enumerate(operations)
    ]


@pytest.fixture
def porcupine(tmp_path: Path) -> Path:
    """The program that asks it."""
    if shutil.which("go") is None:
        pytest.skip("expected go, to build porcupine with; it is not here")
    built = tmp_path / "porcupine"
    words = ["go", "build", "-mod=readonly", "-o", str(built), "."]
    done = subprocess.run(words, cwd=PROGRAM, capture_output=True, text=True, check=False)
    if done.returncode and "main.go" not in done.stderr:
        pytest.skip(f"expected porcupine through the Go module proxy, got {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.long
def test_both_say_the_same(porcupine: Path) -> None:
    rng = random.Random(11)
    histories = [drawn(rng, rng.choice((4, 8, 16, 30))) for _ in range(HISTORIES)]
    lines = "".join(json.dumps(as_json(each)) + "\n" for each in histories)
    said = subprocess.run([porcupine], input=lines, capture_output=True, text=True, check=True)
    theirs = [line == "true" for line in said.stdout.splitlines()]
    ours = [check_linearizable(each, Register(0)) is None for each in histories]
    assert len(theirs) == HISTORIES
    assert 300 < sum(theirs) < HISTORIES - 300
    wrong = [nth for nth in range(HISTORIES) if ours[nth] != theirs[nth]]
    assert not wrong, [*map(str, histories[wrong[0]])]
