"""Compiles the scan in Java against the jars of a Spark, and packs it: `build.py JARS_DIR OUT.jar`.

The classes are of Java 17 whatever Java compiles them. The same sources give the same jar, byte for
byte, with the same compiler.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = "17"
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_WHEN = (1980, 1, 1, 0, 0, 0)


def build(jars: Path, out: Path) -> None:
    """Makes the jar.

    Args:
        jars: a directory with Spark's jars, as `pyspark/jars`.

    Raises:
        SystemExit: there are none, no compiler is there, or it refuses the sources.
    """
    if not any(jars.glob("spark-catalyst_*.jar")):
        sys.exit(f"expected Spark's jars in {jars}, found no spark-catalyst")
    compiler = shutil.which("javac")
    if compiler is None:
        sys.exit("javac is missing: install a JDK of Java 17 or newer")
    sources = sorted(map(str, (HERE / "src").rglob("*.java")))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--release", RELEASE, "-encoding", "UTF-8", "-proc:none", "-nowarn"]
        command = [compiler, *options, "-d", folder, "-cp", f"{jars}/*", *sources]
        # the compiler that was found, no shell
        if subprocess.run(command, check=False).returncode:  # noqa: S603
            sys.exit("the scan for Spark does not compile")
        classes = sorted(Path(folder).rglob("*.class"))
        out.parent.mkdir(parents=True, exist_ok=True)
        made = out.with_suffix(".made")
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as jar:
            for path in classes:
                _add(jar, str(path.relative_to(folder)), path.read_bytes())
            _add(jar, SERVICE, (HERE / SERVICE).read_bytes())
        made.replace(out)


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _WHEN)
    entry.compress_type = zipfile.ZIP_DEFLATED
    jar.writestr(entry, data)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: build.py JARS_DIR OUT.jar")
    build(Path(sys.argv[1]), Path(sys.argv[2]))
