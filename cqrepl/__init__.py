"""Replication of memory-mapped Chronicle queues over TCP, index for index.

`import cqrepl` loads no sub-package: the public names are looked up when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from cqrepl._version import VERSION as __version__

if TYPE_CHECKING:
    from cqrepl import aio, blocking
    from cqrepl.broker.client import TasksRefused
    from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
    from cqrepl.cluster.promotion import Promotion
    from cqrepl.cluster.snapshots import GroupState, Snapshots
    from cqrepl.config.errors import ConfigError
    from cqrepl.config.hostplan import read_settings
    from cqrepl.host import Host, serve_host
    from cqrepl.kernel.board import AckLevel
    from cqrepl.kernel.errors import KernelUnavailable
    from cqrepl.net.errors import NetError, Refused, Unreachable
    from cqrepl.net.program import Program
    from cqrepl.net.rundirectory import usual_run_dir
    from cqrepl.net.settings import NetSettings
    from cqrepl.net.tlscredentials import BadCredentials
    from cqrepl.page.server import PageRefused
    from cqrepl.protocol import (
        PAYLOAD_MAX,
        AckPolicy,
        HandlerKind,
        HeartbeatSettings,
        LinkView,
        ProtocolSettings,
        StopReason,
        SubHandler,
        WireShape,
    )
    from cqrepl.protocol.ackpolicy import PRESETS, From, OnTimeout, commit_index, parse_policy
    from cqrepl.protocol.cid import Cid
    from cqrepl.queue import (
        NEXT_OF_EMPTY,
        ROLL_CYCLES,
        Appender,
        AppendsToCopy,
        AtomicsMissing,
        BackwardTailer,
        Columns,
        Cycle,
        Diverged,
        Durability,
        DurabilityLost,
        Excerpt,
        ExcerptBatch,
        ExcerptTooLarge,
        Index,
        IndexGap,
        LayoutMismatch,
        NamedPosition,
        NamedTailer,
        NotAQueue,
        Pauser,
        Queue,
        QueueCut,
        QueueDamaged,
        QueueError,
        QueueLayout,
        QueueLocked,
        RollCycle,
        Sequence,
        Tailer,
        UnfinishedQueue,
        WrittenBetween,
        cycle_of,
        format_index,
        index_of,
        is_next,
        parse_index,
        sequence_of,
    )
    from cqrepl.queue.format.logpos import LogPos
    from cqrepl.queue.read.stall import Stall
    from cqrepl.replicator.agreement.consent import ReturnRefused, ReturnSettings
    from cqrepl.replicator.agreement.firstindex import ClockBehind
    from cqrepl.replicator.agreement.identities import OtherQueue
    from cqrepl.replicator.follow import Following, follow
    from cqrepl.replicator.followfeed import (
        CannotJoin,
        Follower,
        FollowFeed,
        JoinBy,
        ServiceFailed,
    )
    from cqrepl.replicator.hostend import HostEnded
    from cqrepl.replicator.hostevents import HostEvents, telling
    from cqrepl.replicator.hostqueue import HostQueue
    from cqrepl.replicator.leadership import (
        AckOutcome,
        AckUnknown,
        Appended,
        Leading,
        SteppedDown,
    )
    from cqrepl.replicator.marks.ackboard import AckBoard, WaitEnded
    from cqrepl.replicator.marks.hostmarks import HostMarks
    from cqrepl.replicator.openedqueue import OpenedQueue
    from cqrepl.replicator.queueposition import QueuePosition
    from cqrepl.replicator.queuestate.keptepochs import Fenced
    from cqrepl.replicator.queuestate.passedon import CopyBehind
    from cqrepl.replicator.queuestate.stops import Stop
    from cqrepl.replicator.rolelog import Role, RoleChange
    from cqrepl.replicator.safereader import SafeReader
    from cqrepl.replicator.settings import HostSettings, SinkSettings, SourceSettings
    from cqrepl.replicator.sink import Sink, serve_sink
    from cqrepl.replicator.source import Source, serve_source
    from cqrepl.typed.schemafile import SchemaError

__all__ = [
    "NEXT_OF_EMPTY",
    "PAYLOAD_MAX",
    "PRESETS",
    "ROLL_CYCLES",
    "AckBoard",
    "AckLevel",
    "AckOutcome",
    "AckPolicy",
    "AckUnknown",
    "Appended",
    "Appender",
    "AppendsToCopy",
    "AtomicsMissing",
    "BackwardTailer",
    "BadCredentials",
    "CannotJoin",
    "CheckpointSettings",
    "Checkpointer",
    "Cid",
    "ClockBehind",
    "Columns",
    "ConfigError",
    "CopyBehind",
    "Cycle",
    "Diverged",
    "Durability",
    "DurabilityLost",
    "Excerpt",
    "ExcerptBatch",
    "ExcerptTooLarge",
    "Fenced",
    "FollowFeed",
    "Follower",
    "Following",
    "From",
    "GroupState",
    "HandlerKind",
    "HeartbeatSettings",
    "Host",
    "HostEnded",
    "HostEvents",
    "HostMarks",
    "HostQueue",
    "HostSettings",
    "Index",
    "IndexGap",
    "JoinBy",
    "KernelUnavailable",
    "LayoutMismatch",
    "Leading",
    "LinkView",
    "LogPos",
    "NamedPosition",
    "NamedTailer",
    "NetError",
    "NetSettings",
    "NotAQueue",
    "OnTimeout",
    "OpenedQueue",
    "OtherQueue",
    "PageRefused",
    "Pauser",
    "Program",
    "Promotion",
    "ProtocolSettings",
    "Queue",
    "QueueCut",
    "QueueDamaged",
    "QueueError",
    "QueueLayout",
    "QueueLocked",
    "QueuePosition",
    "Refused",
    "ReturnRefused",
    "ReturnSettings",
    "Role",
    "RoleChange",
    "RollCycle",
    "SafeReader",
    "SchemaError",
    "Sequence",
    "ServiceFailed",
    "Sink",
    "SinkSettings",
    "Snapshots",
    "Source",
    "SourceSettings",
    "Stall",
    "SteppedDown",
    "Stop",
    "StopReason",
    "SubHandler",
    "Tailer",
    "TasksRefused",
    "UnfinishedQueue",
    "Unreachable",
    "WaitEnded",
    "WireShape",
    "WrittenBetween",
    "__version__",
    "aio",
    "blocking",
    "commit_index",
    "cycle_of",
    "follow",
    "format_index",
    "index_of",
    "is_next",
    "parse_index",
    "parse_policy",
    "read_settings",
    "sequence_of",
    "serve_host",
    "serve_sink",
    "serve_source",
    "telling",
    "usual_run_dir",
]
# where each public name is loaded from; also stated above, for tools that do not run this
_HOMES: Final = {
    "NEXT_OF_EMPTY": "cqrepl.queue",
    "PAYLOAD_MAX": "cqrepl.protocol",
    "PRESETS": "cqrepl.protocol.ackpolicy",
    "ROLL_CYCLES": "cqrepl.queue",
    "AckBoard": "cqrepl.replicator.marks.ackboard",
    "AckLevel": "cqrepl.kernel.board",
    "AckOutcome": "cqrepl.replicator.leadership",
    "AckPolicy": "cqrepl.protocol",
    "AckUnknown": "cqrepl.replicator.leadership",
    "Appended": "cqrepl.replicator.leadership",
    "Appender": "cqrepl.queue",
    "AppendsToCopy": "cqrepl.queue",
    "AtomicsMissing": "cqrepl.queue",
    "BackwardTailer": "cqrepl.queue",
    "BadCredentials": "cqrepl.net.tlscredentials",
    "CannotJoin": "cqrepl.replicator.followfeed",
    "CheckpointSettings": "cqrepl.cluster.checkpoints",
    "Checkpointer": "cqrepl.cluster.checkpoints",
    "Cid": "cqrepl.protocol.cid",
    "ClockBehind": "cqrepl.replicator.agreement.firstindex",
    "Columns": "cqrepl.queue",
    "ConfigError": "cqrepl.config.errors",
    "CopyBehind": "cqrepl.replicator.queuestate.passedon",
    "Cycle": "cqrepl.queue",
    "Diverged": "cqrepl.queue",
    "Durability": "cqrepl.queue",
    "DurabilityLost": "cqrepl.queue",
    "Excerpt": "cqrepl.queue",
    "ExcerptBatch": "cqrepl.queue",
    "ExcerptTooLarge": "cqrepl.queue",
    "Fenced": "cqrepl.replicator.queuestate.keptepochs",
    "FollowFeed": "cqrepl.replicator.followfeed",
    "Follower": "cqrepl.replicator.followfeed",
    "Following": "cqrepl.replicator.follow",
    "From": "cqrepl.protocol.ackpolicy",
    "GroupState": "cqrepl.cluster.snapshots",
    "HandlerKind": "cqrepl.protocol",
    "HeartbeatSettings": "cqrepl.protocol",
    "Host": "cqrepl.host",
    "HostEnded": "cqrepl.replicator.hostend",
    "HostEvents": "cqrepl.replicator.hostevents",
    "HostMarks": "cqrepl.replicator.marks.hostmarks",
    "HostQueue": "cqrepl.replicator.hostqueue",
    "HostSettings": "cqrepl.replicator.settings",
    "Index": "cqrepl.queue",
    "IndexGap": "cqrepl.queue",
    "JoinBy": "cqrepl.replicator.followfeed",
    "KernelUnavailable": "cqrepl.kernel.errors",
    "LayoutMismatch": "cqrepl.queue",
    "Leading": "cqrepl.replicator.leadership",
    "LinkView": "cqrepl.protocol",
    "LogPos": "cqrepl.queue.format.logpos",
    "NamedPosition": "cqrepl.queue",
    "NamedTailer": "cqrepl.queue",
    "NetError": "cqrepl.net.errors",
    "NetSettings": "cqrepl.net.settings",
    "NotAQueue": "cqrepl.queue",
    "OnTimeout": "cqrepl.protocol.ackpolicy",
    "OpenedQueue": "cqrepl.replicator.openedqueue",
    "OtherQueue": "cqrepl.replicator.agreement.identities",
    "PageRefused": "cqrepl.page.server",
    "Pauser": "cqrepl.queue",
    "Program": "cqrepl.net.program",
    "Promotion": "cqrepl.cluster.promotion",
    "ProtocolSettings": "cqrepl.protocol",
    "Queue": "cqrepl.queue",
    "QueueCut": "cqrepl.queue",
    "QueueDamaged": "cqrepl.queue",
    "QueueError": "cqrepl.queue",
    "QueueLayout": "cqrepl.queue",
    "QueueLocked": "cqrepl.queue",
    "QueuePosition": "cqrepl.replicator.queueposition",
    "Refused": "cqrepl.net.errors",
    "ReturnRefused": "cqrepl.replicator.agreement.consent",
    "ReturnSettings": "cqrepl.replicator.agreement.consent",
    "Role": "cqrepl.replicator.rolelog",
    "RoleChange": "cqrepl.replicator.rolelog",
    "RollCycle": "cqrepl.queue",
    "SafeReader": "cqrepl.replicator.safereader",
    "SchemaError": "cqrepl.typed.schemafile",
    "Sequence": "cqrepl.queue",
    "ServiceFailed": "cqrepl.replicator.followfeed",
    "Sink": "cqrepl.replicator.sink",
    "SinkSettings": "cqrepl.replicator.settings",
    "Snapshots": "cqrepl.cluster.snapshots",
    "Source": "cqrepl.replicator.source",
    "SourceSettings": "cqrepl.replicator.settings",
    "Stall": "cqrepl.queue.read.stall",
    "SteppedDown": "cqrepl.replicator.leadership",
    "Stop": "cqrepl.replicator.queuestate.stops",
    "StopReason": "cqrepl.protocol",
    "SubHandler": "cqrepl.protocol",
    "Tailer": "cqrepl.queue",
    "TasksRefused": "cqrepl.broker.client",
    "UnfinishedQueue": "cqrepl.queue",
    "Unreachable": "cqrepl.net.errors",
    "WaitEnded": "cqrepl.replicator.marks.ackboard",
    "WireShape": "cqrepl.protocol",
    "WrittenBetween": "cqrepl.queue",
    "commit_index": "cqrepl.protocol.ackpolicy",
    "cycle_of": "cqrepl.queue",
    "follow": "cqrepl.replicator.follow",
    "format_index": "cqrepl.queue",
    "index_of": "cqrepl.queue",
    "is_next": "cqrepl.queue",
    "parse_index": "cqrepl.queue",
    "read_settings": "cqrepl.config.hostplan",
    "parse_policy": "cqrepl.protocol.ackpolicy",
    "sequence_of": "cqrepl.queue",
    "serve_host": "cqrepl.host",
    "serve_sink": "cqrepl.replicator.sink",
    "serve_source": "cqrepl.replicator.source",
    "telling": "cqrepl.replicator.hostevents",
    "usual_run_dir": "cqrepl.net.rundirectory",
}

_ROOMS: Final = ("aio", "blocking")  # modules that are used by their own names

if not TYPE_CHECKING:  # or a type checker would take any misspelt name for an object

    def __getattr__(name: str) -> object:
        if name not in _HOMES and name not in _ROOMS:
            raise AttributeError(f"module 'cqrepl' has no attribute {name!r}")
        home = import_module(_HOMES.get(name, f"cqrepl.{name}"))
        found = home if name in _ROOMS else getattr(home, name)
        globals()[name] = found  # it is not looked up again
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
