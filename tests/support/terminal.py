"""Terminals: standard output or error of this process as one, and real ones for commands."""

import io
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

WAIT_S = 60


class Terminal(io.StringIO):
    """Takes what is written to a terminal."""

    def isatty(self) -> bool:
        return True


def said_on_a_terminal(command: Sequence[str], awaited: bytes, cwd: Path | None = None) -> bytes:
    """The bytes that a command has drawn and said on a terminal, from its start to its end. It is
    told to end once it has said `awaited`, and must end with exit code 0."""
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (24, 120))
    process = subprocess.Popen(command, stderr=far, cwd=cwd)
    os.close(far)
    said = b""
    try:
        while awaited not in said:
            said += os.read(near, 4096)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(near)
    return said
