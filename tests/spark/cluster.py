"""A standalone cluster on loopback, from what the pip package holds: a master and two workers; and
a server of Spark Connect.

Its executors run a bare Python: nothing of this project, only pyarrow.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.spark.quickjava import OPTIONS
from tests.support.ports import reserved_port

PATIENCE_S = 300
_LISTENING = r"Spark Connect server started at: .*:(\d+)"
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster; `options` is what commands need to run on it, but for `--ship`."""

    master: str
    folder: Path
    workers: tuple[int, ...]

    @property
    def options(self) -> list[str]:
        """`--master` and the settings for so small a cluster."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": OPTIONS,
            "spark.executor.cores": "1",
            "spark.pyspark.python": str(BARE),
            "spark.executorEnv.PYTHONPATH": f"./cqrepl_shipped:{self.folder / 'arrow'}",
        }
        words = [f"--conf={name}={value}" for name, value in conf.items()]
        return [f"--master={self.master}", *words]


@contextmanager
def cluster(folder: Path, hiding: Sequence[tuple[Path, Path]] = ()) -> Iterator[Cluster]:
    """A master and two workers, for the length of a block.

    Args:
        hiding: for each worker a directory, and the path at which it sees that one instead of what
            all others see there. Takes root.
    """
    _only_arrow(folder / "arrow")
    port = reserved_port()
    master = f"spark://127.0.0.1:{port}"
    log = folder / "master.log"
    words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    with ExitStack() as stack:
        _start(stack, "master.Master", words, log)
        _wait_for(log, "Starting Spark master at", 1)
        workers = []
        for nth, name in enumerate(("work1", "work2")):
            words = ["--host", "127.0.0.1", "-c", "1", "-m", "1g", "-d", str(folder / name)]
            words += ["--webui-port", "0", master]
            before = _elsewhere(*hiding[nth]) if nth < len(hiding) else []
            log_of = folder / f"{name}.log"
            workers.append(_start(stack, "worker.Worker", words, log_of, before))
        _wait_for(log, "Registering worker", 2)
        yield Cluster(master=master, folder=folder, workers=tuple(workers))


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect, for the length of a block: what a client gives as `remote`. Its
    workers are this Python."""
    log = folder / "connect.log"
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += ["--master", "local[2]"]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[2])}
    python["SPARK_DAEMON_MEMORY"] = "1g"
    with ExitStack() as stack:
        _start(stack, "SparkSubmit", [*words, "spark-internal"], log, environment=python)
        _wait_for(log, _LISTENING, 1)
        found = re.search(_LISTENING, log.read_text())
        assert found is not None
        yield f"sc://127.0.0.1:{found[1]}"


def _only_arrow(folder: Path) -> None:
    """A folder with pyarrow and nothing else of what is installed here."""
    folder.mkdir()
    found = find_spec("pyarrow")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    (folder / package.name).symlink_to(package)


def namespaces_missing() -> str | None:
    """The reason why no process can see directories of its own here; None when one can."""
    if shutil.which("unshare") is None:
        return "no unshare on the path"
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def _elsewhere(directory: Path, path: Path) -> list[str]:
    """A command that runs what follows it where a directory is seen at another path."""
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh", str(directory), str(path)]


def _start(
    stack: ExitStack,
    name: str,
    words: list[str],
    log: Path,
    before: Sequence[str] = (),
    environment: Mapping[str, str] = {},
) -> int:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    program = Path(found.origin).parent / "bin" / "spark-class"
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "PYTHON", "SPARK"))
    }
    ours |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    ours["SPARK_DAEMON_JAVA_OPTS"] = OPTIONS
    with log.open("w") as out:
        process = subprocess.Popen(
            [*before, str(program), f"org.apache.spark.deploy.{name}", *words],
            env=ours | dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process.pid


def _wait_for(log: Path, text: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(re.findall(text, log.read_text())) < count:
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        assert 'Exception in thread "main"' not in log.read_text(), log.read_text()[-2000:]
        time.sleep(0.05)
