"""A Java for the tests of each module, unless it has its own; and commands run in this process."""

from tests.support.invoke import invoke
from tests.support.javachecks import java

__all__ = ["invoke", "java"]
