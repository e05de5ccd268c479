"""Describes a machine as far as a reader needs it to judge numbers that were measured there."""

import os
import platform
import sys
from pathlib import Path

from cqrepl._version import VERSION
from cqrepl.kernel import choose


def machine_facts() -> dict[str, str | int]:
    """Facts that stay the same from round to round."""
    return {
        "cqrepl": VERSION,
        "kernel": choose.NAME,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


def load() -> float:
    """The number of processes that wanted to run, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def facts_text(facts: dict[str, str | int]) -> str:
    """The facts on one line for people."""
    return (
        f"cqrepl {facts['cqrepl']} (kernel: {facts['kernel']}), {facts['python']}, "
        f"{facts['system']}, {facts['cores']} cores, {facts['processor']}"
    )


def _processor() -> str:
    """The model's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or sys.platform
