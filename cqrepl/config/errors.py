"""The error of a configuration that cannot be used, with its place in the file."""

from dataclasses import dataclass

from cqrepl.console.exitcodes import BadArguments


@dataclass(frozen=True, slots=True, order=True)
class TextSpot:
    """A place in a configuration file; line and column count from 1."""

    line: int
    column: int


class ConfigError(BadArguments):
    """A configuration cannot be used; the text is one line for people.

    Args:
        path: the file, or what stands in its place.
        spot: where in it; None where the whole is meant.
        message: what was expected, and what came.
    """

    def __init__(self, path: str, spot: TextSpot | None, message: str) -> None:
        where = path if spot is None else f"{path}:{spot.line}:{spot.column}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.spot = spot
        self.message = message
