"""Loopback itself, by the C program in `c/`: what no replication over TCP can beat here."""

from pathlib import Path

from tests.bench.peers.programs import kept, missing_program, run, said_numbers

INSTALL = "a C compiler, gcc"
COMMANDS = (
    "gcc -O2 -o limits limits.c",
    "limits stream 262144 MIB",
    "limits echo SIZE COUNT GAP_US spin|block|apart",
)
SOURCE = Path(__file__).resolve().parent / "c" / "limits.c"
CHUNK_BYTES = 256 << 10


def missing() -> str | None:
    """The reason why the program cannot be built here; None when it can."""
    return missing_program("gcc")


def stream(folder: Path, mib: int) -> dict[str, float]:
    """Sending in pieces of 256 KiB: `gb_per_s`."""
    return said_numbers(run([_program(folder), "stream", CHUNK_BYTES, mib]))


def echo(folder: Path, size: int, count: int, gap_us: int, mode: str) -> dict[str, float]:
    """Round trips, both sides polling ("spin") or sleeping ("block"; "apart": each on a core of its
    own): `p50_us` and more."""
    return said_numbers(run([_program(folder), "echo", size, count, gap_us, mode]))


def _program(folder: Path) -> Path:
    program = kept(folder, "c-programs") / "limits"
    if not program.exists():
        run(["gcc", "-O2", "-o", program, SOURCE])
    return program
