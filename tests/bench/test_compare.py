"""The comparison runs: one small round of what is quick."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# of the pump; a row of 99th percentiles counts on a calm machine only
LIVE_ROWS = ("slow", "two-ways", "waited-p50", "idle")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_quick_comparison(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.compare", "--quick", "--out", str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    rows = ("append", "tail", "sinks", "sinks-rate", "stored-64", "audits", "frames-64", *LIVE_ROWS)
    done = subprocess.run(
        [*command, *(word for row in rows for word in ("--only", row))],
        cwd=root, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {row["key"]: row for row in json.loads((tmp_path / "compare.json").read_text())["rows"]}
    assert found["append-single"]["value"] > 0
    assert found["sinks"]["verdict"] != "not measured"
    assert all(found[key]["verdict"] != "not measured" for key in LIVE_ROWS)
    assert all(found[key]["value"] > 0 for key in LIVE_ROWS if key != "idle")  # a share of ticks
    assert found["audits-share-10"]["value"] > 0
    assert found["audits-after-1"]["verdict"] != "not measured"
    assert "frames-64" in found
    assert "Peers:" in done.stdout
