"""Mistakes in typed data."""

from typing import Final

from tests.planted.plantedmistake import Planted

TYPED_ROWS: Final = (
    Planted(
        name="null-in-a-list-read-again",
        room="wire/objects",
        file="annotated.py",
        text="""\
        value.position += 1
        return None
""",
        wrong="""\
        value.position += 2
        return None
""",
        tests=("tests/unit/wire/test_messages.py",),
    ),
    Planted(
        name="absent-field-fulfils",
        room="typed",
        file="condition.py",
        text="return order is not None and is_fulfilled(order)\n\n    return test_literal",
        wrong="return order is None or is_fulfilled(order)\n\n    return test_literal",
        tests=("tests/unit/typed/test_condition.py",),
    ),
    Planted(
        name="misfit-not-counted",
        room="arrow",
        file="typedrows.py",
        text="        self.misfits += 1\n",
        wrong="        self.misfits += 0\n",
        tests=("tests/unit/test_typed_arrow.py",),
    ),
    Planted(
        name="unusual-row-left-out",
        room="arrow",
        file="typedrows.py",
        text="yield self._plain_batch(columns, row, row + 1)",
        wrong="yield self._plain_batch(columns, row, row)",
        tests=("tests/unit/test_typed_arrow.py",),
    ),
    Planted(
        name="export-begins-at-a-part",
        room="commands",
        file="queueexport.py",
        text="begin = options.index_first if manifest.next_index is None else manifest.next_index",
        wrong="begin = options.index_first",
        tests=("tests/unit/cli/test_export_import.py",),
    ),
    Planted(
        name="import-looks-for-no-rows",
        room="commands",
        file="rowimport.py",
        text="there = 0 if begun is None else found_behind(queue, begun, block)",
        wrong="there = 0",
        tests=("tests/unit/cli/test_export_import.py",),
    ),
    Planted(
        name="index-bound-too-high",
        room="frames",
        file="frames.py",
        text='"Gt": (value + 1, greatest),',
        wrong='"Gt": (value + 2, greatest),',
        tests=("tests/unit/test_frames.py",),
    ),
    Planted(
        name="error-without-its-index",
        room="queue/read",
        file="typeddocuments.py",
        text="told = error.at(excerpt.index)",
        wrong="told = error",
        tests=("tests/unit/queue/test_typed_documents.py",),
    ),
)
