"""The file store of QuickFIX/J, which syncs each message; and ours for the same engine, which waits
until a backup has it (the program in `fix/`)."""

from pathlib import Path

from cqrepl.fixengine import JVM_OPTIONS
from tests.bench.peers.programs import kept, missing_program, run, said_numbers
from tests.support.java import JAVA_FLAGS
from tests.support.javabuild import JavaUnavailableError, fix_jar_of, java_missing

INSTALL = "a Java development kit, 17 or newer, and Maven"
COMMANDS = (
    "java Stores file DIR SIZE COUNT, with FileStoreSync=Y",
    "java Stores queue DIR SIZE COUNT, with CqReplicationTimeoutMs=60000",
)
HERE = Path(__file__).resolve().parent / "fix"


def missing() -> str | None:
    """The reason why the program cannot be run here; None when it can."""
    reason = java_missing() or missing_program("javac")
    if reason is None:
        try:
            fix_jar_of()
        except JavaUnavailableError as error:
            reason = str(error)
    return reason


def store_times(folder: Path, kind: str, place: Path, size: int, count: int) -> dict[str, float]:
    """Of a message and its number, the second half of so many: `p50_us`, `p99_us`.

    Args:
        kind: `file`, or `queue`, where the place is that of a queue which the host beside leads.
    """
    jar, classes = fix_jar_of(), kept(folder, "fix-classes")
    path = f"{jar}:{jar.parent / 'lib'}/*"
    if not any(classes.iterdir()):
        run(["javac", "-cp", path, "-d", classes, *HERE.glob("*.java")])
    options = [each for each in JVM_OPTIONS if "TieredStopAtLevel" not in each]
    command = ["java", *options, f"@{JAVA_FLAGS}", "-cp", f"{path}:{classes}"]
    return said_numbers(run([*command, "Stores", kind, place, size, count]))
