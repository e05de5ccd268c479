r"""Conditions over the fields of documents: `price > 100 and symbol == "X"`.

Theory of operation. A condition is parsed once into a tree of comparisons, and asked of each
document. It is a grammar of its own, with an end: a text is never evaluated as code, calls nothing
and names nothing but fields.

    condition   any of `and`, `or`, `not` over comparisons; parentheses; `and` binds closer
    comparison  FIELD == != < <= > >= LITERAL (also the other way round, or two fields)
                FIELD in (LITERAL, ...), FIELD not in (...), or FIELD alone, which has to be true
    FIELD       symbol, order.px; a name with other characters in backquotes: `my field`
    LITERAL     100, -1.5e3; "X" or 'X' with \" \\ \n \t; true, false;
                2026-11-21T10:00Z, 2026-11-21, with any offset; without one it is in the given zone

A comparison with a field that is absent, null or of another type is false. Of absent fields it is
counted how many documents lack them. Numbers compare by their values: whole numbers and decimals
exactly, a double with the double nearest to the literal. A time compares with dates and times, and
with numbers that count seconds, milli-, micro- or nanoseconds since 1970.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

from cqrepl.console.units import since_1970_ns
from cqrepl.typed.documentfields import ABSENT, field_at
from cqrepl.typed.instants import instant_ns
from wire.objects.values import TimeText

LENGTH_MAX: Final = 4096
DEPTH_MAX: Final = 32
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T][0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?)
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)(?![\w.])
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<name>(?:[^\W\d][\w$-]*|`[^`]+`)(?:\.(?:[\w$-]+|`[^`]+`))*)
      | (?P<sign>==|!=|<=|>=|<|>|=|\(|\)|,)
    )""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t"}
_WORDS: Final = frozenset({"and", "or", "not", "in", "true", "false"})
_SIGNS: Final[dict[str, Callable[[int], bool]]] = {
    "==": lambda order: order == 0,
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Fields = Mapping[Any, object]
_Test = Callable[[Fields], bool]


class Moment(NamedTuple):
    """A time that a condition names, in nanoseconds since 1970."""

    ns: int


Literal = bool | int | Decimal | str | Moment


class Condition:
    """A condition, and how many of the documents that it was asked of lack each of its fields."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        """
        Args:
            zone: of times without an offset.

        Raises:
            ValueError: the text is no condition; says what was expected where.
        """
        self.text = text
        self.absent: Counter[str] = Counter()
        self.paths: list[tuple[str, ...]] = []
        parser = _ConditionParser(text, zone, self._read)
        self._test = parser.condition()
        parser.expect_end()

    def holds(self, fields: Fields) -> bool:
        """True where the document fulfils it."""
        return self._test(fields)

    def notes(self) -> list[str]:
        """A line for each field that documents lack."""
        return [
            f"{count} document{'' if count == 1 else 's'} without {path!r}"
            for path, count in sorted(self.absent.items())
        ]

    def _read(self, path: tuple[str, ...]) -> Callable[[Fields], object]:
        """A function that reads a field, and counts documents that lack it; once for each path."""
        is_first = path not in self.paths
        if is_first:
            self.paths.append(path)
        name, absent = ".".join(path), self.absent

        def read(fields: Fields) -> object:
            value = field_at(fields, path)
            if is_first and value is ABSENT:
                absent[name] += 1
            return value

        return read


class _ConditionToken(NamedTuple):
    kind: str
    text: str
    at: int


class _ConditionParser:
    """Goes over the text once, one token ahead."""

    def __init__(
        self,
        text: str,
        zone: tzinfo,
        read: Callable[[tuple[str, ...]], Callable[[Fields], object]],
    ) -> None:
        if len(text) > LENGTH_MAX:
            raise ValueError(f"a condition of at most {LENGTH_MAX} characters expected")
        self._text = text
        self._zone = zone
        self._read = read
        self._depth = 0
        self._next = self._token(0)

    def condition(self) -> _Test:
        tests = [self._all()]
        while self._takes("or"):
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        # each is asked: a field that is absent is counted whatever stands before it
        return lambda fields: True in [test(fields) for test in tests]

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._error("`and`, `or` or the end")

    def _all(self) -> _Test:
        tests = [self._negated()]
        while self._takes("and"):
            tests.append(self._negated())
        if len(tests) == 1:
            return tests[0]
        return lambda fields: False not in [test(fields) for test in tests]

    def _negated(self) -> _Test:
        is_not = False
        while self._takes("not"):
            is_not = not is_not
        test = self._comparison()
        return (lambda fields: not test(fields)) if is_not else test

    def _comparison(self) -> _Test:
        if self._takes("("):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._error(f"at most {DEPTH_MAX} open parentheses")
            test = self.condition()
            self._expect(")")
            self._depth -= 1
            return test
        left = self._operand()
        is_not = self._takes("not")
        if is_not or self._next.text == "in":
            return self._member(left, is_not)
        sign = self._next
        if sign.kind != "sign" or sign.text not in _SIGNS:
            if callable(left):
                read = left
                return lambda fields: read(fields) is True
            raise self._error("one of == != < <= > >= or `in`")
        self._advance()
        return _compared(left, sign.text, self._operand())

    def _member(self, left: "_Operand", is_not: bool) -> _Test:
        self._expect("in")
        if not callable(left):
            raise self._error("a field in front of `in`")
        read = left
        self._expect("(")
        choices = [self._literal()]
        while self._takes(","):
            choices.append(self._literal())
        self._expect(")")

        def test(fields: Fields) -> bool:
            value = read(fields)
            orders = [order_of(value, choice) for choice in choices]
            if is_not:  # false where the field cannot be compared with any
                return any(order is not None for order in orders) and 0 not in orders
            return 0 in orders

        return test

    def _operand(self) -> "_Operand":
        token = self._next
        if token.kind == "name" and token.text not in _WORDS:
            self._advance()
            parts = re.findall(r"`([^`]+)`|([^.`]+)", token.text)
            return self._read(tuple(quoted or plain for quoted, plain in parts))
        return self._literal()

    def _literal(self) -> Literal:
        token = self._next
        value: Literal
        if token.kind == "text":
            unescape = re.compile(r"\\(.)", re.DOTALL)
            value = unescape.sub(lambda m: _ESCAPES.get(m[1], m[1]), token.text[1:-1])
        elif token.kind == "number":
            is_whole = token.text.lstrip("+-").isdigit() and len(token.text) < 1000
            value = int(token.text) if is_whole else Decimal(token.text)
        elif token.kind == "time":
            value = self._moment(token)
        elif token.text in ("true", "false"):
            value = token.text == "true"
        else:
            raise self._error("a field, a number, a text, a time, true or false")
        self._advance()
        return value

    def _moment(self, token: _ConditionToken) -> Moment:
        try:
            moment = datetime.fromisoformat(token.text)
        except ValueError as error:
            raise self._error("a time such as 2026-11-21T10:00Z") from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._zone)
        return Moment(since_1970_ns(moment))

    def _takes(self, text: str) -> bool:
        if self._next.text == text and self._next.kind in ("sign", "name"):
            self._advance()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._error(f"`{text}`")

    def _advance(self) -> None:
        self._next = self._token(self._next.at + len(self._next.text))

    def _token(self, at: int) -> _ConditionToken:
        match = _TOKEN.match(self._text, at)
        if match is None or match.lastgroup is None:
            rest = self._text[at:].lstrip()
            start = len(self._text) - len(rest)
            return _ConditionToken("unknown" if rest else "end", rest[:1], start)
        return _ConditionToken(
            match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)
        )

    def _error(self, wanted: str) -> ValueError:
        token = self._next
        came = "the end" if token.kind == "end" else f"{token.text[:40]!r}"
        return ValueError(f"{wanted} expected at character {token.at + 1}, {came} came")


_Operand = Literal | Callable[[Fields], object]


def _compared(left: _Operand, sign: str, right: _Operand) -> _Test:
    is_fulfilled = _SIGNS[sign]
    if not callable(left) and callable(right):
        left, right = right, left
        is_fulfilled = _SIGNS[_MIRRORED.get(sign, sign)]
    if not callable(left):
        raise ValueError("a field on one side of a comparison expected, two constants came")
    read = left
    if callable(right):
        read_right = right

        def test(fields: Fields) -> bool:
            value, other = read(fields), read_right(fields)
            order = order_of(value, _as_literal(other))
            return order is not None and is_fulfilled(order)

        return test
    literal = right

    def test_literal(fields: Fields) -> bool:
        order = order_of(read(fields), literal)
        return order is not None and is_fulfilled(order)

    return test_literal


def _as_literal(value: object) -> object:
    """A field as the other side of a comparison."""
    if isinstance(value, date | TimeText):
        ns = instant_ns(value)
        return value if ns is None else Moment(ns)
    return value


def order_of(value: object, literal: object) -> int | None:
    """-1, 0 or 1 as the value is less than, equal to or greater than the literal; None where the
    two cannot be compared.

    >>> order_of(0.1, Decimal("0.1")), order_of(Decimal("0.1"), Decimal("0.10")), order_of("1", 1)
    (0, 0, None)
    """
    if isinstance(literal, Moment):
        ns = instant_ns(value)
        return None if ns is None else (ns > literal.ns) - (ns < literal.ns)
    if isinstance(literal, bool) or isinstance(value, bool):
        both = isinstance(literal, bool) and isinstance(value, bool)
        return int(bool(value)) - int(bool(literal)) if both else None
    if isinstance(literal, str):
        text = value.name if isinstance(value, Enum) else value
        is_text = isinstance(text, str) and not isinstance(text, TimeText)
        return (str(text) > literal) - (str(text) < literal) if is_text else None
    if isinstance(literal, int | float | Decimal) and isinstance(value, int | float | Decimal):
        return _number_order(value, literal)
    return None


def _number_order(value: float | Decimal, literal: float | Decimal) -> int | None:
    if value != value or literal != literal:
        return None  # NaN is no number
    if isinstance(value, float) and isinstance(literal, Decimal):
        literal = float(literal)
    elif isinstance(value, Decimal) and isinstance(literal, float):
        value = float(value)
    return (value > literal) - (value < literal)
