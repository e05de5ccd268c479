"""Under any damage to the files of a queue: an error that says where, or what was committed there.

Each example damages one file and asks everything that reads, appends, inspects and repairs; see
`damage`, `damage_checks` and `damage_run`. The runs are processes of their own, since what they
look for may end one. `CQREPL_DAMAGED_FILES` is the number of examples over all runs.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.damage import AREAS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = int(os.environ.get("CQREPL_DAMAGED_FILES", "120"))
RUNS = 4
NOTICED_MIN = 0.6
GROWN_KIB_MAX = 64 * 1024
SECONDS_PER_EXAMPLE = 5  # generous: it is a tenth of a second
AREA_MIN = 0.15


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.timeout(60 + EXAMPLES // RUNS * SECONDS_PER_EXAMPLE)
def test_damaged_queues_give_errors_or_what_was_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    count = EXAMPLES // RUNS
    arguments = [str(tmp_path), str(count), str(100 * number)]
    run = subprocess.run(
        [sys.executable, "-m", "tests.property.damage_run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = tmp_path / "last"
    what = last.read_text() if last.exists() else "nothing was damaged yet"
    assert run.returncode == 0, f"after {what}:\n{run.stdout[-6000:]}\n{run.stderr[-6000:]}"
    tally = json.loads(run.stdout.splitlines()[-1])
    seen, unseen = Counter(tally["seen"]), Counter(tally["unseen"])
    total = seen.total() + unseen.total()
    share = seen.total() / total
    with capsys.disabled():
        print(f"\n{total} damaged files, {share:.0%} noticed by a reader; {tally['errors']}")
    assert total >= count * 0.9  # a drawing twice alike is made once
    assert share >= NOTICED_MIN, (seen, unseen)
    assert tally["grown_kib"] < GROWN_KIB_MAX
    for area in AREAS:
        drawn = sum(n for name, n in (seen + unseen).items() if name.startswith(area))
        assert drawn >= AREA_MIN * total, (area, seen, unseen)
