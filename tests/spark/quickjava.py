"""Options by which a Java process of Spark starts with less: most of a test's time goes into that.

A session that runs a few small jobs loads some ten thousand classes, once. Their bytes are Spark's
own and are not proved sound again, nothing is compiled a second time for speed, and no threads
collect garbage side by side.
"""

from typing import Final

OPTIONS: Final = " ".join(
    (
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
    )
)
