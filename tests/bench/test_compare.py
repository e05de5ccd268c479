"""The comparison runs: one small round of what is quick."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_quick_comparison(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.compare", "--quick", "--out", str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    rows = ("append", "tail", "sinks", "sinks-rate", "stored-64")
    done = subprocess.run(
        [*command, *(word for row in rows for word in ("--only", row))],
        cwd=root, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {row["key"]: row for row in json.loads((tmp_path / "compare.json").read_text())["rows"]}
    assert found["append-single"]["value"] > 0
    assert found["sinks"]["verdict"] != "not measured"
    assert "Peers:" in done.stdout
