"""Draws the picture of the README: the way of an excerpt from one host to another.

    python -m tools.picture      writes docs/overview.svg; `make docs` calls it

Boxes stand on a grid and arrows join their edges, so a change is a line in a table below. Colours
are chosen to be read on a white and on a dark page.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "overview.svg"
WIDTH: Final = 920
HEIGHT: Final = 330
FONT: Final = "font-family='system-ui, sans-serif'"


class Box(NamedTuple):
    """A box at (x, y), with a title and a line below it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    text: str
    fill: str


class Arrow(NamedTuple):
    """A line from one point to another with a head at its end, and a word beside it."""

    start: tuple[int, int]
    end: tuple[int, int]
    word: str
    word_at: tuple[int, int]
    is_dashed: bool = False


QUEUE: Final = "#ffe8b8"
PROCESS: Final = "#cfe3ff"
PROGRAM: Final = "#e3e3e3"

HOSTS: Final = (
    ("source host", 10, 10, 350, 310),
    ("sink host", 560, 10, 350, 145),
    ("another sink host", 560, 175, 350, 145),
)
BOXES: Final = (
    Box(30, 55, 130, 60, "your programs", "Java or Python", PROGRAM),
    Box(30, 220, 130, 70, "queue", "mapped files .cq4", QUEUE),
    Box(220, 130, 120, 70, "cqrepl source", "tails the queue", PROCESS),
    Box(580, 55, 110, 70, "cqrepl sink", "appends", PROCESS),
    Box(780, 55, 110, 70, "copy", "same indexes", QUEUE),
    Box(580, 220, 110, 70, "cqrepl sink", "appends", PROCESS),
    Box(780, 220, 110, 70, "copy", "same indexes", QUEUE),
)
ARROWS: Final = (
    Arrow((95, 115), (95, 218), "append", (103, 172)),
    Arrow((160, 240), (219, 190), "excerpts", (172, 250)),
    Arrow((340, 145), (578, 78), "excerpts, over TCP", (380, 92)),
    Arrow((578, 108), (342, 168), "acknowledgements", (412, 166), True),
    Arrow((340, 178), (578, 245), "", (0, 0)),
    Arrow((578, 268), (342, 194), "what the source lost", (375, 266), True),
    Arrow((690, 90), (778, 90), "", (0, 0)),
    Arrow((690, 255), (778, 255), "", (0, 0)),
)


def picture() -> str:
    """The picture as SVG."""
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' {FONT}"
        " font-size='14'>",
        "<title>A source streams the excerpts of a queue to sinks, which acknowledge them</title>",
        "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7'"
        " markerHeight='7' orient='auto'><path d='M0 0L10 5L0 10z' fill='#777'/></marker></defs>",
    ]
    for name, x, y, width, height in HOSTS:
        lines.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='10' fill='none'"
            " stroke='#999' stroke-dasharray='5 4'/>"
        )
        lines.append(f"<text x='{x + 14}' y='{y + 24}' fill='#777'>{escape(name)}</text>")
    for box in BOXES:
        middle = box.x + box.width // 2
        lines.append(
            f"<rect x='{box.x}' y='{box.y}' width='{box.width}' height='{box.height}' rx='6'"
            f" fill='{box.fill}' stroke='#777'/>"
        )
        for text, down, weight in ((box.title, -4, "bold"), (box.text, 16, "normal")):
            lines.append(
                f"<text x='{middle}' y='{box.y + box.height // 2 + down}' text-anchor='middle'"
                f" font-weight='{weight}' fill='#222'>{escape(text)}</text>"
            )
    for arrow in ARROWS:
        (x1, y1), (x2, y2) = arrow.start, arrow.end
        dashes = " stroke-dasharray='6 4'" if arrow.is_dashed else ""
        lines.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#777' stroke-width='1.5'"
            f" marker-end='url(#head)'{dashes}/>"
        )
        if arrow.word:
            x, y = arrow.word_at
            lines.append(f"<text x='{x}' y='{y}' fill='#777'>{escape(arrow.word)}</text>")
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    """Writes the picture; the exit code."""
    PICTURE.write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
