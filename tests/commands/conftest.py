"""Commands run in this process, and a small queue for them."""

from tests.support.invoke import invoke, queue

__all__ = ["invoke", "queue"]
