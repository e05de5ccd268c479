"""The commands tell in one line what is missing, and how to get it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.console.exitcodes import BadArguments
from cqrepl.spark.java import find_java
from tests.spark.queues import make_queue
from tests.support.processes import children_of


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cqrepl", "spark", *words],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment,
    )  # fmt: skip


def fake_java(folder: Path, version: str | None) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch(mode=0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return folder


def test_all_is_well(spark: SparkSession) -> None:
    assert spark
    done = CliRunner().invoke(cli, ["spark", "doctor", "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = [row["name"] for row in rows]
    assert names == ["python", "pyspark", "pyarrow", "java", "session", "workers", "queue"]
    assert {row["grade"] for row in rows} == {"ok"}


def test_no_java(tmp_path: Path) -> None:
    done = command("doctor", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"fail  java      JAVA_HOME names {tmp_path}, where no bin/java is")
    queue = str(make_queue(tmp_path / "a", (5,)))
    audit = command("audit", queue, queue, JAVA_HOME=str(tmp_path))
    assert audit.returncode == 2
    assert audit.stderr.count("\n") == 1
    assert "install Java 17 or newer" in audit.stderr


@pytest.mark.parametrize(
    ("version", "is_usable"),
    [("17.0.15", True), ("21", True), ("25-ea", True), ("11.0.2", False), ("1.8.0_402", False),
     (None, True), ("unknown", True)],
)  # fmt: skip
def test_versions_of_java(
    tmp_path: Path, version: str | None, is_usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", version)))
    if is_usable:
        assert find_java().version == version
    else:
        with pytest.raises(BadArguments, match="is too old: install Java 17 or newer"):
            find_java()


def test_java_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path / "java", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().home == java


def test_no_pyspark() -> None:
    """A command names pyspark when it is missing, as after a plain `pip install cqrepl`."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from cqrepl.cli.main import cli; cli(['spark', 'audit', 'a', 'b'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 2
    said = "pyspark is not installed: pip install 'cqrepl[spark]'"
    assert done.stderr == f"cqrepl spark audit: {said}\n"


@pytest.mark.parametrize(
    "name", [pytest.param("spark-submit", marks=pytest.mark.long), "pyspark.daemon"]
)
def test_interrupted(tmp_path: Path, name: str) -> None:
    """A command ends quietly while Java starts, and while its Python workers are at work."""
    paths = [str(make_queue(tmp_path / each, (400_000,))) for each in "ab"]
    words = [sys.executable, "-P", "-m", "cqrepl", "spark", "audit", *paths]
    pipe, mark = subprocess.PIPE, "RUN_OF_THIS_TEST"
    environment = os.environ | {mark: str(tmp_path)}
    with subprocess.Popen(words, stderr=pipe, stdout=pipe, text=True, env=environment) as run:
        deadline = time.monotonic() + 300
        while not has_started(run.pid, name.encode()) and time.monotonic() < deadline:
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        out, said = run.communicate(timeout=300)
    assert (run.returncode, out, said) == (130, "", "")
    deadline = time.monotonic() + 300
    while (left := started_with(f"{mark}={tmp_path}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def has_started(pid: int, name: bytes) -> bool:
    """True when a process below another one has this in its command line."""
    try:
        return any(
            name in Path(f"/proc/{child}/cmdline").read_bytes() or has_started(child, name)
            for child in children_of(pid)
        )
    except OSError:  # one has ended meanwhile
        return False


def started_with(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def test_the_command_line_loads_nothing_of_spark() -> None:
    program = (
        "import sys, cqrepl.cli.main\n"
        "print([n for n in sys.modules if n.startswith(('pyspark', 'pyarrow', 'cqrepl.spark'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n"
