"""The rule by which a write counts as safe: the level, the number of hosts, and the longest wait.

A policy is a value. `commit_index` is a pure function of a policy and of the marks of the hosts, so
a wait, a reader and a leader call the same excerpts safe. Hosts are counted as they are configured:
a host that is not connected, or was never seen, is waited for like any other. Guests, which are
peers without a host id, never count.

The rules of the systems that this one replaces are policies with names: `PRESETS`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.settings import HOST_IDS

NOTHING: Final = -1  # the index up to which nothing is safe
WINDOW_MAX: Final = 10**9
_TIMEOUT_MAX_SECONDS: Final = 10**6
_NONE: Final = "none"
_TIME: Final = re.compile(r"([0-9]{1,13}(?:\.[0-9]{1,9})?)(us|ms|s|m)")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_PRESET: Final = "preset"
_WORDS: Final = (_PRESET, "level", "from", "hosts", "timeout", "on_timeout", "window")
_NUMBER: Final = re.compile("[0-9]{1,12}")
T = TypeVar("T")
LevelName = Literal["appended", "synced", "applied"]
FromName = Literal["none", "any", "all", "majority"]
OnTimeoutName = Literal["warn", "fail", "block", "step_down"]
# what hosts have of a queue: by host id and level, up to which index
Marks = Mapping[int, Mapping[AckLevel, int]]


class From(StrEnum):
    """The hosts whose word a write waits for, where a policy does not give their number."""

    NONE = "none"  # no host's: what stands in the queue is safe
    ANY = "any"  # that of one host
    ALL = "all"  # that of each host that is configured
    MAJORITY = "majority"  # that of so many that they are more than half of all, with the leader


class OnTimeout(StrEnum):
    """The action when a wait reaches its time limit. Then it is not known whether hosts have the
    excerpt, and the write stays."""

    WARN = "warn"  # one line is logged, and the wait is over
    FAIL = "fail"  # the wait ends with an exception, which says that it is not known
    BLOCK = "block"  # one line is logged, and the wait goes on
    STEP_DOWN = "step_down"  # the wait is over, and its host is to lead no longer


def _as_level(value: object) -> AckLevel:
    known = {level.name.lower(): level for level in AckLevel}
    if isinstance(value, AckLevel):
        return value
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"one of {', '.join(known)} expected for 'level', {value!r} came")
    return known[value]


def _as_from(value: object) -> From | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or value not in set(From):
        wanted = "none, any, all, majority or a number"
        raise ValueError(f"{wanted} expected for 'from', {value!r} came")
    return From(value)


def _as_hosts(value: object) -> frozenset[int] | None:
    if value is None:
        return None
    wanted = f"host ids from {HOST_IDS[0]} to {HOST_IDS[-1]} expected for 'hosts'"
    if not isinstance(value, frozenset | set | list | tuple | range):
        raise ValueError(f"{wanted}, {value!r} came")
    if not all(type(each) is int and each in HOST_IDS for each in value):
        raise ValueError(f"{wanted}, {list(value)} came")
    return frozenset(value)


def _as_seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number of seconds expected for 'timeout', {value!r} came")
    if not 0 <= value <= _TIMEOUT_MAX_SECONDS:
        raise ValueError(f"0 to {_TIMEOUT_MAX_SECONDS} s expected for 'timeout', {value!r} came")
    return value


def _as_on_timeout(value: object) -> OnTimeout:
    if not isinstance(value, str) or value not in set(OnTimeout):
        known = ", ".join(OnTimeout)
        raise ValueError(f"one of {known} expected for 'on_timeout', {value!r} came")
    return OnTimeout(value)


def _as_window(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= WINDOW_MAX:
        wanted = f"a number of excerpts from 1 to {WINDOW_MAX}"
        raise ValueError(f"{wanted} expected for 'window', {value!r} came")
    return value


_CONVERSIONS: Final[Mapping[str, Callable[[object], object]]] = {
    "level": _as_level,
    "from_": _as_from,
    "hosts": _as_hosts,
    "timeout_seconds": _as_seconds,
    "on_timeout": _as_on_timeout,
    "window": _as_window,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPolicy:
    """One policy. What has a name in a configuration may be given by it: `level="synced"`.

    Args:
        level: what is to be true of an excerpt at a host. What a host says of a level counts no
            further than what it has appended.
        from_: `From`, or a number of hosts from 1 to 127.
        hosts: ids of those that count; None: all hosts that have ever said anything. With `all`
            and `majority` they are needed: without them nothing is safe, as the policy does not
            know which hosts are all (`among`). The leader is none of them: its own disk is never
            waited for.
        timeout_seconds: how long one wait lasts; None: without limit.
        on_timeout: what becomes of a wait then; what is not the default needs a time.
        window: so many excerpts at most may wait at a time before an append waits too; None:
            without limit.

    Raises:
        ValueError: a value of another kind, a number beyond its limit, more hosts wanted than are
            named, or no time with `on_timeout`.
    """

    level: AckLevel = AckLevel.APPENDED
    from_: From | int = From.ANY
    hosts: frozenset[int] | None = None
    timeout_seconds: float | None = None
    on_timeout: OnTimeout = OnTimeout.BLOCK
    window: int | None = None

    if TYPE_CHECKING:  # what is made of them is of one type, what they are made of is not

        def __init__(
            self,
            *,
            level: AckLevel | LevelName = AckLevel.APPENDED,
            from_: From | FromName | int = From.ANY,
            hosts: Collection[int] | None = None,
            timeout_seconds: float | None = None,
            on_timeout: OnTimeout | OnTimeoutName = OnTimeout.BLOCK,
            window: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, convert in _CONVERSIONS.items():
            object.__setattr__(self, name, convert(getattr(self, name)))  # it is frozen
        named = self.counted
        if isinstance(self.from_, From):
            if not named and self.from_ is not From.NONE:
                raise ValueError(f"hosts expected with 'from: {self.from_}', none came")
        elif not 1 <= self.from_ <= len(named):
            wanted = f"a number of hosts from 1 to {len(named)}"
            raise ValueError(f"{wanted} expected for 'from', {self.from_} came")
        if self.timeout_seconds is None and self.on_timeout is not OnTimeout.BLOCK:
            raise ValueError(
                f"a 'timeout' expected with 'on_timeout: {self.on_timeout}', none came"
            )

    @property
    def hosts_min(self) -> int | None:
        """The number of hosts that are to have an excerpt; None if it is not known (`among`)."""
        match self.from_:
            case From.NONE:
                return 0
            case From.ANY:
                return 1
            case From.ALL:
                return None if self.hosts is None else len(self.hosts)
            case From.MAJORITY:  # of these and the leader
                return None if self.hosts is None else (len(self.hosts) + 1) // 2
        return self.from_

    @property
    def counted(self) -> range | frozenset[int]:
        """The ids of the hosts that may count."""
        return HOST_IDS if self.hosts is None else self.hosts

    def among(self, hosts: Iterable[int]) -> "AckPolicy":
        """The same policy, where these are all hosts; unchanged, if it names its own.

        Raises:
            ValueError: it needs more than there are.
        """
        return self if self.hosts is not None else replace(self, hosts=frozenset(hosts))

    def __str__(self) -> str:
        """The policy in one line, as it is written in a configuration: `parse_policy` reads it."""
        words = [f"level={self.level.name.lower()}", f"from={self.from_}"]
        if self.hosts:
            words.append(f"hosts={'+'.join(str(each) for each in sorted(self.hosts))}")
        timeout = self.timeout_seconds
        words.append(f"timeout={_NONE if timeout is None else f'{round(timeout * 1e6)}us'}")
        words.append(f"on_timeout={self.on_timeout}")
        if self.window is not None:
            words.append(f"window={self.window}")
        return " ".join(words)


# after so long without its coordinator the broker's leader leads no longer: its session's time
_BROKER_SESSION_SECONDS: Final = 40.0
# what the systems that this one replaces do, each in its own words
PRESETS: Final[Mapping[str, AckPolicy]] = {
    "queue-unacknowledged": AckPolicy(from_=From.NONE),
    "queue-acknowledged": AckPolicy(),
    "persist-synchronous": AckPolicy(
        level=AckLevel.APPLIED, timeout_seconds=0.01, on_timeout=OnTimeout.WARN
    ),
    "persist-asynchronous": AckPolicy(from_=From.NONE),
    "grid-synchronous": AckPolicy(level=AckLevel.APPLIED, from_=From.ALL),
    "grid-asynchronous": AckPolicy(from_=From.NONE),
    "broker-quorum": AckPolicy(
        level=AckLevel.SYNCED,
        from_=From.MAJORITY,
        timeout_seconds=_BROKER_SESSION_SECONDS,
        on_timeout=OnTimeout.STEP_DOWN,
    ),
}


def commit_index(policy: AckPolicy, marks: Marks, last: int) -> int:
    """The index up to which a policy calls a queue safe; -1 for nothing.

    Args:
        marks: what is known of hosts, guests and hosts that do not count among them. A mark beyond
            `last` counts as `last`: no host has more of the queue than there is.
        last: the last index in the queue; -1 where there is none.
    """
    wanted = policy.hosts_min
    if wanted is None or last <= NOTHING:
        return NOTHING
    if wanted == 0:
        return last
    counted = HOST_IDS if policy.hosts is None else policy.hosts
    # those that nothing is known of are many, and hold nothing
    found = sorted(_held(marks[host], policy.level) for host in marks if host in counted)
    return max(NOTHING, min(last, found[-wanted])) if wanted <= len(found) else NOTHING


def _held(marks: Mapping[AckLevel, int], level: AckLevel) -> int:
    """The index up to which one host has a level: no further than it has appended."""
    return min(marks.get(level, NOTHING), marks.get(AckLevel.APPENDED, NOTHING))


def parse_policy(text: str) -> AckPolicy:
    """The policy of a line such as `level=synced from=2 hosts=2+3+4 timeout=10ms`; the name of a
    preset may stand first, and what follows then changes it.

    Raises:
        ValueError: it is none; one sentence says why.
    """
    words = text.split()
    if not words:
        raise ValueError(f"a policy such as 'level=synced from=2' expected, {text!r} came")
    if "=" not in words[0]:
        words[0] = f"{_PRESET}={words[0]}"
    texts: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in _WORDS:
            raise ValueError(f"one of {', '.join(_WORDS)} expected, {name!r} came")
        if name in texts:
            raise ValueError(f"{name!r} expected once, it came twice")
        texts[name] = value

    def said(name: str, parse: Callable[[str], T], default: T) -> T:
        return parse(texts[name]) if name in texts else default

    usual = said(_PRESET, _preset, AckPolicy())
    return AckPolicy(
        level=said("level", _as_level, usual.level),
        from_=said("from", _from, usual.from_),
        hosts=said("hosts", _hosts, usual.hosts),
        timeout_seconds=said("timeout", _timeout, usual.timeout_seconds),
        on_timeout=said("on_timeout", _as_on_timeout, usual.on_timeout),
        window=said("window", _window, usual.window),
    )


def _preset(name: str) -> AckPolicy:
    if name not in PRESETS:
        raise ValueError(f"one of {', '.join(PRESETS)} expected, {name!r} came")
    return PRESETS[name]


def _from(text: str) -> From | int:
    return int(text) if _NUMBER.fullmatch(text) else _as_from(text)


def _hosts(text: str) -> frozenset[int]:
    ids = text.split("+")
    if not all(_NUMBER.fullmatch(each) for each in ids):
        raise ValueError(f"host ids expected for 'hosts', {text!r} came")
    return frozenset(int(each) for each in ids)


def _timeout(text: str) -> float | None:
    if text == _NONE:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        wanted = "a time such as 10ms or 2s, or none,"
        raise ValueError(f"{wanted} expected for 'timeout', {text!r} came")
    return float(match[1]) * _SECONDS[match[2]]


def _window(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"a number of excerpts expected for 'window', {text!r} came")
    return int(text)


def check_policy(policy: object) -> None:
    """Looks whether this is a policy, or None.

    Raises:
        TypeError: it is something else, as the text of one.
    """
    if policy is None or isinstance(policy, AckPolicy):
        return
    hint = ": cqrepl.parse_policy makes one of a text" if isinstance(policy, str) else ""
    raise TypeError(f"policy=: expected an AckPolicy, got {policy!r}{hint}")
