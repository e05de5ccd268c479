"""A cluster as its file has it: `!QueueReplicationCfg`, with our own keys below `cqrepl`.

Chronicle's documentation has two forms of it. The older one has hosts and their `context` together
below `cluster`; the newer one has `context`, `hosts` and `queues` side by side, and `basePath` in
place of two base paths. Both are read, each key checked against the closed tables in `keys`.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cqrepl.config.errors import ConfigError, TextSpot
from cqrepl.config.keykinds import REQUIRED, Key, Section
from cqrepl.config.keys import (
    CLUSTER,
    CONTEXT,
    HOST,
    PARTS,
    PROCESS,
    QUEUE,
    ROOT_TAGS,
)
from cqrepl.config.queueoptions import is_pattern
from cqrepl.config.valuekinds import Unfit
from cqrepl.config.yamltree import (
    BYTES_MAX,
    ListNode,
    MappingNode,
    Node,
    ScalarNode,
    read_tree,
    shown,
)
from cqrepl.protocol import HeartbeatSettings
from cqrepl.replicator.electionsettings import ElectionKind
from cqrepl.replicator.queuestate.wirenames import check_name
from cqrepl.replicator.settings import NO_HOST

_ROOT_KEYS: Final = ("cluster", "context", "hosts", "queues", "cqrepl")
# what a number or text may be marked with, in YAML's words and in Chronicle's
_SCALAR_TAGS: Final = frozenset(
    {None, "!byte", "!short", "!int", "!long"}
    | {f"tag:yaml.org,2002:{each}" for each in ("str", "int", "bool", "null")}
)
_MAPPING_TAGS: Final = frozenset({None, "tag:yaml.org,2002:map"})
_NOTHING: Final = ("", "~", "null")
_WILD: Final = re.compile(r"\[[^]/]+\]|[*?]")  # of a pattern
ELECTION: Final = "cluster.election"
BY_HAND: Final = ElectionKind.BY_HAND.value
MAJORITY: Final = ElectionKind.MAJORITY.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value in effect, and where it comes from, for people.

    Args:
        key: whose value it is.
        spot: where it stands in the file; None for one that does not.
        entries: where those of a mapping stand, by their names: of its own and of those in them.
    """

    key: Key
    value: object
    origin: str
    spot: TextSpot | None = None
    entries: Mapping[tuple[str, ...], TextSpot] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The value as people would write it."""
        return self.key.kind.written(self.value)

    def wrong(self, path: str, message: str, *names: str) -> ConfigError:
        """An error of it, at its own place or that of the entry of these names.

        Args:
            path: of the file.
        """
        message = f"{self.key.name!r}: {message}"
        if self.spot is None:
            return ConfigError(self.origin, None, message)
        found = (self.entries.get(names[:count]) for count in range(len(names), 0, -1))
        return ConfigError(path, next(filter(None, found), self.spot), message)


Settings = Mapping[str, Setting]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A host of the cluster; `uri` is as it stands in the file."""

    name: str
    host_id: int
    uri: str | None
    spot: TextSpot


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A replicated queue; `path` is below the base path. Without a master, as an election says
    which host leads, `master_id` is 0."""

    name: str
    path: Path
    acknowledge: bool
    master_id: int
    source_id: int | None
    roll_cycle: str | None
    is_group: bool = False  # it stands below `groups`


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """All that a file says, each by itself right.

    Args:
        context: settings by key, with the defaults.
        hosts: by id.
        process: the keys below `cqrepl` that stand in the file; those of a part as `source.ackLog`.
        ignored: keys that have no effect here, and their places.
        patterns: queues whose names are patterns; which ones there are, `queuepatterns` finds.
    """

    path: str
    context: Settings
    hosts: Mapping[int, HostEntry]
    queues: Mapping[str, QueueEntry]
    process: Settings
    ignored: tuple[tuple[str, TextSpot], ...]
    patterns: tuple[QueueEntry, ...] = ()

    @property
    def heartbeat(self) -> HeartbeatSettings:
        """The times of the connections."""
        interval, timeout = (
            self.context[each].value for each in ("heartbeatIntervalMs", "heartbeatTimeoutMs")
        )
        assert isinstance(interval, int)
        assert isinstance(timeout, int)
        return HeartbeatSettings(interval_ms=interval, timeout_ms=timeout)


def read_cluster(data: bytes, path: str) -> ClusterConfig:
    """The cluster that a file describes.

    Args:
        path: what errors call the file.

    Raises:
        ConfigError: it describes none.
    """
    return _Reader(path).read(read_tree(data, path))


def load_cluster(path: Path) -> ClusterConfig:
    """The same, from the file.

    Raises:
        ConfigError: it cannot be read, or describes no cluster.
    """
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)  # it may have no end, as a device
    except OSError as error:
        raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None
    return read_cluster(data, str(path))


def elects(process: Settings) -> bool:
    """True where an election says which host leads the queues of a file, by its keys below
    `cqrepl`."""
    election = process.get(ELECTION)
    return election is not None and election.value != BY_HAND


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one."""
    return max(known, key=lambda each: likeness(name, each), default="")


def likeness(name: str, other: str) -> float:
    """The likeness of two names, from 0 to 1. It is 1 for the same letters."""
    return difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio()


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._ignored: list[tuple[str, TextSpot]] = []

    def read(self, tree: Node) -> ClusterConfig:
        root = self._mapping(tree, "configuration", ROOT_TAGS)
        parts = {}
        for key, node in root.entries:
            if key.text not in _ROOT_KEYS:
                raise self._unknown(key, "configuration", _ROOT_KEYS)
            parts[key.text] = node
        context, hosts = self._cluster(root, parts)
        process = self._process(parts.get("cqrepl"))
        has_groups = bool({"cluster.groups", "persist", "grid"} & process.keys())
        named = self._queues(root, parts.get("queues"), hosts, has_groups=has_groups)
        if not elects(process) and "queues" in parts:
            self._check_masters(parts["queues"], named)
        return ClusterConfig(
            path=self._path,
            context=context,
            hosts=hosts,
            queues={name: each for name, each in named.items() if not is_pattern(name)},
            process=process,
            ignored=tuple(self._ignored),
            patterns=tuple(each for name, each in named.items() if is_pattern(name)),
        )

    def _cluster(
        self, root: MappingNode, parts: Mapping[str, Node]
    ) -> tuple[Settings, dict[int, HostEntry]]:
        """The context, and the hosts by their ids, in either form."""
        newer = [each for each in ("context", "hosts") if each in parts]
        if "cluster" in parts and newer:
            message = f"either 'cluster' or 'context' and 'hosts' expected, {newer[0]!r} came too"
            raise self._error(parts[newer[0]], message)
        if "cluster" in parts:
            whole = self._mapping(parts["cluster"], "cluster", frozenset())
            entries = {key.text: (key, node) for key, node in whole.entries}
            _, context = entries.pop("context", (None, None))
            named = list(entries.values())
        elif newer:
            whole, context = root, parts.get("context")
            hosts = parts.get("hosts")
            named = (
                [] if hosts is None else list(self._mapping(hosts, "hosts", frozenset()).entries)
            )
        else:
            raise self._error(root, "'cluster' expected, nothing came")
        if context is None:
            raise self._error(whole, "'context' with the base paths expected, nothing came")
        if len(named) < 2:
            raise self._error(whole, f"at least two hosts expected, {len(named) or 'none'} came")
        return self._context(context), self._hosts(named)

    def _context(self, node: Node) -> Settings:
        found = self._section(node, CONTEXT, "context")
        try:
            HeartbeatSettings(
                interval_ms=_number(found["heartbeatIntervalMs"]),
                timeout_ms=_number(found["heartbeatTimeoutMs"]),
            )
        except ValueError as error:
            spots = (found[each].spot for each in ("heartbeatTimeoutMs", "heartbeatIntervalMs"))
            spot = next((each for each in spots if each is not None), node.spot)
            raise ConfigError(self._path, spot, str(error)) from None
        for base in ("baseSourcePath", "baseSinkPath"):
            if found[base].value is None and found["basePath"].value is None:
                raise self._error(
                    node, f"{base!r} or 'basePath' expected in the context, none came"
                )
        return found

    def _hosts(self, named: list[tuple[ScalarNode, Node]]) -> dict[int, HostEntry]:
        hosts: dict[int, HostEntry] = {}
        for key, node in named:
            name = key.text
            found = self._section(node, HOST, f"host {shown(name)}")
            host_id, uri = _number(found["hostId"]), found["connectUri"]
            if host_id in hosts:
                message = f"an id that is no other host's expected, {hosts[host_id].name!r} has"
                raise ConfigError(self._path, found["hostId"].spot, f"{message} {host_id} too")
            hosts[host_id] = HostEntry(
                name=name,
                host_id=host_id,
                uri=None if uri.value is None else str(uri.value),
                spot=uri.spot or key.spot,
            )
        return hosts

    def _queues(
        self,
        root: MappingNode,
        node: Node | None,
        hosts: Mapping[int, HostEntry],
        *,
        has_groups: bool,
    ) -> dict[str, QueueEntry]:
        entries = () if node is None else self._mapping(node, "queues", frozenset()).entries
        if not entries and not has_groups:
            raise self._error(node or root, "at least one queue below 'queues' expected, none came")
        queues: dict[str, QueueEntry] = {}
        places: dict[str, str] = {}
        for key, each in entries:
            queue = self._queue(key, each, hosts)
            place = os.path.normpath(queue.path)
            if place in places:
                message = f"a directory for each queue expected, {places[place]!r} has"
                raise self._error(key, f"{message} {shown(str(queue.path))} too")
            places[place], queues[queue.name] = queue.name, queue
        return queues

    def _queue(self, key: ScalarNode, node: Node, hosts: Mapping[int, HostEntry]) -> QueueEntry:
        name = key.text
        try:
            check_name(_WILD.sub("x", name))
        except ValueError as error:
            raise self._error(key, str(error)) from None
        found = self._section(node, QUEUE, f"queue {name!r}")
        if is_pattern(name) and found["path"].value is not None:
            message = f"no 'path' expected with the pattern {name!r}, whose directories name queues"
            raise ConfigError(self._path, found["path"].spot, message)
        master_id = NO_HOST if found["masterId"].value is None else _number(found["masterId"])
        if master_id not in (NO_HOST, *hosts):
            ids = ", ".join(str(each) for each in sorted(hosts))
            message = f"the id of a host ({ids}) expected for 'masterId', {master_id} came"
            raise ConfigError(self._path, found["masterId"].spot, message)
        path, source_id, cycle = (found[each].value for each in ("path", "sourceId", "rollCycle"))
        return QueueEntry(
            name=name,
            path=path if isinstance(path, Path) else Path(name),
            acknowledge=found["acknowledge"].value is True,
            master_id=master_id,
            source_id=source_id if isinstance(source_id, int) else None,
            roll_cycle=None if cycle is None else str(cycle),
        )

    def _check_masters(self, node: Node, queues: Mapping[str, QueueEntry]) -> None:
        """Does nothing where the file names a master for each queue.

        Raises:
            ConfigError: it names none for one; at its place.
        """
        for key, each in self._mapping(node, "queues", frozenset()).entries:
            if queues[key.text].master_id == NO_HOST:
                message = f"'masterId' expected for queue {key.text!r}, nothing came"
                raise self._error(each, message)

    def _process(self, node: Node | None) -> Settings:
        """The keys below `cqrepl` that are there."""
        if node is None:
            return {}
        found: dict[str, Setting] = {}
        for key, value in self._mapping(node, "'cqrepl'", frozenset()).entries:
            if key.text in PARTS:
                part = self._given(value, PARTS[key.text], f"{key.text!r}")
                found |= {f"{key.text}.{name}": each for name, each in part.items()}
                if key.text == "cluster" and ELECTION not in found:
                    origin = f"line {key.spot.line}"
                    election = CLUSTER.keys["election"]
                    found[ELECTION] = Setting(
                        key=election, value=MAJORITY, origin=origin, spot=key.spot
                    )
            elif key.text in PROCESS.keys:
                found[key.text] = self._setting(PROCESS.keys[key.text], value)
            else:
                raise self._unknown(key, "'cqrepl'", [*PROCESS.keys, *PARTS])
        return found

    def _section(self, node: Node, section: Section, title: str) -> Settings:
        """All keys of a mapping, with their defaults."""
        found = self._given(node, section, title)
        for key in section.keys.values():
            if key.is_used and key.name not in found:
                if key.default is REQUIRED:
                    raise self._error(node, f"{key.name!r} expected for {title}, nothing came")
                found[key.name] = Setting(key=key, value=key.default, origin="default")
        return found

    def _given(self, node: Node, section: Section, title: str) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for name, value in self._mapping(node, title, section.tags).entries:
            key = section.keys.get(name.text)
            if key is None:
                raise self._unknown(name, title, section.keys)
            if key.is_used:
                found[key.name] = self._setting(key, value)
            else:
                self._ignored.append((key.name, name.spot))
        return found

    def _setting(self, key: Key, node: Node) -> Setting:
        """The value of one key.

        Raises:
            ConfigError: it is none of its kind.
        """
        text = self._text(key, node)
        if text is not None:
            try:
                value = key.kind.parse(text)
            except (ValueError, KeyError) as error:
                self._check_entries(key, node, str(error))
                if isinstance(error, Unfit):
                    raise self._error(node, str(error)) from None
            else:
                return Setting(
                    key=key,
                    value=value,
                    origin=f"line {node.spot.line}",
                    spot=node.spot,
                    entries=dict(_entries(node)),
                )
        message = f"{key.kind.wanted} expected for {key.name!r}, {_came(node)} came"
        raise self._error(node, message)

    def _check_entries(self, key: Key, node: Node, why: str) -> None:
        """Does nothing if no entry of a mapping is wrong by itself.

        Args:
            why: what is wrong with the whole.

        Raises:
            ConfigError: one is, or one in it, for the same reason; at its place.
        """
        if not isinstance(node, MappingNode):
            return
        for name, value in node.entries:
            tried: list[tuple[ScalarNode, Node, Node]] = []
            if isinstance(value, MappingNode):
                tried = [(*each, replace(value, entries=(each,))) for each in value.entries]
            for found, worth, part in [*tried, (name, value, value)]:
                text = self._text(key, replace(node, entries=((name, part),)))
                try:
                    key.kind.parse(text or "")
                except (ValueError, KeyError) as error:
                    if str(error) != why:
                        continue
                    came = _came(worth)
                    if isinstance(worth, ScalarNode):
                        came = shown(f"{found.text}: {worth.text}")
                    wanted = f"{key.kind.wanted} expected for {key.name!r}, {came} came"
                    message = why if isinstance(error, Unfit) else wanted
                    raise self._error(found, message) from None

    def _text(self, key: Key, node: Node, depth: int = 0) -> str | None:
        """A value as one text; None where it cannot be one of this key."""
        if key.kind.takes_tree and not isinstance(node, ScalarNode):
            return json.dumps(_plain_tree(node))
        if isinstance(node, ListNode):
            items = [self._text(key, each) for each in node.items]
            takes_list = key.kind.takes_list or (key.kind.takes_mapping and depth > 1)
            is_right = takes_list and all(isinstance(e, ScalarNode) for e in node.items)
            return ",+"[depth > 0].join(each or "" for each in items) if is_right else None
        if isinstance(node, MappingNode):
            if not key.kind.takes_mapping or depth > 1 + key.kind.takes_deep:
                return None
            texts = [(name.text, self._text(key, each, depth + 1)) for name, each in node.entries]
            return ", ;"[depth].join(f"{name}={text or ''}" for name, text in texts)
        if node.tag not in _SCALAR_TAGS and node.tag != key.tag:
            raise self._wrong_tag(node, f"{key.name!r}", (key.tag,) if key.tag else ())
        return None if node.is_plain and node.text in _NOTHING else node.text

    def _mapping(self, node: Node, title: str, tags: frozenset[str]) -> MappingNode:
        if not isinstance(node, MappingNode):
            raise self._error(node, f"a mapping expected for {title}, {_came(node)} came")
        if node.tag not in tags and node.tag not in _MAPPING_TAGS:
            raise self._wrong_tag(node, title, tags)
        return node

    def _wrong_tag(self, node: Node, title: str, tags: Iterable[str]) -> ConfigError:
        wanted = " or ".join([*sorted(tags), "no type"])
        return self._error(node, f"{wanted} expected for {title}, {shown(str(node.tag))} came")

    def _unknown(self, key: ScalarNode, title: str, known: Iterable[str]) -> ConfigError:
        near = nearest(key.text, known)
        message = f"a key of {title} expected, {shown(key.text)} came; the nearest one is {near!r}"
        return self._error(key, message)

    def _error(self, node: Node, message: str) -> ConfigError:
        return ConfigError(self._path, node.spot, message)


def _entries(node: Node) -> Iterator[tuple[tuple[str, ...], TextSpot]]:
    """The places of all entries of a mapping, and of those in them."""
    if isinstance(node, MappingNode):
        for name, value in node.entries:
            yield (name.text,), name.spot
            for inner, spot in _entries(value):
                yield (name.text, *inner), spot


def _plain_tree(node: Node) -> object:
    match node:
        case MappingNode():
            return {name.text: _plain_tree(each) for name, each in node.entries}
        case ListNode():
            return [_plain_tree(each) for each in node.items]
    return node.text


def _number(setting: Setting) -> int:
    assert isinstance(setting.value, int)
    return setting.value


def _came(node: Node) -> str:
    match node:
        case ListNode():
            return "a list"
        case MappingNode():
            return "a mapping"
        case ScalarNode() if node.is_plain and node.text in _NOTHING:
            return "nothing"
    return shown(node.text)
