"""Sources and sinks on the network, on trio."""

from cqrepl.net.errors import NetError, Refused, Unreachable
from cqrepl.net.sink import Sink, serve_sink
from cqrepl.net.source import Source, serve_source
from cqrepl.net.stops import Stop
from cqrepl.net.tailing import follow

__all__ = [
    "NetError",
    "Refused",
    "Sink",
    "Source",
    "Stop",
    "Unreachable",
    "follow",
    "serve_sink",
    "serve_source",
]
