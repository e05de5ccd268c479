"""The closed table of the properties that FIX Antenna's replication has: kinds, defaults, meaning.

Names of classes in such a file are words of these tables. None of them is ever imported.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

REPLICATION_PREFIX: Final = "fej.replication."
AERON_PREFIX: Final = "aeron."
MS_MAX: Final = 3_600_000
SLOTS_MAX: Final = 1 << 30
_SHOWN: Final = 80
_NUMBER: Final = re.compile("[0-9]{1,10}")
_DISRUPTOR: Final = "com.lmax.disruptor."
_AGRONA: Final = "org.agrona.concurrent."
_OLD_AGRONA: Final = "uk.co.real_logic.agrona.concurrent."
_STORAGE: Final = "com.epam.fixengine.storage.persistence."

SYNC: Final = "fej.replication.leader.sync"
TIMEOUT: Final = "fej.replication.leader.sync.timeout"  # a clear name for the next one
ASYNC_TIMEOUT: Final = "fej.replication.leader.async.timeout"  # of 003; it is for synchronous ones
SEND_SLOTS: Final = "fej.replication.leader.send.buffer.size"
SEND_WAIT: Final = "fej.replication.leader.send.wait.strategy"
IDLE: Final = "fej.replication.aeron.idle.strategy"
FACTORY: Final = "storageFactory"
BUILDER: Final = "storage.persistenceFactoryBuilder"
SESSION_TIMEOUT: Final = "replicationTimeout"

# the name of each wait strategy of the ring buffers, and the pauser that waits most like it
WAIT_STRATEGIES: Final[Mapping[str, str]] = {
    "BlockingWaitStrategy": "balanced",
    "LiteBlockingWaitStrategy": "balanced",
    "TimeoutBlockingWaitStrategy": "balanced",
    "LiteTimeoutBlockingWaitStrategy": "balanced",
    "PhasedBackoffWaitStrategy": "balanced",
    "SleepingWaitStrategy": "sleepy",
    "YieldingWaitStrategy": "busy",
    "BusySpinWaitStrategy": "busy",
}
IDLE_STRATEGIES: Final[Mapping[str, str]] = {
    "BackoffIdleStrategy": "balanced",
    "SleepingIdleStrategy": "sleepy",
    "SleepingMillisIdleStrategy": "sleepy",
    "YieldingIdleStrategy": "busy",
    "BusySpinIdleStrategy": "busy",
    "NoOpIdleStrategy": "busy",
}


def _boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.lower())
    if found is None:
        raise ValueError(f"expected true or false, got {text[:_SHOWN]!r}")
    return found


def _number(text: str, most: int, wanted: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise ValueError(f"expected {wanted}, got {text[:_SHOWN]!r}")
    return int(text)


def _milliseconds(text: str) -> int:
    return _number(text, MS_MAX, f"milliseconds from 0 to {MS_MAX}")


def _slots(text: str) -> int:
    wanted = f"a power of 2 from 1 to {SLOTS_MAX}"
    found = _number(text, SLOTS_MAX, wanted)
    if found.bit_count() != 1:
        raise ValueError(f"expected {wanted}, got {found}")
    return found


def _one_of(names: Mapping[str, str], *packages: str) -> Callable[[str], str]:
    """The word for a class that a text names, with its package or without."""

    def parse(text: str) -> str:
        name = text
        for package in packages:
            name = name.removeprefix(package)
        if name not in names:
            raise ValueError(f"expected one of {', '.join(names)}, got {text[:_SHOWN]!r}")
        return names[name]

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyKey:
    """One property.

    Args:
        parse: the value of a text; raises ValueError with what was expected and what came.
        default: its value where a file does not have it; None: there is none.
        says: its effect here, for people; `{value}` stands for what `parse` gives.
        has_counterpart: false where it is checked and then has no effect.
    """

    name: str
    parse: Callable[[str], object]
    default: object
    says: str
    has_counterpart: bool = True


def _slots_key(name: str, slots: int) -> PropertyKey:
    says = "no effect: there is no ring buffer, a connection has one bounded window"
    return PropertyKey(
        name=REPLICATION_PREFIX + name,
        parse=_slots,
        default=slots,
        says=says,
        has_counterpart=False,
    )


def _wait_key(name: str) -> PropertyKey:
    says = "no effect: there is no ring buffer to wait at"
    parse = _one_of(WAIT_STRATEGIES, _DISRUPTOR)
    return PropertyKey(
        name=REPLICATION_PREFIX + name,
        parse=parse,
        default=parse("BlockingWaitStrategy"),
        says=says,
        has_counterpart=False,
    )


def _class_key(name: str, alias: str, says: str) -> PropertyKey:
    return PropertyKey(name=name, parse=_one_of({alias: alias}, _STORAGE), default=None, says=says)


_TIMEOUT_SAYS: Final = (
    "ackTimeout {value}ms: the longest wait of an append of a synchronous storage for a backup"
)
KEYS: Final[Mapping[str, PropertyKey]] = {
    key.name: key
    for key in (
        PropertyKey(
            name=SYNC,
            parse=_boolean,
            default=False,
            says="mode of a storage that does not say its own: synchronous is {value}",
        ),
        PropertyKey(name=TIMEOUT, parse=_milliseconds, default=0, says=_TIMEOUT_SAYS),
        PropertyKey(
            name=ASYNC_TIMEOUT,
            parse=_milliseconds,
            default=0,
            says=_TIMEOUT_SAYS + f", in spite of its name; the clear name is {TIMEOUT}",
        ),
        _slots_key("leader.receive.buffer.size", 512),
        _wait_key("leader.receive.wait.strategy"),
        PropertyKey(
            name=SEND_SLOTS,
            parse=_slots,
            default=2048,
            says="window {value}: so many appends wait for a backup at a time, then the next waits",
        ),
        PropertyKey(
            name=SEND_WAIT,
            parse=_one_of(WAIT_STRATEGIES, _DISRUPTOR),
            default=WAIT_STRATEGIES["BlockingWaitStrategy"],
            says="pauser {value}: how the leader's host waits for the next excerpt",
        ),
        _slots_key("backup.receive.buffer.size", 1024),
        _wait_key("backup.receive.wait.strategy"),
        _slots_key("backup.send.buffer.size", 512),
        _wait_key("backup.send.wait.strategy"),
        PropertyKey(
            name=REPLICATION_PREFIX + "aeron.mediadriver.embedded",
            parse=_boolean,
            default=True,
            says="no effect: there is no media driver, the host runs in the process that starts it",
            has_counterpart=False,
        ),
        PropertyKey(
            name=IDLE,
            parse=_one_of(IDLE_STRATEGIES, _AGRONA, _OLD_AGRONA),
            default=IDLE_STRATEGIES["BackoffIdleStrategy"],
            says=f"pauser {{value}}, where {SEND_WAIT} is not given",
        ),
        _class_key(
            FACTORY,
            "PersistenceEnableFactory",
            "each session has four storages: .in, .out, .outq and .properties",
        ),
        _class_key(
            BUILDER,
            "ReplicatedPersistenceFactoryBuilder",
            "the storages are replicated: cqrepl.persist.fix.FixSessionStore takes their factory",
        ),
        PropertyKey(
            name=SESSION_TIMEOUT,
            parse=_milliseconds,
            default=None,
            says="an append of a session waits {value}ms at most for a backup; 0: not at all",
        ),
    )
}
