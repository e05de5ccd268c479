"""A Java program that asks, as docs/queues.md has it, whether the host beside it leads a queue."""

import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from cqrepl.queue import Queue
from tests.support.java import JAVA_FLAGS, JVM_OPTIONS, queue_jar, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import fill

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "queues.md"
HOUR_NS: Final = 3_600_000_000_000
RUN_SECONDS: Final = 60
MAIN: Final = """
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

public final class Asks {
    public static void main(String[] args) throws Exception {
        try (SingleChronicleQueue queue = SingleChronicleQueueBuilder.binary(args[0]).build()) {
            Leads leads = new Leads(queue, Long.parseLong(args[1]));
            for (int line = System.in.read(); line >= 0; line = System.in.read()) {
                System.out.println(leads.now());
                System.out.flush();
            }
        }
    }
}
"""


def snippet() -> str:
    """The one block of Java in the document."""
    _, *blocks = DOCS.read_text().split("```java\n")
    (block,) = blocks
    return block.partition("```")[0]


@pytest.fixture
def classes(tmp_path: Path) -> str:
    """A class path with the snippet and a program that asks it."""
    require_java()
    folder, jar = tmp_path / "java", queue_jar()
    folder.mkdir()
    path = f"{folder}:{jar}:{jar.parent / 'lib'}/*"
    for name, text in (("Leads", snippet()), ("Asks", MAIN)):
        (folder / f"{name}.java").write_text(text)
    sources = [str(each) for each in sorted(folder.glob("*.java"))]
    subprocess.run(
        ["javac", "-cp", path, "-d", str(folder), *sources], check=True, timeout=RUN_SECONDS
    )
    return path


def test_it_sees_at_once_what_the_host_says(tmp_path: Path, classes: str) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    command = [
        "java",
        *JVM_OPTIONS,
        f"@{JAVA_FLAGS}",
        "-cp",
        classes,
        "Asks",
        str(path),
        f"{HOUR_NS}",
    ]
    with (
        Queue.open(path) as queue,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        now = time.monotonic_ns()
        for until_ns, leads in (
            (0, b"false"),  # it has never led
            (now + HOUR_NS // 2, b"true"),
            (now, b"false"),  # the lease is over
            (now + HOUR_NS // 2, b"true"),
            (now + 2 * HOUR_NS, b"false"),  # of another start of the machine
            (0, b"false"),  # it has stepped down
        ):
            queue.note_leads(until_ns)
            program.stdin.write(b".")
            program.stdin.flush()
            assert program.stdout.readline().strip() == leads, until_ns
        program.stdin.close()
