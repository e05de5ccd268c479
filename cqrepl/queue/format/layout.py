"""The layout of a queue: it decides where an excerpt lies and how the files are laid out."""

from dataclasses import dataclass

from cqrepl.queue.format.rollcycle import RollCycle


@dataclass(frozen=True)
class QueueLayout:
    """The roll configuration of a queue, and the indexing numbers its new store files get.

    A table store keeps all of it but the indexing numbers, which are in every store file.
    """

    roll_cycle: RollCycle
    epoch: int
    index_count: int
    index_spacing: int
    source_id: int = 0

    @classmethod
    def of(cls, roll_cycle: RollCycle, epoch: int | None = None) -> "QueueLayout":
        """The usual layout of a roll cycle."""
        return cls(
            roll_cycle=roll_cycle,
            epoch=roll_cycle.default_epoch if epoch is None else epoch,
            index_count=roll_cycle.index_count,
            index_spacing=roll_cycle.index_spacing,
        )

    def matches(self, other: "QueueLayout") -> bool:
        """True when the same excerpts get the same indexes and index pages; not the source id."""
        return (
            self.roll_cycle.name == other.roll_cycle.name
            and self.epoch == other.epoch
            and self.index_count == other.index_count
            and self.index_spacing == other.index_spacing
        )

    def __str__(self) -> str:
        return (
            f"{self.roll_cycle.name} epoch {self.epoch}"
            f" indexCount {self.index_count} indexSpacing {self.index_spacing}"
        )
