"""The names of all targets, and where each is: a child imports no more than its own family."""

from collections.abc import Callable
from typing import Final

from tests.fuzz.target import Target

Family = dict[str, Target]


def _wire() -> Family:
    from tests.fuzz.wire_targets import TARGETS

    return TARGETS


def _texts() -> Family:
    from tests.fuzz.text_targets import TARGETS

    return TARGETS


def _grammar() -> Family:
    from tests.fuzz.grammar_targets import TARGETS

    return TARGETS


def _kernel() -> Family:
    from tests.fuzz.kernel_targets import TARGETS

    return TARGETS


def _dump() -> Family:
    from tests.fuzz.dump_targets import TARGETS

    return TARGETS


def _queue() -> Family:
    from tests.fuzz.queue_targets import TARGETS

    return TARGETS


def _protocol() -> Family:
    from tests.fuzz.protocol_targets import TARGETS

    return TARGETS


def _planted() -> Family:
    from tests.fuzz.planted_targets import TARGETS

    return TARGETS


_FAMILIES: Final[dict[str, Callable[[], Family]]] = {
    **dict.fromkeys(("loads", "decode", "documents", "splitter"), _wire),
    **dict.fromkeys(("dump-text", "encode-text"), _texts),
    **dict.fromkeys(("grammar-values", "grammar-documents"), _grammar),
    **dict.fromkeys(("find-excerpts", "scan-frames", "kernels-agree"), _kernel),
    **dict.fromkeys(("dump-stream", "dump-store", "capture", "packets", "reassembly"), _dump),
    **dict.fromkeys(("queue", "table-store"), _queue),
    **dict.fromkeys(("acceptor", "dialler"), _protocol),
}
# with defects on purpose: these must be found
PLANTED: Final = ("planted-error", "planted-hang", "planted-memory", "planted-output")
NAMES: Final = tuple(_FAMILIES)


def load(name: str) -> Target:
    """The target of this name.

    Raises:
        KeyError: there is none.
    """
    family = _planted if name in PLANTED else _FAMILIES[name]
    return family()[name]
