"""A Java for the tests of each module, unless it has its own."""

from tests.support.javachecks import java

__all__ = ["java"]
