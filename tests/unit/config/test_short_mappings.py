"""Lines with short mappings are read apart: nothing comes of that but the time it saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.config import yamltree
from cqrepl.config.errors import ConfigError
from cqrepl.config.shortmappings import FEWEST, without_short_mappings
from cqrepl.config.yamltree import MappingNode, Node, ScalarNode, read_tree

LINE = '  q{}: {{masterId: {}, acknowledge: true, path: "/data/q{}"}}'
MANY = "\n".join(LINE.format(number, 1 + number % 3, number) for number in range(FEWEST))
WORDS = ("a", "1", "x.y", "/p-1", '"q u"', '"#"', "&a 1", "*a", "!t 1", "'s'", "", "null", "a: b")
PAIRS = st.tuples(st.sampled_from(("a", "b_1", "masterId", "é")), st.sampled_from(WORDS))
VALUES = st.lists(PAIRS, max_size=3).map(
    lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
)
LINES = st.one_of(
    st.tuples(st.sampled_from(("  k", "    k", "  - k", " k", "k")), st.integers(0, 9), VALUES).map(
        lambda found: f"{found[0]}{found[1]}: {found[2]}"
    ),
    st.sampled_from(
        ("  text: |", '  open: "', '  "', "  # a", "", "  m:", "  l: [", "  ]", "...", "---", "  }")
    ),
)


def whole(text: str) -> Node | str:
    """The tree of a text, or its error, when no line is read apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamltree, "without_short_mappings", lambda text: (text, {}))
        return told(text)


def told(text: str) -> Node | str:
    try:
        return read_tree(text.encode(), "f")
    except ConfigError as error:
        return str(error)


@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=6), st.booleans())
def test_the_tree_and_the_errors_are_those_of_the_whole_text(
    before: list[str], behind: list[str], has_braces: bool
) -> None:
    many = "".join(f"{line},\n" for line in MANY.splitlines()) if has_braces else f"{MANY}\n"
    text = "\n".join(["queues: {" if has_braces else "queues:", *before, many, *behind])
    text += "\n}" if has_braces else ""
    assert told(text) == whole(text)


def test_many_lines_are_read_apart() -> None:
    """So many lines are read apart; otherwise the comparison above would compare nothing."""
    assert len(without_short_mappings(f"queues:\n{MANY}\n")[1]) == FEWEST
    tree = read_tree(f"queues:\n{MANY}\n".encode(), "f")
    assert isinstance(tree, MappingNode)
    queues = tree.entries[0][1]
    assert isinstance(queues, MappingNode)
    last = queues.entries[-1][1]
    assert isinstance(last, MappingNode)
    path = last.entries[-1][1]
    assert isinstance(path, ScalarNode)
    line = MANY.splitlines()[-1]
    assert (path.spot.line, path.spot.column) == (FEWEST + 1, line.index('"') + 1)
    assert (path.text, path.is_plain) == (f"/data/q{FEWEST - 1}", False)


@pytest.mark.parametrize("text", ["queues: |\n{}\n", 'queues: "\n{}\n"\n', "a:\n{}\nb: {{a: 1\n"])
def test_lines_that_are_part_of_something_else_are_left_as_they_are(text: str) -> None:
    text = text.format(MANY if '"' not in text else MANY.replace('"', ""))
    assert told(text) == whole(text)
    assert "short-mapping" not in repr(told(text))
