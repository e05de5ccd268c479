"""Replication of memory-mapped Chronicle queues over TCP, index for index.

`import cqrepl` loads no sub-package: the public names are looked up when they are first used.
"""

from typing import TYPE_CHECKING

from cqrepl._version import VERSION as __version__

if TYPE_CHECKING:
    from cqrepl.queue import (
        Appender,
        BackwardTailer,
        Durability,
        Excerpt,
        NamedTailer,
        Queue,
        QueueError,
        QueueLayout,
        Tailer,
    )
    from cqrepl.replicator.follow import follow
    from cqrepl.replicator.sink import Sink, serve_sink
    from cqrepl.replicator.source import Source, serve_source

__all__ = [
    "Appender",
    "BackwardTailer",
    "Durability",
    "Excerpt",
    "NamedTailer",
    "Queue",
    "QueueError",
    "QueueLayout",
    "Sink",
    "Source",
    "Tailer",
    "__version__",
    "follow",
    "serve_sink",
    "serve_source",
]
_OF_NET = ("Sink", "Source", "follow", "serve_sink", "serve_source")


def __getattr__(name: str) -> object:
    # a plain import statement in each branch keeps the table closed and visible to every tool
    if name in _OF_NET:
        from cqrepl import net

        return getattr(net, name)
    if name in __all__:
        from cqrepl import queue

        return getattr(queue, name)
    raise AttributeError(f"module 'cqrepl' has no attribute {name!r}")
