"""Lines that hold a key and a short mapping, as a file of a cluster has one for each queue.

    orders: {masterId: 1, acknowledge: true}

Theory of operation. A parser of all of YAML looks at each character many times, which takes longest
for what there is most of and what is simplest. So where a text has many such lines, their mappings
are read here, and a word that stands nowhere else is put in place of each before the whole is
parsed. Whether a line was what it looks like, and no part of a longer text say, shows then: the
word comes back as a value of its own, at its place. Where any does not, nothing read here counts.
"""

import re
from dataclasses import dataclass
from typing import Final

FEWEST: Final = 50  # with less there is nothing to gain
_WORD: Final = "short-mapping"
_PLAIN: Final = r"[A-Za-z0-9/_$][A-Za-z0-9/_$.+-]*"
_ENTRY: Final = rf"[A-Za-z][A-Za-z0-9_]*: (?:{_PLAIN}|\"[^\"\\\n]+\")"
_LINE: Final = re.compile(
    rf"^( +[A-Za-z0-9][A-Za-z0-9_.-]*: )(\{{ *{_ENTRY}(?:, *{_ENTRY})* *\}})(?=,?$)", re.MULTILINE
)
_PAIR: Final = re.compile(rf"([A-Za-z][A-Za-z0-9_]*): ({_PLAIN}|\"[^\"]+\")")


@dataclass(frozen=True, slots=True)
class ShortText:
    """A text, and where it stands in its line, from 0."""

    column: int
    text: str
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class ShortMapping:
    """A mapping on one line: where it begins, both from 0, and its keys with their values."""

    line: int
    column: int
    pairs: tuple[tuple[ShortText, ShortText], ...]


def without_short_mappings(text: str) -> tuple[str, dict[str, ShortMapping]]:
    """The text with a word in place of each, and what each word stands for; nothing is changed in
    one that has few of them."""
    if _WORD in text:
        return text, {}
    found: dict[str, ShortMapping] = {}
    pieces, at, line = [], 0, 0
    for match in _LINE.finditer(text):
        line += text.count("\n", at, match.start())
        begin = match.start(2)
        pairs = _pairs(match[2], begin - match.start())
        if len({key.text for key, _ in pairs}) == len(pairs):  # else it is an error, told as ever
            word = f"{_WORD}-{len(found)}"
            found[word] = ShortMapping(line, begin - match.start(), pairs)
            pieces += [text[at:begin], word]
        else:
            pieces.append(text[at : match.end()])
        at = match.end()
    if len(found) < FEWEST:
        return text, {}
    return "".join([*pieces, text[at:]]), found


def _pairs(mapping: str, column: int) -> tuple[tuple[ShortText, ShortText], ...]:
    """The pairs of a mapping that begins at a column."""
    pairs = []
    for match in _PAIR.finditer(mapping):
        key, value = match.groups()
        is_plain = not value.startswith('"')
        value = value if is_plain else value[1:-1]
        ends = ShortText(column + match.start(2), value, is_plain)
        pairs.append((ShortText(column + match.start(1), key), ends))
    return tuple(pairs)
