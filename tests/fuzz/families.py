"""The names of all targets, and where each is: a child imports no more than its own family."""

from importlib import import_module
from typing import Final

from tests.fuzz.target import Target

Family = dict[str, Target]

_FAMILIES: Final = {
    "wire": ("loads", "decode", "documents", "splitter"),
    "text": ("dump-text", "encode-text"),
    "grammar": ("grammar-values", "grammar-documents"),
    "kernel": ("find-excerpts", "runs", "scan-frames", "kernels-agree"),
    "dump": ("dump-stream", "dump-store", "capture", "packets", "reassembly"),
    "queue": ("queue", "table-store"),
    "protocol": ("acceptor", "dialler"),
}
# with defects on purpose: these must be found
PLANTED: Final = ("planted-error", "planted-hang", "planted-memory", "planted-output")
NAMES: Final = tuple(name for names in _FAMILIES.values() for name in names)
_MODULES: Final = dict.fromkeys(PLANTED, "planted") | {
    name: family for family, names in _FAMILIES.items() for name in names
}


def targets(family: str) -> Family:
    found: Family = import_module(f"tests.fuzz.{family}_targets").TARGETS
    return found


def load(name: str) -> Target:
    """The target of this name.

    Raises:
        KeyError: there is none.
    """
    return targets(_MODULES[name])[name]
