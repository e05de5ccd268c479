"""A handler that the core does not know or cannot use, as a value: the connection goes on."""

from dataclasses import dataclass, field

from wire import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHandler:
    """A handler whose type is not one of the core's, or whose body cannot be used.

    Args:
        alias: its type, which may be in a program's own table; empty when that cannot be.
        body: what stands in its block, not looked at.
    """

    problem: str
    alias: str = field(default="", compare=False)
    body: Reader | None = field(default=None, compare=False)
