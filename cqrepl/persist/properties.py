"""Reads Java properties files of FIX Antenna's replication: their entries and their effect here.

Both files are read: that of the replication service (`fej.replication.*`, with options of Aeron in
it or beside it), and `fixengine.properties` of the engine. Keys of the engine that are not about
replication are counted and passed over. A session of the engine has its own time-out under
`sessions.ID.replicationTimeout`; `sessions.default.` stands for all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

from cqrepl.console.exitcodes import BadArguments
from cqrepl.persist.propertykeys import (
    AERON_PREFIX,
    ASYNC_TIMEOUT,
    IDLE,
    KEYS,
    REPLICATION_PREFIX,
    SEND_SLOTS,
    SEND_WAIT,
    SESSION_TIMEOUT,
    SYNC,
    TIMEOUT,
    PropertyKey,
)

T = TypeVar("T")
BYTES_MAX: Final = 1 << 20
_SHOWN: Final = 80
_SESSION: Final = re.compile(r"sessions\.(.+)\." + SESSION_TIMEOUT)
_EVERY_SESSION: Final = "default"
_BREAKS: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Property:
    """One entry of a file: its line, counted from 1, and its texts as Java reads them."""

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyUse:
    """One entry, and its effect here.

    Args:
        value: what its text stands for; the text itself where the table does not know it.
        says: for people.
        has_effect: false where nothing here goes by it.
    """

    entry: Property
    value: object
    says: str
    has_effect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistProperties:
    """The settings of a file.

    Args:
        is_synchronous: mode of the storages that do not say their own.
        timeout_ms: longest wait of an append of a synchronous storage.
        window: so many appends wait at a time; None: as the policy has it.
        pauser: how the host waits for excerpts; None: as the host has it.
        session_timeouts_ms: of FIX sessions, by their names in the file; under "" that of the
            engine, where it is given.
        uses: each entry with its effect, in the order of the file.
        passed_over: so many entries are of the engine, and not about replication.
    """

    path: str
    is_synchronous: bool
    timeout_ms: int
    window: int | None
    pauser: str | None
    session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    uses: tuple[PropertyUse, ...] = ()
    passed_over: int = 0

    @property
    def default_timeout_ms(self) -> int:
        """The longest wait of an append of a storage that does not say its own; 0: asynchronous."""
        return self.timeout_ms if self.is_synchronous else 0

    def session_timeout_ms(self, session: str) -> int:
        """The same for the storages of a FIX session, by its name in the file."""
        for name in (session, _EVERY_SESSION, ""):
            if name in self.session_timeouts_ms:
                return self.session_timeouts_ms[name]
        return self.default_timeout_ms


def load_properties(path: Path) -> PersistProperties:
    """The settings of a file.

    Raises:
        BadArguments: with the place, what was expected there, and what came.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(BYTES_MAX + 1)
    return read_properties(data, str(path))


def read_properties(data: bytes, path: str) -> PersistProperties:
    """The same of the bytes of a file.

    Raises:
        BadArguments: as `load_properties`.
    """
    found: dict[str, PropertyUse] = {}
    sessions: dict[str, int] = {}
    passed_over = 0
    for entry in _last_of_each(entries(data, path)):
        use = _use_of(entry, path)
        if use is None:
            passed_over += 1
            continue
        found[entry.name] = use
        if entry.name == SESSION_TIMEOUT or _SESSION.fullmatch(entry.name):
            assert isinstance(use.value, int)
            session = _SESSION.fullmatch(entry.name)
            sessions[session[1] if session else ""] = use.value
    is_synchronous = bool(_value(found, SYNC))
    timeout_ms = _timeout_ms(found, path)
    if is_synchronous and timeout_ms == 0:
        name = TIMEOUT if TIMEOUT in found else ASYNC_TIMEOUT
        wrong = found.get(name, found[SYNC]).entry
        raise BadArguments(
            f"{path}:{wrong.line}: expected a time of {name} above 0 with {SYNC}=true, got 0, which"
            " stands for asynchronous"
        )
    return PersistProperties(
        path=path,
        is_synchronous=is_synchronous,
        timeout_ms=timeout_ms,
        window=_given(found, SEND_SLOTS, int),
        pauser=_given(found, SEND_WAIT, str) or _given(found, IDLE, str),
        session_timeouts_ms=sessions,
        uses=tuple(found.values()),
        passed_over=passed_over,
    )


def entries(data: bytes, path: str) -> Iterator[Property]:
    """The entries of a file, as Java's `Properties.load` reads its bytes; one may come twice.

    Raises:
        BadArguments: it is none, or too long, or javaproperties is not installed.
    """
    if find_spec("javaproperties") is None:
        raise BadArguments(
            f"{path}: expected javaproperties to read it (pip install 'cqrepl[persist]'), got none"
        )
    from javaproperties import InvalidUEscapeError, KeyValue, parse

    if len(data) > BYTES_MAX:
        raise BadArguments(f"{path}: expected at most {BYTES_MAX} bytes of properties, got more")
    line = 1
    elements = parse(data)
    try:
        for element in elements:
            if isinstance(element, KeyValue):
                yield Property(line, element.key, element.value)
            line += len(_BREAKS.findall(element.source))
    except InvalidUEscapeError as error:
        came = error.escape[:_SHOWN]
        raise BadArguments(
            f"{path}:{line}: expected four digits behind '\\u', got {came!r}"
        ) from None


def _last_of_each(found: Iterator[Property]) -> list[Property]:
    """Of entries with one name the last counts, as in Java."""
    return list({entry.name: entry for entry in found}.values())


def _use_of(entry: Property, path: str) -> PropertyUse | None:
    """The effect of an entry; None for one of the engine that is not about replication."""
    key = KEYS.get(SESSION_TIMEOUT if _SESSION.fullmatch(entry.name) else entry.name)
    if key is not None:
        value = _parsed(key, entry, path)
        return PropertyUse(
            entry=entry,
            value=value,
            says=key.says.format(value=str(value).lower() if isinstance(value, bool) else value),
            has_effect=key.has_counterpart,
        )
    if entry.name.startswith(REPLICATION_PREFIX):
        wanted = ", ".join(name for name in KEYS if name.startswith(REPLICATION_PREFIX))
        raise BadArguments(
            f"{path}:{entry.line}: expected one of {wanted}, got {entry.name[:_SHOWN]!r}"
        )
    if entry.name.startswith(AERON_PREFIX):
        says = "no effect: hosts are connected by TCP, there is no media driver"
        return PropertyUse(entry=entry, value=entry.text, says=says, has_effect=False)
    return None


def _parsed(key: PropertyKey, entry: Property, path: str) -> object:
    try:
        return key.parse(entry.text.strip())
    except ValueError as error:
        raise BadArguments(f"{path}:{entry.line}: {entry.name}: {error}") from None


def _timeout_ms(found: Mapping[str, PropertyUse], path: str) -> int:
    """The time-out, whichever of its two names it has."""
    clear, old = found.get(TIMEOUT), found.get(ASYNC_TIMEOUT)
    if clear is not None and old is not None and clear.value != old.value:
        raise BadArguments(
            f"{path}:{old.entry.line}: expected one time of {TIMEOUT} and {ASYNC_TIMEOUT}, two"
            f" names of one property, got {clear.value} and {old.value}"
        )
    value = _value(found, ASYNC_TIMEOUT if clear is None else TIMEOUT)
    assert isinstance(value, int)
    return value


def _value(found: Mapping[str, PropertyUse], name: str) -> object:
    return found[name].value if name in found else KEYS[name].default


def _given(found: Mapping[str, PropertyUse], name: str, of: type[T]) -> T | None:
    """The value of a property that a file has; None: it has it not."""
    if name not in found:
        return None
    value = found[name].value
    assert isinstance(value, of)
    return value


def without_effect(found: PersistProperties) -> str:
    """One sentence for the log: which entries are checked and have no counterpart; "" for none."""
    names = sorted(use.entry.name for use in found.uses if not use.has_effect)
    if not names:
        return ""
    return f"{found.path}: these properties have no effect here: {', '.join(names)}"
