"""One target in libFuzzer, in a process of its own: `python -m tests.fuzz.child TARGET FOLDER EVERY
...`, which starts from one seed in EVERY.

Theory of operation. The hook that instruments modules stays in place until the process ends, so
that modules which are imported late are instrumented as well; `wire` and `cqrepl` are, the targets
and the standard library are not. All that follows these goes to libFuzzer, which ends the
process itself: with 0 when its time is over, else at the first finding.
"""

import io
import signal
import sys
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any

import atheris

from tests.fuzz import corpus
from tests.fuzz.families import load
from tests.fuzz.target import Run, Target

INSTRUMENTED = ["wire", "cqrepl"]


def silent(run: Run) -> Run:
    """The same; it fails when it prints, which no library may."""
    printed = io.StringIO()

    def checked(data: bytes) -> None:
        try:
            with redirect_stdout(printed):
                run(data)
            assert not printed.tell(), f"printed {printed.getvalue()[:200]!r}"
        except BaseException:
            # libFuzzer's clock for slow inputs would end the process while this one is saved, as
            # the interpreter takes the handlers of signals away first
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise

    return checked


def main() -> None:
    """Fuzzes; does not return."""
    name, folder, every, *flags = sys.argv[1:]
    # atheris has no types
    engine: Any = atheris
    with engine.instrument_imports(include=INSTRUMENTED):
        target = load(name)
        arguments = [sys.argv[0], *flags, *_prepared(target, Path(folder), int(every))]
        engine.Setup(arguments, silent(target.run))
        engine.Fuzz()


def _prepared(target: Target, folder: Path, every: int) -> list[str]:
    found, start, words = folder / "found", folder / "start", folder / "words"
    found.mkdir(parents=True, exist_ok=True)
    corpus.write(lambda: islice(target.seeds(), 0, None, every), start)
    corpus.write_dictionary(target.tokens, words)
    flags = [f"-max_len={target.length_max}", str(found), str(start)]
    return [f"-dict={words}", *flags] if target.tokens else flags


if __name__ == "__main__":
    main()
