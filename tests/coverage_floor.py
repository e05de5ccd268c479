"""Fails when branch coverage of a package is below its floor; the suite's last step.

Each package is judged alone, so that a well covered one cannot make up for another.
"""

import subprocess
import sys

FLOORS = {"wire": 95, "cqrepl/queue": 95, "cqrepl/protocol": 95}


def main() -> int:
    failed = False
    for package, floor in FLOORS.items():
        command = [sys.executable, "-m", "coverage", "report", f"--include={package}/*"]
        done = subprocess.run([*command, "--format=total"], capture_output=True, text=True)
        total = float(done.stdout.strip() or 0)
        print(f"branch coverage of {package}: {total:g} % (at least {floor} %)")
        if total < floor:
            failed = True
            subprocess.run(command)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
