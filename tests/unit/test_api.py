"""The names that `import cqrepl` offers, and the modules that it loads."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cqrepl
import cqrepl.grid
import cqrepl.protocol
import cqrepl.queue
from cqrepl.net.errors import NetError

SOURCE = Path(cqrepl.__file__)
PACKAGES = ("cqrepl", "wire", "trio", "click", "construct", "ruamel", "pyarrow", "pyspark")


HOMES = cqrepl._HOMES | dict.fromkeys(cqrepl._ROOMS, "cqrepl")


def ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def test_import_loads_no_sub_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """All modules of cqrepl are forgotten first, as before a program's first import, and put
    back."""
    for name in filter(ours, list(sys.modules)):
        monkeypatch.delitem(sys.modules, name)
    exec("import cqrepl", {})
    assert set(filter(ours, sys.modules)) == {"cqrepl", "cqrepl._version"}
    assert sys.modules["cqrepl"] is not cqrepl
    exec("import cqrepl; cqrepl.NetError", {})
    assert "cqrepl.net.errors" in sys.modules  # so what is loaded would have been seen
    for name in filter(ours, list(sys.modules)):
        del sys.modules[name]


@pytest.mark.parametrize("name", sorted(cqrepl._HOMES))
def test_each_name_is_what_its_module_has(name: str) -> None:
    found = getattr(cqrepl, name)
    home = sys.modules[cqrepl._HOMES[name]]
    assert found is vars(home)[name]
    if isinstance(found, type) or callable(found):
        assert found.__name__ == name
    else:
        assert name.isupper()


def test_names_are_looked_up_when_they_are_used_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(cqrepl), "Queue", raising=False)
    assert cqrepl.Queue is cqrepl.queue.Queue
    assert vars(cqrepl)["Queue"] is cqrepl.queue.Queue


@pytest.mark.parametrize("name", ["aio", "blocking"])
def test_a_twin_needs_no_import_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(cqrepl), name, raising=False)
    assert getattr(cqrepl, name).Host.__module__ == f"cqrepl.{name}"
    assert name in dir(cqrepl)


@pytest.mark.parametrize("name", ["nothing", "queue.Queue", "_homes"])
def test_a_name_that_there_is_not(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'cqrepl' has no attribute '{name}'"):
        getattr(cqrepl, name)


def test_all_names_are_listed() -> None:
    assert set(cqrepl.__all__) == {"__version__", *HOMES}
    assert len(cqrepl.__all__) == len(set(cqrepl.__all__))
    assert set(cqrepl.__all__) <= set(dir(cqrepl))
    scope: dict[str, object] = {}
    exec("from cqrepl import *", scope)
    assert set(cqrepl.__all__) <= set(scope)


def test_what_type_checkers_see_is_what_is_loaded() -> None:
    assert dict(typed_imports(ast.parse(SOURCE.read_text()))) == HOMES


def typed_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and module of each import that only a type checker follows."""
    (block,) = [
        node for node in tree.body if isinstance(node, ast.If) and names_type_checking(node.test)
    ]
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname is None
            yield alias.name, node.module or ""


def names_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def test_a_table_and_imports_that_differ_are_seen() -> None:
    text = "if TYPE_CHECKING:\n    from a import B, C\n    from d import e\n"
    assert dict(typed_imports(ast.parse(text))) == {"B": "a", "C": "a", "e": "d"}


def test_everything_of_the_queue_and_every_error_has_a_public_name() -> None:
    assert set(cqrepl.queue.__all__) <= set(cqrepl.__all__)
    for base in (cqrepl.QueueError, NetError):
        for error in (base, *children(base)):
            room = cqrepl.grid if error.__module__.startswith("cqrepl.grid.") else cqrepl
            assert getattr(room, error.__name__) is error


def children(base: type[Exception]) -> Iterator[type[Exception]]:
    """The errors of the product that are of a kind; tests make some of their own."""
    for error in base.__subclasses__():
        if ours(error.__module__):
            yield error
            yield from children(error)
