"""The examples of the README and of the guides run, and print what is promised."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import spark_missing

README = Path(__file__).resolve().parent.parent / "README.md"
PAGES = [
    README,
    *(
        README.parent / "docs" / f"{name}.md"
        for name in ("persistence", "programs", "replicated-state", "spark")
    ),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_is_promised(page: Path) -> None:
    text = page.read_text()
    found = re.findall(r"```python\n(.*?)```\s+prints\n\n((?:    [^\n]*\n)+)", text, re.DOTALL)
    assert len(found) == text.count("```python")
    for program, promised in found:
        if "cqrepl.spark" in program and spark_missing() is not None:
            continue
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == promised.split()


def test_commands_exist() -> None:
    """Every `cqrepl` option that is shown is one that the command knows."""
    group = r"(?:bench |spark |config |plan )?(?:archive (?=add|verify|gc))?"
    command = rf"^    (?:.*\| )?cqrepl ({group}\w[\w-]*)([^\n]*)"
    text = README.read_text() + (README.parent / "docs" / "operations.md").read_text()
    lines = re.findall(command, text, re.MULTILINE)
    assert {"source", "sink", "append", "tail"} <= {name for name, _ in lines}
    for name in sorted({name for name, _ in lines}):
        asked = [sys.executable, "-m", "cqrepl", *name.split(), "--help"]
        done = subprocess.run(asked, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        shown = " ".join(words for each, words in lines if each == name)
        for option in re.findall(r"(--[a-z-]+)", shown):
            assert option in done.stdout


def test_the_configuration_can_be_used(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    asked = [sys.executable, "-m", "cqrepl", "config", "check", str(path)]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{path}: 3 hosts, 2 queues\n"), done.stderr
