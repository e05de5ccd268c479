"""Finds a Java for Spark, and says in one sentence how to get one."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.console.exitcodes import BadArguments

LEAST: Final = 17
_PLACES: Final = Path("/usr/lib/jvm")
_HOW: Final = (
    f"install Java {LEAST} or newer (Debian, Ubuntu: openjdk-{LEAST}-jre-headless; Fedora:"
    f" java-{LEAST}-openjdk-headless) or set JAVA_HOME"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that was found. `version` is None where its folder does not tell."""

    home: Path
    version: str | None

    @property
    def is_usable(self) -> bool:
        """False only when it is known to be too old."""
        return self.version is None or _major(self.version) >= LEAST


def find_java() -> Java:
    """The Java of JAVA_HOME, else the one on the path, else the newest of the system's folder.

    Raises:
        BadArguments: there is none, or only one that Spark does not run on.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        if not (Path(named) / "bin" / "java").exists():
            raise BadArguments(f"JAVA_HOME names {named}, where no bin/java is: {_HOW}")
        found = [_java(Path(named))]
    else:
        program = shutil.which("java")
        homes = [] if program is None else [Path(program).resolve().parents[1]]
        homes += [each.parents[1] for each in _PLACES.glob("*/bin/java")]
        found = [_java(home) for home in homes]
    usable = [java for java in found if java.is_usable]
    if usable:
        return usable[0]
    if found:
        raise BadArguments(f"Java {found[0].version} in {found[0].home} is too old: {_HOW}")
    raise BadArguments(f"Spark needs Java, none was found: {_HOW}")


def _java(home: Path) -> Java:
    """A Java by its folder, which has a file that says what it is."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return Java(home=home, version=None)
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return Java(home=home, version=None if match is None else match[1])


def _major(version: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_402`."""
    numbers = [int(number) for number in re.findall(r"[0-9]+", version)]
    if not numbers:
        return LEAST
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
