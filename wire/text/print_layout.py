"""The line breaks, blanks, commas and brackets in the text of one document.

Theory of operation. The text must equal what Java prints, so this is its layout as a small machine,
not a YAML printer. It holds the text so far and four things that steer it:

    owed     what to write before the next item: nothing, a blank, a comma, a line break; or the
             mark that a comment was just written
    depth    how many brackets are open; a new line is indented by two blanks for each
    leaf     whether items go on one line
    stack    what was owed where each open bracket began

Every item first pays what is owed (`_begin`) and then owes a separator itself (`_done`). Blanks
that turn out too many at the end of the text are taken back (`_tidy`), so the end stays within
reach: the last characters are kept apart in `_tail`. All before them only grows, hence the time is
linear.

Source: section 9.2 of the format, and the vectors `nested.jsonl` and `bindings.jsonl`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple


class _Owed(NamedTuple):
    text: str
    after_comment: bool = False


_NOTHING: Final = _Owed("")
_AFTER_COMMENT: Final = _Owed("", after_comment=True)
_BLANK: Final = _Owed(" ")
_NEW_LINE: Final = _Owed("\n")
_COMMA: Final = _Owed(", ")
_COMMA_NEW_LINE: Final = _Owed(",\n")

_TAIL_MAX: Final = 256
_TAIL_MIN: Final = 8  # `_tidy` looks at the last three


class Layout:
    """Collects the items of one document; `text()` is the result."""

    def __init__(self) -> None:
        self._settled: list[str] = []
        self._tail = ""
        self._length = 0
        self._owed = _NOTHING
        self._stack: list[_Owed] = []
        self._depth = 0
        self._leaf = False

    def text(self) -> str:
        """Everything written so far, tidied at its end."""
        self._tidy()
        return "".join([*self._settled, self._tail])

    def scalar(self, text: str, value: object) -> None:
        """A complete value, whose text is quoted where it must be."""
        self._begin()
        self._write(text)
        self._done()

    def name(self, quoted: str, name: str) -> None:
        """The name of the value that comes next."""
        self._begin()
        self._write(quoted + ": ")

    def type_prefix(self, shown: str, name: str) -> None:
        """The type of the value that comes next."""
        self._begin()
        self._write(f"!{shown} ")

    def comment(self, text: str) -> None:
        """A comment on the rest of this line."""
        self._begin()
        self._write(f"# {text}\n")
        self._owed = _AFTER_COMMENT

    def set_leaf(self, leaf: bool) -> None:
        """Puts the next items on one line, or each on its own."""
        self._leaf = leaf
        if not leaf and self._owed.text.startswith(","):
            self._done()  # the comma was owed for one line and now ends a line

    @contextmanager
    def event_key(self) -> Iterator[None]:
        """Around the item that names an event by an object."""
        self._begin()
        self._write("? ")
        outer = self._leaf
        self.set_leaf(True)
        yield
        self.set_leaf(outer)
        if self._end(1).isspace():
            self._drop(1)
        self._write(": ")
        self._owed = _NOTHING

    @contextmanager
    def sequence(self) -> Iterator[None]:
        """Around the items of a sequence."""
        leaf = self._leaf
        self._open("[")
        if leaf:
            self._write(" ")
        else:
            self._owed = _NEW_LINE
        start = self._length
        yield
        # Java's threshold is "more than one character": hence `[ 1]` but `[ 12 ]`
        has_items = self._length - start > 1
        if has_items and not leaf:
            self._write("\n")
        self._pop()
        self._leaf = leaf
        if not leaf:
            self._pad()
        elif has_items:
            self._write(" ")
        self._tidy()
        self._write("]")
        self._done()

    @contextmanager
    def map(self, *, may_fold: bool = True) -> Iterator[None]:
        """Around the names and values of a map; one that starts a document gets no braces.

        Args:
            may_fold: put it on one line when it is nested deeply.
        """
        outer = self._leaf
        if may_fold and self._depth > 1:
            self._leaf = True
        if not self._length:
            yield
            self._leaf = outer
            return
        with self._braces():
            yield
        self._leaf = outer
        self._done()

    @contextmanager
    def _braces(self) -> Iterator[None]:
        leaf = self._leaf
        self._open("{")
        self._owed = _BLANK if leaf else _NEW_LINE
        yield
        if leaf and self._owed.text.endswith(" "):
            self._write(" ")
        self._tidy()
        self._leaf = False
        self._pop()
        if not leaf:
            self._owed = _NEW_LINE
        self._begin()
        self._tidy()
        self._write("}")

    def _begin(self) -> None:
        self._write(self._owed.text)
        self._tidy()
        if self._owed.after_comment or self._end(1) == "\n":
            self._pad()
        self._owed = _NOTHING

    def _done(self) -> None:
        if self._depth:
            self._owed = _COMMA if self._leaf else _COMMA_NEW_LINE
        elif self._leaf:
            self._owed = _COMMA
        else:
            self._owed = _NOTHING
            self._write("\n")
        self._tidy()

    def _open(self, bracket: str) -> None:
        if self._owed.text:
            self._write(self._owed.text)
            self._tidy()
            self._pad()
            self._owed = _NOTHING
        self._stack.append(self._owed)
        self._owed = _NOTHING
        self._depth += 1
        self._write(bracket)

    def _pop(self) -> None:
        self._owed = self._stack.pop()
        self._depth -= 1
        self._leaf = False

    def _pad(self) -> None:
        self._tidy()
        self._write("  " * self._depth)

    def _tidy(self) -> None:
        end = self._end(3)
        if end.endswith("\n\n"):
            self._drop(1)
        elif end.endswith(" \n"):
            self._drop(2)
            self._write("\n")
        elif len(end) == 3 and end[0] > " " and end.endswith("  "):
            self._drop(1)

    def _write(self, text: str) -> None:
        self._tail += text
        self._length += len(text)
        if len(self._tail) > _TAIL_MAX:
            self._settled.append(self._tail[:-_TAIL_MIN])
            self._tail = self._tail[-_TAIL_MIN:]

    def _end(self, count: int) -> str:
        if len(self._tail) < count and self._settled:
            self._tail = self._settled.pop() + self._tail
        return self._tail[-count:]

    def _drop(self, count: int) -> None:
        self._tail = self._tail[:-count]
        self._length -= count
