"""A handler that cannot be used, as a value: the connection refuses it and goes on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHandler:
    """A handler whose type is not in the closed table, or whose body cannot be used."""

    problem: str
