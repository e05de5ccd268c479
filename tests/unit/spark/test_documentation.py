"""docs/spark.md names every option, and no other."""

import re
from pathlib import Path

from cqrepl.spark import tableoptions

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_every_option_is_documented() -> None:
    known = {
        *tableoptions._READING,
        *tableoptions._BATCH,
        *tableoptions._STREAMING,
        *tableoptions._WRITING,
    }
    tables = PAGE.read_text().partition("## Options of reading")[2]
    rows = re.findall(r"^\| (`.*?) \|", tables, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == known
