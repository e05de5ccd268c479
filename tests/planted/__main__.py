"""`python -m tests.planted`: plants each mistake, or those that are named, and runs its tests.

It works in a copy of the tree. Exit codes: 0 the tests have found each; 1 they have not; 2 the call
was wrong, or the tests fail in the copy without a mistake.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.planted.rows import ROOT, ROWS, Planted

TEST_SECONDS: Final = 120  # that one test may take: a mistake may have it wait for ever
FOUND: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
NOTHING_RUN: Final = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
BROKEN: Final = "expected tests that pass without a mistake"
# what tests use a process of, too, has to be of the copy
HERE: Final = "import cqrepl, wire, sys; print(cqrepl.__file__, wire.__file__)"


def main() -> int:
    """Parses, plants, and gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these rows")
    parser.add_argument("--room", help="only the rows of this room, as queue/files or queue")
    parser.add_argument("--list", action="store_true", help="only tell the rows")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {row.name for row in ROWS}
    rows = [
        row
        for row in ROWS
        if (not arguments.names or row.name in arguments.names)
        and (not arguments.room or f"{row.room}/".startswith(f"{arguments.room}/"))
    ]
    if unknown or not rows:
        parser.error(f"expected names of rows, got {', '.join(sorted(unknown)) or arguments.room}")
    if arguments.list:
        print("\n".join(f"{row.room:24} {row.name}" for row in rows))
        return 0
    with tempfile.TemporaryDirectory(prefix="cqrepl-planted-") as folder:
        copy = copied(Path(folder))
        check_copy(copy)
        return judged(rows, copy)


def copied(folder: Path) -> Path:
    """A copy of the tree: what git knows or would take in, and the compiled kernel."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / "cqrepl").glob("_native*.so")]
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def environment_in(copy: Path) -> dict[str, str]:
    """The variables with which Python imports the copy. No byte code is kept: it would be taken for
    that of a module which has changed within the same second, to the same length."""
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def check_copy(copy: Path) -> None:
    """Exits where Python would import another tree, as all would seem to be found by none."""
    command = [sys.executable, "-P", "-c", HERE]
    done = subprocess.run(
        command, cwd=copy, env=environment_in(copy), capture_output=True, text=True, check=True
    )
    if any(not Path(each).is_relative_to(copy) for each in done.stdout.split()):
        sys.exit(f"expected packages in {copy}, got {done.stdout}")


def judged(rows: Sequence[Planted], copy: Path) -> int:
    """Plants one after the other, and says of each which test has found it; the exit code."""
    missed = []
    for row in rows:
        with planted(row, copy):
            found = finder(row.tests, copy)
        if found is None:
            missed.append(row)
        print(f"{row.room:24} {row.name:42} {found or 'NOT FOUND'}", flush=True)
    paths = sorted({path for row in rows for path in row.tests})
    if (broken := finder(paths, copy)) is not None:
        print(f"{BROKEN}: {broken}")
        return 2
    print(f"{len(rows) - len(missed)} of {len(rows)} found")
    return 1 if missed else 0


@contextmanager
def planted(row: Planted, copy: Path) -> Iterator[None]:
    """The mistake is in the copy for the length of a block."""
    path = row.path(copy)
    right = path.read_text()
    assert right.count(row.text) == 1, row.name
    path.write_text(right.replace(row.text, row.wrong))
    try:
        yield
    finally:
        path.write_text(right)


def finder(paths: Sequence[str], copy: Path) -> str | None:
    """The first test that fails in the copy; None where all pass."""
    for path in paths:
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-n0", "--hypothesis-seed=1"]
        command += ["--timeout", str(TEST_SECONDS), "-m", "not long", path]
        done = subprocess.run(
            command, cwd=copy, env=environment_in(copy), capture_output=True, text=True, check=False
        )
        if done.returncode in NOTHING_RUN:
            sys.exit(f"expected tests in {path}, got: {done.stdout[-500:]}{done.stderr[-500:]}")
        if done.returncode:
            found = FOUND.search(done.stdout)
            return found[1] if found else f"{path}: exit code {done.returncode}"
    return None


if __name__ == "__main__":
    sys.exit(main())
