"""The file of a pipeline: what is done with which queues, and which tables come of them.

    pipeline:
      state: /data/pipeline             a queue of its own: what the runs have done
      queues:
        /data/queues/*:                 a queue, or a pattern of some
          copies: [/backup/{name}]      compared with each queue as its cycles close
          archive: /archive/{name}      closed cycles as Parquet, all read back
          release: true                 cqrepl gc waits for the archive
          schema: /etc/order.json       fields of documents are columns of the view `typed`
          view: orders                  another name for that view
          event: order                  the method, where the schema has several
      tables:
        sizes: {sql: "select queue, index, length(payload) as n from queues", to: parquet, path: /t}
        seen:
          sql: select upper(payload) as payload from queues
          to: queue
          path: /data/seen
          rollCycle: FAST_DAILY         of a queue that is not there yet
          schema: /etc/signal.json      its columns become documents; without, payload or key, value

`{name}` is the name of the queue, as the column `queue` has it; the statement of a table reads the
view `queues`, of all of them with their payloads, or one of fields, as a stream.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.config.errors import ConfigError
from cqrepl.config.yamltree import ListNode, MappingNode, Node, ScalarNode, read_tree

_NAME: Final = "{name}"
_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VIEW_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
VIEW: Final = "queues"
_WORDS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedView:
    """The view whose columns are fields of documents, by the schema in a file."""

    name: str
    schema: str
    event: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPlan:
    """The work on the queues that a pattern finds; texts with `{name}`."""

    pattern: str
    copies: tuple[str, ...]
    archive: str | None
    release: bool
    typed: "TypedView | None" = None

    def copies_of(self, name: str) -> list[Path]:
        """The copies of a queue."""
        return [Path(text.replace(_NAME, name)) for text in self.copies]

    def archive_of(self, name: str) -> str | None:
        """The archive of a queue."""
        return None if self.archive is None else self.archive.replace(_NAME, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """A table, made by a statement of SQL; `to` is `queue` or `parquet`."""

    name: str
    sql: str
    to: str
    path: str
    roll_cycle: str | None
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """All that a pipeline does."""

    state: Path
    queues: tuple[QueuesPlan, ...]
    tables: tuple[TablePlan, ...]


def read_pipeline(path: Path) -> PipelinePlan:
    """The plan in a file.

    Raises:
        ConfigError: it is none; the line says where.
        OSError: the file cannot be read.
    """
    return _Reading(str(path)).plan(read_tree(path.read_bytes(), str(path)))


class _Reading:
    """Reads one file, whose name its errors tell."""

    def __init__(self, file: str) -> None:
        self._file = file

    def plan(self, tree: Node) -> PipelinePlan:
        section = self._fields(
            self._fields(tree, ("pipeline",))["pipeline"], ("state", "queues"), ("tables",)
        )
        state = self._text(section["state"])
        if "://" in state:
            raise self._error(section["state"], "a directory on a local or shared disk", state)
        tables = self._entries(section["tables"]) if "tables" in section else []
        plan = PipelinePlan(
            state=Path(state),
            queues=tuple(self._queues(key, node) for key, node in self._entries(section["queues"])),
            tables=tuple(self._table(key, node) for key, node in tables),
        )
        if not plan.queues:
            raise self._error(section["queues"], "at least one queue, or pattern", "none")
        names = {VIEW}
        for each in plan.queues:
            name = each.typed.name if each.typed is not None else None
            if name in names:
                raise self._error(section["queues"], "a view of its own for each schema", name)
            names |= {name} if name is not None else set()
        return plan

    def _queues(self, key: ScalarNode, node: Node) -> QueuesPlan:
        known = ("copies", "archive", "release", "schema", "view", "event")
        fields = self._fields(node, (), known)
        copies = fields.get("copies")
        if copies is not None and not isinstance(copies, ListNode):
            raise self._error(copies, "a list of directories", "something else")
        release = self._text(fields["release"]) if "release" in fields else "false"
        if release not in _WORDS:
            raise self._error(fields["release"], "true or false", release)
        archive = self._text(fields["archive"]) if "archive" in fields else None
        if _WORDS[release] and archive is None:
            raise self._error(fields["release"], "an archive beside it", "none")
        items = () if copies is None else copies.items
        texts = tuple(self._text(each) for each in items)
        for each, text in zip(items, texts, strict=True):
            self._check_named(key, each, text)
        if archive is not None:
            self._check_named(key, fields["archive"], archive)
        return QueuesPlan(
            pattern=key.text,
            copies=texts,
            archive=archive,
            release=_WORDS[release],
            typed=self._typed(fields),
        )

    def _typed(self, fields: Mapping[str, Node]) -> TypedView | None:
        for name in ("view", "event"):
            if name in fields and "schema" not in fields:
                raise self._error(fields[name], "a schema beside it", "none")
        if "schema" not in fields:
            return None
        name = self._text(fields["view"]) if "view" in fields else "typed"
        if not _VIEW_NAME.fullmatch(name):
            raise self._error(fields["view"], "a name of letters, digits and _", name)
        event = self._text(fields["event"]) if "event" in fields else None
        return TypedView(name=name, schema=self._text(fields["schema"]), event=event)

    def _check_named(self, key: ScalarNode, node: Node, text: str) -> None:
        if re.search(r"[*?\[]", key.text) and _NAME not in text:
            raise self._error(
                node, f"a path with {_NAME}, as {key.text} finds several queues", text
            )

    def _table(self, key: ScalarNode, node: Node) -> TablePlan:
        if not _TABLE.fullmatch(key.text):
            raise self._error(key, "a name of letters, digits, - and _", key.text)
        fields = self._fields(node, ("sql", "to", "path"), ("rollCycle", "schema"))
        to = self._text(fields["to"])
        if to not in ("queue", "parquet"):
            raise self._error(fields["to"], "queue or parquet", to)
        roll_cycle = self._text(fields["rollCycle"]) if "rollCycle" in fields else None
        if to != "queue" and "schema" in fields:
            raise self._error(fields["schema"], "to: queue beside it", to)
        return TablePlan(
            name=key.text,
            schema=self._text(fields["schema"]) if "schema" in fields else None,
            sql=self._text(fields["sql"]),
            to=to,
            path=self._text(fields["path"]),
            roll_cycle=roll_cycle,
        )

    def _fields(
        self, node: Node, needed: tuple[str, ...], more: tuple[str, ...] = ()
    ) -> Mapping[str, Node]:
        known = (*needed, *more)
        found = {}
        for key, value in self._entries(node):
            if key.text not in known:
                raise self._error(key, f"one of {', '.join(known)}", key.text)
            found[key.text] = value
        for name in needed:
            if name not in found:
                raise self._error(node, f"an entry {name}", "none")
        return found

    def _entries(self, node: Node) -> list[tuple[ScalarNode, Node]]:
        if not isinstance(node, MappingNode):
            raise self._error(node, "a mapping", "something else")
        return list(node.entries)

    def _text(self, node: Node) -> str:
        if not isinstance(node, ScalarNode) or not node.text:
            raise self._error(node, "a text", "something else")
        return node.text

    def _error(self, node: Node, expected: str, found: str) -> ConfigError:
        return ConfigError(self._file, node.spot, f"expected {expected}, found {found}")
