"""Commands run in this process: quick, and for everything that ends at once."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.main import cli
from tests.support.samples import fill


class Invoke(Protocol):
    """Runs `cqrepl ARGUMENTS...` to its end."""

    def __call__(self, *arguments: object, stdin: IO[bytes] | None = None) -> Result: ...


@pytest.fixture
def invoke() -> Iterator[Invoke]:
    """A command sets up logging for its process: that is undone here."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*arguments: object, stdin: IO[bytes] | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(each) for each in arguments], stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        assert "Traceback" not in result.output
        return result

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A small queue named "q"."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    return tmp_path / "q"
