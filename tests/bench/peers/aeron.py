"""Aeron Archive: one archive replicates what another has recorded, over UDP.

Java compiles while it runs: two replications go before the one that counts. Nothing is synced, and
no checksum is kept; both would make it slower.
"""

import shutil
import subprocess
from pathlib import Path

from tests.bench.peers.programs import WAIT_SECONDS, kept, missing_program, run, said_numbers
from tests.support.ports import reserved_port

VERSION = "1.44.1"
JAR = Path.home() / f".m2/repository/io/aeron/aeron-all/{VERSION}/aeron-all-{VERSION}.jar"
INSTALL = (
    "a Java development kit, 17 or newer, and the library, with Maven: "
    f"mvn dependency:get -Dartifact=io.aeron:aeron-all:{VERSION}"
)
COMMANDS = (
    "java Archives serve DIR DRIVER PORT SIZE COUNT & "
    "java Archives copy DIR DRIVER PORT FROM ID STOP COUNT 2",
)
HERE = Path(__file__).resolve().parent / "aeron"
MEMORY = Path("/dev/shm")
JVM_FLAGS = (
    "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens", "java.base/java.util.zip=ALL-UNNAMED",
    "-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g",
    "-Dagrona.disable.bounds.checks=true",
)  # fmt: skip
WARM = 2


def missing() -> str | None:
    """The reason why Aeron Archive cannot run here; None when it can."""
    reason = missing_program("java", "javac")
    if reason is None and not JAR.exists():
        reason = f"{JAR.name} is not in the local Maven repository"
    return reason


def rate(folder: Path, size: int, count: int) -> dict[str, float]:
    """The last of some replications: `excerpts_per_s`."""
    java = _command(folder)
    ports = reserved_port(), reserved_port()
    places = [kept(folder, f"aeron-{port}") for port in ports]
    drivers = [MEMORY / f"aeron-{port}" for port in ports]
    served = [*java, "serve", places[0], drivers[0], ports[0], size, count]
    try:
        with subprocess.Popen(
            [str(word) for word in served],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as server:  # fmt: skip
            assert server.stdin is not None
            assert server.stdout is not None
            said = said_numbers(server.stdout.readline())
            copied = [places[1], drivers[1], ports[1], ports[0], int(said["id"]), int(said["stop"])]
            found = said_numbers(run([*java, "copy", *copied, count, WARM]))
            server.stdin.close()
            server.wait(WAIT_SECONDS)
    finally:
        for place in (*places, *drivers):
            shutil.rmtree(place, ignore_errors=True)
    return found


def _command(folder: Path) -> list[str]:
    """The start of a command; the program is compiled once for each folder."""
    classes = kept(folder, "aeron-classes")
    if not any(classes.iterdir()):
        run(["javac", "-cp", JAR, "-d", classes, *HERE.glob("*.java")])
    return ["java", *JVM_FLAGS, "-cp", f"{JAR}:{classes}", "Archives"]
