"""The one error that bytes can cause."""


class WireError(Exception):
    """Bytes that are not what the format allows.

    Args:
        reason: what was expected and what came, in one sentence without a final stop.
        position: byte offset in the buffer that was read, where one is known.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} at position {position}")
        self.reason = reason
        self.position = position
