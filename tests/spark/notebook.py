"""Runs a notebook's code cells in order, in one process, and takes what each prints.

    python -m tests.spark.notebook docs/orders.ipynb     runs it, and writes what was printed

Plain Python in cells needs no Jupyter to be run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMEOUT_S = 500
_PROGRAM = """
import contextlib, io, json, sys
cells, names, printed = json.loads(open(sys.argv[1]).read()), {"__name__": "__main__"}, []
for number, cell in enumerate(cells):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(cell, f"cell {number + 1}", "exec"), names)
    printed.append(said.getvalue())
open(sys.argv[2], "w").write(json.dumps(printed))
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"])


def run(path: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        cells, printed = Path(folder) / "cells.json", Path(folder) / "printed.json"
        cells.write_text(json.dumps(["".join(cell["source"]) for cell in code_cells(path)]))
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(cells), str(printed)],
            cwd=folder, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        outputs: list[str] = json.loads(printed.read_text())
        return outputs


def write(path: Path, printed: list[str]) -> None:
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, text) in enumerate(zip(cells, printed, strict=True), 1):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        output = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"] = [output] if lines else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Refreshes the outputs of notebooks."""
    for name in sys.argv[1:]:
        path = Path(name)
        write(path, run(path))
        for cell in code_cells(path):
            sys.stdout.write(shown(cell))


if __name__ == "__main__":
    main()
