"""The text of a configuration as a tree of nodes that know where they stand.

Theory of operation. ruamel.yaml cuts the text into events; nothing is made of them but the three
kinds of nodes below, so no tag in a file chooses a class. Chronicle's own text is nearly YAML:
within braces the comma behind a closing brace may be left out, and its documentation writes `...`
for what is to follow. Where the text as a whole stands in braces, such commas are put in and such
dots blanked before, which moves nothing that has a place. Lines with short mappings, as there is
one for each queue, are read apart (`shortmappings`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from cqrepl.config.errors import ConfigError, TextSpot
from cqrepl.config.shortmappings import ShortMapping, ShortText, without_short_mappings

BYTES_MAX: Final = 16 * 1024 * 1024
DEPTH_MAX: Final = 16
ALIASES_MAX: Final = 10_000
SHOWN: Final = 60  # characters of a text that an error repeats
# up to the first brace: blanks, comments, the mark of a document's start, a tag; what has matched
# is never tried otherwise, which would take for ever
_IN_BRACES: Final = re.compile(r"(?:\s++|#[^\n]*+|---(?=\s))*+(?:![^\s{]*+\s*+)?(?=\{)")
# what counts where commas are missing: quoted texts, comments, blanks, words, signs
_PIECE: Final = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|#[^\n]*|\s+|[^\s,\[\]{}]+|.", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A single text; `is_plain` where it stands without quotes."""

    spot: TextSpot
    tag: str | None
    text: str
    is_plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """Nodes in a row."""

    spot: TextSpot
    tag: str | None
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """Nodes by key; no key stands twice."""

    spot: TextSpot
    tag: str | None
    entries: tuple[tuple[ScalarNode, "Node"], ...]


Node = ScalarNode | ListNode | MappingNode


def read_tree(data: bytes, path: str) -> Node:
    """The one document of a file.

    Args:
        path: what errors call it.

    Raises:
        ConfigError: it is no such text, or one beyond the limits.
    """
    if len(data) > BYTES_MAX:
        raise ConfigError(path, None, f"at most {BYTES_MAX} bytes expected, more came")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        message = f"UTF-8 expected, byte 0x{data[error.start]:02x} came"
        raise ConfigError(path, TextSpot(line, column), message) from None
    try:
        return _tree(_with_commas(text), path)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        message = f"printable text expected, {chr(_code(error.character))!r} came"
        raise ConfigError(path, TextSpot(line, column), message) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = TextSpot(mark.line + 1, mark.column + 1) if isinstance(mark, StringMark) else None
        why = ", ".join(each for each in (error.context, error.problem) if each)
        raise ConfigError(path, spot, f"YAML expected: {_one_line(why)}") from None
    except YAMLError as error:
        raise ConfigError(path, None, f"YAML expected: {_one_line(str(error))}") from None


def _tree(text: str, path: str) -> Node:
    """The one document of a text, as `read_tree`; what is wrong is told of the whole of it."""
    short, mappings = without_short_mappings(text)
    if mappings:
        with suppress(ConfigError, YAMLError):
            builder = _Builder(path, mappings)
            tree = builder.build(_events(short))
            if builder.has_put_all:
                return tree
    return _Builder(path, {}).build(_events(text))


def _events(text: str) -> Iterator[Event]:
    found: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)
    return found


def shown(text: str) -> str:
    """A text as errors repeat it: on one line, and not longer than they should be."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _code(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character)[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _with_commas(text: str) -> str:
    """The text with the commas that YAML wants, where the whole of it stands in braces."""
    start = _IN_BRACES.match(text)
    if start is None:
        return text
    pieces, depth = [start[0]], 0
    closed_at: int | None = None  # where a comma has to stand, if something follows
    for found in _PIECE.finditer(text, start.end()):
        piece = found[0]
        if piece == "..." and depth:
            piece = "   "
        if piece.isspace() or piece.startswith("#"):
            pieces.append(piece)
            continue
        if closed_at is not None and depth and piece not in (",", "}", "]", ":"):
            pieces.insert(closed_at, ",")
        pieces.append(piece)
        closed_at = len(pieces) if piece in ("}", "]") else None
        depth += (piece in ("{", "[")) - (piece in ("}", "]"))
    return "".join(pieces)


class _Builder:
    """Makes the tree of the events of one document.

    Args:
        mappings: what is put in place of these words.
    """

    def __init__(self, path: str, mappings: Mapping[str, ShortMapping]) -> None:
        self._path = path
        self._mappings = mappings
        self._put: set[str] = set()
        self._anchors: dict[str, Node] = {}
        self._aliases = 0
        self._depth = 0

    def build(self, events: Iterator[Event]) -> Node:
        tree: Node | None = None
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if tree is not None:
                    raise self._error(event, "one document expected, a second one came")
            elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
                tree = self._node(event, events)
            elif isinstance(event, AliasEvent):
                raise self._error(event, "a mapping expected, an alias came")
        if tree is None or (isinstance(tree, ScalarNode) and tree.is_plain and not tree.text):
            raise ConfigError(self._path, None, "a configuration expected, nothing came")
        return tree

    def _node(self, event: Event, events: Iterator[Event]) -> Node:
        if isinstance(event, AliasEvent):
            return self._aliased(event)
        spot, anchor = _spot(event), getattr(event, "anchor", None)
        tag = _tag(event)
        node: Node
        if isinstance(event, ScalarEvent) and event.value in self._mappings:
            node = self._short(event)
        elif isinstance(event, ScalarEvent):
            node = ScalarNode(spot=spot, tag=tag, text=event.value, is_plain=event.style is None)
        else:
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._error(event, f"at most {DEPTH_MAX} levels expected, one more came")
            if isinstance(event, SequenceStartEvent):
                node = ListNode(spot=spot, tag=tag, items=tuple(self._items(events)))
            else:
                node = MappingNode(spot=spot, tag=tag, entries=tuple(self._entries(events)))
            self._depth -= 1
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    @property
    def has_put_all(self) -> bool:
        """True when each word has come back as a value of its own."""
        return self._put == self._mappings.keys()

    def _short(self, event: ScalarEvent) -> MappingNode:
        """The short mapping that a word was put in place of. The word must stand where that was."""
        short, spot = self._mappings[event.value], _spot(event)
        if spot != TextSpot(short.line + 1, short.column + 1) or self._depth >= DEPTH_MAX:
            raise self._error(event, "a short mapping expected elsewhere")
        self._put.add(event.value)

        def scalar(text: ShortText) -> ScalarNode:
            place = TextSpot(spot.line, text.column + 1)
            return ScalarNode(spot=place, tag=None, text=text.text, is_plain=text.is_plain)

        entries = tuple((scalar(key), scalar(value)) for key, value in short.pairs)
        return MappingNode(spot=spot, tag=None, entries=entries)

    def _items(self, events: Iterator[Event]) -> Iterator[Node]:
        for event in events:
            if isinstance(event, SequenceEndEvent):
                return
            yield self._node(event, events)

    def _entries(self, events: Iterator[Event]) -> Iterator[tuple[ScalarNode, Node]]:
        seen: dict[str, TextSpot] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                return
            key = self._node(event, events)
            if not isinstance(key, ScalarNode):
                what = "a list" if isinstance(key, ListNode) else "a mapping"
                raise self._error(event, f"a name expected as a key, {what} came")
            if key.text in seen:
                first = seen[key.text].line
                message = (
                    f"each key once expected, {shown(key.text)} came again, first in line {first}"
                )
                raise self._error(event, message)
            seen[key.text] = key.spot
            value = self._node(next(events), events)
            if isinstance(value, ScalarNode) and value.is_plain and not value.text:
                # nothing stands nowhere: ruamel puts it where the next thing begins
                column = key.spot.column + len(key.text) + 1
                value = replace(value, spot=TextSpot(key.spot.line, column))
            yield key, value

    def _aliased(self, event: AliasEvent) -> Node:
        self._aliases += 1
        if self._aliases > ALIASES_MAX:
            raise self._error(event, f"at most {ALIASES_MAX} aliases expected, one more came")
        node = self._anchors.get(event.anchor)
        if node is None:
            message = f"the name of an anchor before it expected, {shown(event.anchor)} came"
            raise self._error(event, message)
        return node

    def _error(self, event: Event, message: str) -> ConfigError:
        return ConfigError(self._path, _spot(event), message)


def _spot(event: Event) -> TextSpot:
    mark = event.start_mark
    return TextSpot(mark.line + 1, mark.column + 1)


def _tag(event: Event) -> str | None:
    tag = getattr(event, "tag", None)
    return None if tag is None else str(tag)
