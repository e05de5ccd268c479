"""The examples in the docstrings run, and give what they say."""

import doctest
import pkgutil

import pytest

import wire

MODULES = ["wire", *sorted(module.name for module in pkgutil.walk_packages(wire.__path__, "wire."))]
WITH_EXAMPLES_MIN = 11


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    if name == "wire.__main__":
        return  # runs when imported
    failed, _ = doctest.testmod(pkgutil.resolve_name(name))
    assert failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = (pkgutil.resolve_name(name) for name in MODULES if name != "wire.__main__")
    with_examples = [m for m in modules if any(test.examples for test in finder.find(m))]
    assert len(with_examples) >= WITH_EXAMPLES_MIN
