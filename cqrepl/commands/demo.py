"""Runs the demonstration; its exit code says whether the copy was identical."""

from pathlib import Path

from cqrepl.console import exitcodes
from cqrepl.console.endings import ended_as_by_ctrl_c
from cqrepl.demo import run


def run_demo(count: int, size: int, keep: Path | None, *, as_json: bool) -> int:
    """Replicates, compares and prints the result; the exit code."""
    with ended_as_by_ctrl_c():
        same = run(count, size, keep, as_json=as_json)
    return exitcodes.OK if same else exitcodes.STOPPED
