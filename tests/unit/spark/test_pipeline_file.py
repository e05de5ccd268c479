"""The file of a pipeline: what it says, and a line with its place for what it must not."""

from pathlib import Path

import pytest

from cqrepl.config.errors import ConfigError
from cqrepl.spark.pipelinefile import TypedView, read_pipeline

WHOLE = """
pipeline:
  state: /data/state
  queues:
    /data/queues/*: {copies: ["/backup/{name}"], archive: "/archive/{name}", release: true}
    /data/one: {}
  tables:
    sizes: {sql: "select index from queues", to: parquet, path: /lake/sizes}
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    plan = read_pipeline(written(tmp_path / "p.yaml", WHOLE))
    many, one = plan.queues
    assert plan.state == Path("/data/state")
    assert many.copies_of("eu/orders") == [Path("/backup/eu/orders")]
    assert many.archive_of("eu") == "/archive/eu"
    assert many.release
    assert (one.copies_of("x"), one.archive_of("x"), one.release) == ([], None, False)
    assert [(each.name, each.to) for each in plan.tables] == [("sizes", "parquet")]
    assert one.typed is None
    text = WHOLE.replace("one: {}", "one: {schema: o.json, event: order}")
    assert read_pipeline(written(tmp_path / "p.yaml", text)).queues[1].typed == TypedView(
        name="typed", schema="o.json", event="order"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("state: /data/state", "state: s3://b/state", "3:10: expected a directory on a local or"),
        ("  state: /data/state\n", "", "3:3: expected an entry state, found none"),
        ("release: true", "release: yes", "expected true or false, found yes"),
        ('archive: "/archive/{name}", ', "", "expected an archive beside it"),
        ("/archive/{name}", "/archive", r"expected a path with {name}, as /data/queues/\*"),
        ('["/backup/{name}"]', "/backup", "expected a list of directories"),
        ("one: {}", "one: {view: a}", "expected a schema beside it"),
        ("one: {}", "one: {schema: o, view: A B}", "expected a name of letters, digits and _"),
        ("one: {}", "one: {schema: o, view: queues}", "a view of its own for each schema"),
        ("to: parquet", "to: delta", "expected queue or parquet, found delta"),
        ("sizes:", "a/b:", "expected a name of letters, digits, - and _, found a/b"),
        ("sql:", "sequel:", "expected one of sql, to, path, rollCycle, schema, found sequel"),
        ("pipeline:", "pipe:", "2:1: expected one of pipeline, found pipe"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=told) as raised:
        read_pipeline(written(tmp_path / "p.yaml", WHOLE.replace(old, new)))
    assert str(raised.value).startswith(f"{tmp_path / 'p.yaml'}:")
