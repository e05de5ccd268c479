"""What a sub-handler is: the part that gets the documents behind its cid."""

from typing import Protocol

from wire import Reader


class SubHandler(Protocol):
    """Driven by messages and by time; answers into its outbox and never calls back."""

    @property
    def csp(self) -> str:
        """The text path under which it was registered."""

    @property
    def deadline(self) -> float:
        """When `tick` has to be called at the latest; infinity for never."""

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        """Takes the data document that starts with `name`; false when it knows no such message."""

    def tick(self, now: float) -> None:
        """Does what is due."""
