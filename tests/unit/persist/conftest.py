"""Commands run in this process."""

from tests.support.invoke import invoke

__all__ = ["invoke"]
