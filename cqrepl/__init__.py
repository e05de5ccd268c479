"""Replication of memory-mapped Chronicle queues over TCP, index for index.

`import cqrepl` loads no sub-package: the public names are looked up when they are first used.
"""

from typing import TYPE_CHECKING

from cqrepl._version import VERSION as __version__

if TYPE_CHECKING:
    from cqrepl.net import Sink, Source, serve_sink, serve_source
    from cqrepl.queue import Queue, QueueError

__all__ = [
    "Queue",
    "QueueError",
    "Sink",
    "Source",
    "__version__",
    "serve_sink",
    "serve_source",
]


def __getattr__(name: str) -> object:
    # a plain import statement in each branch keeps the table closed and visible to every tool
    if name in ("Queue", "QueueError"):
        from cqrepl import queue

        return getattr(queue, name)
    if name in ("Sink", "Source", "serve_sink", "serve_source"):
        from cqrepl import net

        return getattr(net, name)
    raise AttributeError(f"module 'cqrepl' has no attribute {name!r}")
