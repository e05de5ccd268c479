"""The work of programs on the connections of a source or sink, beside the queues."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from cqrepl.protocol.messages.registry import HANDLERS
from cqrepl.protocol.subhandler import HandlerKind, LinkView

_PARTS: Final = ("kinds", "connected", "told")  # of a `Program`


class Program(Protocol):
    """Handed to a host, a source or a sink; its methods run in the tasks of each connection.

    While one of them waits, nothing more is read from that peer. That a connection is over, its
    handlers hear (`SubHandler.closed`). An Exception ends the connection, and is logged.

    A connection may carry several programs. Each is told of each peer, in their order, and is told
    by its own handlers only: those that it registers, and those of the kinds that it adds.
    """

    @property
    def kinds(self) -> tuple[HandlerKind, ...]:
        """The rows that it adds to the handler table; the same for the whole run."""

    async def connected(self, link: LinkView) -> None:
        """A peer is there: it may be given handlers."""

    async def told(self, link: LinkView, event: object) -> None:
        """One of its handlers has told this (`LinkView.tell`)."""


def name_of(program: Program) -> str:
    """The name of a program, for errors and logs: that of its class."""
    return type(program).__qualname__


def programs_of(program: Program | None, programs: Iterable[Program]) -> tuple[Program, ...]:
    """The programs of a host, which come as one or as several.

    Raises:
        ValueError: both came, or two add a kind of the same name.
        TypeError: one of them is no program.
    """
    if not isinstance(programs, Iterable):
        raise TypeError(f"programs=: expected a list of programs, got {programs!r}")
    found = tuple(programs)
    if program is not None:
        if found:
            raise ValueError("expected program= or programs=, got both")
        found = (program,)
    for each in found:
        if isinstance(each, type) or not all(hasattr(each, part) for part in _PARTS):
            raise TypeError(f"expected a program, with {', '.join(_PARTS)}, got {each!r}")
    check_kinds(found)
    return found


def check_kinds(programs: Sequence[Program]) -> None:
    """Looks whether each kind that programs add has a name of its own.

    Raises:
        ValueError: two programs add kinds of the same name, or one adds a kind with the name of a
            row of the core, or with none.
    """
    owners: dict[str, Program] = {}
    for program in programs:
        for kind in program.kinds:
            alias = kind.alias.removeprefix("!")
            if not alias:
                raise ValueError(f"{name_of(program)}: a kind with a name expected, '' came")
            if alias in HANDLERS:
                raise ValueError(
                    f"{name_of(program)} adds the kind {kind.alias!r}, which is one of the"
                    " protocol's: expected a name of its own"
                )
            if alias in owners:
                raise ValueError(
                    f"{name_of(owners[alias])} and {name_of(program)} both add the kind"
                    f" {kind.alias!r}: expected a name of its own for each"
                )
            owners[alias] = program
