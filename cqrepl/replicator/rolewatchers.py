"""The watchers of one half of a host that are called whenever a queue may have another role."""

from collections.abc import Callable
from functools import partial

from cqrepl.replicator.leadership import Leading


class RoleWatchers(list[Callable[[str], None]]):
    """Each is called with the name of a queue, in the thread that has changed it."""

    def look(self, name: str) -> None:
        """The role of a queue may be another one now."""
        for watcher in list(self):
            watcher(name)

    def watch(self, leading: Leading) -> None:
        """A queue is streamed from now on: it is looked at, and whenever this host steps down or
        leads again."""
        leading.role_changed = partial(self.look, leading.name)
        self.look(leading.name)
