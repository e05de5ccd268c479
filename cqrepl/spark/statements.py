"""Finds in a statement of SQL what makes, moves or drops a table. Knows no Spark.

Theory of operation. A statement is cut into tokens as Spark's grammar cuts it: comments nest, and a
text or a name in quotes is one token, whatever it holds. A script (`BEGIN ... END`) is many
statements, between which there is a semicolon, and each begins with a word; so the words are looked
for everywhere in it. The text that `EXECUTE IMMEDIATE` runs is an expression, which only Spark can
evaluate.

    word    CREATE, trades       text    'queues/trades', r'\\d', $$...$$
    name    `trades`             sign    any other character
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<gap>\s+|--(?:\\\n|[^\r\n])*)
    |(?P<open>/\*(?!\+))
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"
        |\$(?P<tag>[A-Za-z]*)\$.*?\$(?P=tag)\$)
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<word>\w+)
    |(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_BEFORE_TABLE: Final = {"OR", "REPLACE", "EXTERNAL"}
_OF_QUERY: Final = {"AS", "SELECT", "FROM", "VALUES"}
_OF_HIVE: Final = {"STORED", "ROW"}
_DATABASE: Final = {"DATABASE", "SCHEMA", "NAMESPACE"}
_STATEMENT_WORDS: Final = {"CREATE", "REPLACE", "ALTER", "DROP", "EXECUTE"}


class Deed(Enum):
    """The deeds of a statement on a table."""

    MAKES = "makes"  # without a place of its own
    MAKES_LIKE = "makes like"  # so, too; `name` is the table that it is like
    MOVES = "moves"
    DROPS = "drops"
    DROPS_ALL = "drops all"  # tables of a database
    RUNS = "runs"  # a text that `expression` gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that a statement does.

    Attributes:
        name: of the table or database, a part for each dot; empty where an expression gives it.
        provider: of a table that is made; empty where the session's default is.
        expression: SQL that gives the name, or the text that is run.
        is_in_script: other statements stand around this one.
    """

    deed: Deed
    name: tuple[str, ...] = ()
    provider: str = ""
    expression: str = ""
    is_in_script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    @property
    def plain(self) -> str:
        """The text of a name without its quotes."""
        if self.kind == "word":
            return self.text
        quote = self.text[-1]
        return self.text[1:-1].replace(2 * quote, quote)


def steps_of(statement: str) -> Iterator[Step]:
    """All that a statement, or each one of a script, does with tables, in their order."""
    tokens = list(_tokens(statement))
    is_script = any(token.word == "BEGIN" for token in tokens)
    run: list[_Token] = []
    for token in [*tokens, _Token(kind="sign", text=";", start=len(statement))]:
        if token.text == ";":
            yield from _steps(statement[: token.start], run, is_script)
            run = []
        else:
            run.append(token)


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a name as SQL has it."""
    return _Words(name, list(_tokens(name))).name()[0]


def _tokens(statement: str) -> Iterator[_Token]:
    position = 0
    while (found := _TOKEN.match(statement, position)) is not None:
        kind, position = str(found.lastgroup), found.end()
        if kind == "open":
            position = _comment_end(statement, position)
        elif kind != "gap":
            kind = "text" if kind == "tag" else kind
            yield _Token(kind=kind, text=found[0], start=found.start())


def _comment_end(statement: str, position: int) -> int:
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(statement, position)
        if edge is None:
            return len(statement)
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


class _Words:
    """A place in the tokens of one statement."""

    def __init__(self, statement: str, tokens: Sequence[_Token]) -> None:
        self._statement = statement
        self._left = tokens

    @property
    def next_word(self) -> str:
        return self._left[0].word if self._left else ""

    def take(self, *words: str) -> bool:
        """Steps over words where they come next."""
        if [token.word for token in self._left[: len(words)]] != list(words):
            return False
        self._left = self._left[len(words) :]
        return True

    def skip(self, words: set[str]) -> None:
        """Steps over each of some words."""
        while self.next_word in words:
            self._left = self._left[1:]

    def name(self) -> tuple[tuple[str, ...], str]:
        """Steps over a name: its parts, or the expression that gives it."""
        if self.next_word == "IDENTIFIER" and self._left[1:2] and self._left[1].text == "(":
            inner, after = self._bracket(1)
            self._left = after[1:]
            return (), self._between(inner, after)
        parts: list[str] = []
        while self._left and self._left[0].kind != "sign":
            parts.append(self._left[0].plain)
            self._left = self._left[1:]
            if not self._left or self._left[0].text != ".":
                break
            self._left = self._left[1:]
        return tuple(parts), ""

    def outside(self) -> list[_Token]:
        """The tokens that are left, without those in brackets, up to the query whose rows are
        taken."""
        found: list[_Token] = []
        depth = 0
        for token in self._left:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0 and token.word in _OF_QUERY:
                before = found[-1].word if found else ""
                if before != "STORED":
                    break
            if depth == 0:
                found.append(token)
        return found

    def options(self) -> set[str]:
        """The names of the options that have a value, in lower case."""
        depth = 0
        for at, token in enumerate(self._left):
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            after = [each.text for each in self._left[at + 1 : at + 2]]
            if depth == 0 and token.word == "OPTIONS" and after == ["("]:
                return set(_keys(self._bracket(at + 1)[0]))
        return set()

    def expression(self, ends: set[str]) -> str:
        """The text that is left, up to one of some words, as it was written."""
        depth = 0
        for at, token in enumerate(self._left):
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0 and token.word in ends:
                return self._between(self._left[:at], self._left[at:])
        return self._between(self._left, ())

    def _bracket(self, at: int) -> tuple[Sequence[_Token], Sequence[_Token]]:
        depth = 0
        for end in range(at, len(self._left)):
            depth += {"(": 1, ")": -1}.get(self._left[end].text, 0)
            if depth == 0:
                return self._left[at + 1 : end], self._left[end:]
        return self._left[at + 1 :], ()

    def _between(self, inner: Sequence[_Token], after: Sequence[_Token]) -> str:
        if not inner:
            return ""
        end = after[0].start if after else len(self._statement)
        return self._statement[inner[0].start : end].strip()


def _keys(tokens: Sequence[_Token]) -> Iterator[str]:
    """The keys of a list of options, as `path 'x', from = '0x0'`."""
    depth, before = 0, ","
    for at, token in enumerate(tokens):
        follows = tokens[at + 1].text if at + 1 < len(tokens) else ","
        if depth == 0 and before == "," and token.kind != "sign" and follows != ",":
            yield token.plain.lower()
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        before = token.text


def _steps(statement: str, tokens: Sequence[_Token], is_script: bool) -> Iterator[Step]:
    for at, token in enumerate(tokens):
        if token.word in _STATEMENT_WORDS:
            words = _Words(statement, tokens[at:])
            step = _step(words, is_script)
            if step is not None:
                yield step
                if not is_script:
                    return


def _step(words: _Words, is_script: bool) -> Step | None:
    if words.take("EXECUTE", "IMMEDIATE"):
        text = words.expression({"INTO", "USING"})
        return Step(deed=Deed.RUNS, expression=text, is_in_script=is_script)
    if words.take("CREATE") or words.take("REPLACE"):
        words.skip(_BEFORE_TABLE)
        return _making(words) if words.take("TABLE") else None
    if words.take("ALTER", "TABLE"):
        name, expression = words.name()
        after = [token.word for token in words.outside()]
        if ("SET", "LOCATION") in pairwise(after):
            return Step(deed=Deed.MOVES, name=name, expression=expression, is_in_script=is_script)
        return None
    if not words.take("DROP"):
        return None
    deed = Deed.DROPS
    if not words.take("TABLE"):
        if words.next_word not in _DATABASE:
            return None
        words.skip(_DATABASE)
        deed = Deed.DROPS_ALL
    words.take("IF", "EXISTS")
    name, expression = words.name()
    if deed is Deed.DROPS_ALL and "CASCADE" not in [token.word for token in words.outside()]:
        return None
    return Step(deed=deed, name=name, expression=expression, is_in_script=is_script)


def _making(words: _Words) -> Step | None:
    """A table without a place of its own; None for one that has it."""
    words.take("IF", "NOT", "EXISTS")
    words.name()
    like = words.take("LIKE")
    name, expression = words.name() if like else ((), "")
    after = words.outside()
    said = [token.word for token in after]
    if "LOCATION" in said or "path" in words.options():
        return None
    provider = after[said.index("USING") + 1 :][:1] if "USING" in said else []
    if provider:
        return Step(deed=Deed.MAKES, provider=provider[0].plain.lower())
    if like:
        return Step(deed=Deed.MAKES_LIKE, name=name, expression=expression)
    return None if _OF_HIVE & set(said) else Step(deed=Deed.MAKES)
