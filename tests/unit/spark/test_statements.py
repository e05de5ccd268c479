"""The effects of a statement of SQL on tables, told without Spark."""

import pytest

from cqrepl.spark.statements import Deed, Step, parts_of, steps_of

MAKES = Step(deed=Deed.MAKES, provider="chronicle")


def drops(*name: str, is_in_script: bool = False) -> Step:
    return Step(deed=Deed.DROPS, name=name, is_in_script=is_in_script)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (index bigint) USING chronicle",
        "create or replace table a.t(index bigint)using `Chronicle`",
        "REPLACE TABLE t (index bigint) USING chronicle",
        "CREATE TABLE IF NOT EXISTS `using`.`as` (x int) USING chronicle COMMENT 'path ''x'''",
        "/* a /* nested */ ; comment */ CREATE TABLE t (index bigint COMMENT '--') USING chronicle",
        '-- \'\nCREATE TABLE t (index bigint COMMENT "/*") USING chronicle',
        "CREATE TABLE t (options string, location string) USING chronicle",
        "CREATE TABLE t USING chronicle OPTIONS (paths '[\"path\"]', columns 'path')",
        "CREATE TABLE t USING chronicle OPTIONS (path)",
        "CREATE TABLE t (index bigint) USING chronicle TBLPROPERTIES (path 'x')",
        "CREATE TABLE select (index bigint) USING chronicle",
        "CREATE TABLE IDENTIFIER('a' || 'b') (index bigint) USING chronicle",
        "CREATE TABLE t LIKE u USING chronicle",
        "EXPLAIN CREATE TABLE t (index bigint) USING chronicle",
    ],
)
def test_a_table_without_a_place(statement: str) -> None:
    assert list(steps_of(statement)) == [MAKES]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t USING chronicle OPTIONS (path 'q')",
        "CREATE TABLE t (options int) USING chronicle OPTIONS (from = '0x0', `path` = concat('a'))",
        "CREATE TABLE t (index bigint) USING chronicle LOCATION 'q'",
        "CREATE TABLE t LIKE u LOCATION 'q'",
        "CREATE TABLE t (index bigint) STORED AS parquet",
        "CREATE TEMPORARY VIEW t USING chronicle OPTIONS (paths 'q')",
        "SELECT 'DROP TABLE t', drop FROM t -- DROP TABLE t",
        "SELECT `DROP TABLE t`, replace(a, 'b') /* DROP TABLE t */ FROM u",
        "ALTER TABLE t SET TBLPROPERTIES ('location' = 'q')",
        "DROP DATABASE d RESTRICT",
        "",
        "'",
        "/*",
    ],
)
def test_nothing_to_look_at(statement: str) -> None:
    assert not list(steps_of(statement))


@pytest.mark.parametrize(
    ("statement", "step"),
    [
        ("CREATE TABLE t (x int)", Step(deed=Deed.MAKES)),
        ("CREATE TABLE t AS SELECT * FROM a JOIN b USING (x)", Step(deed=Deed.MAKES)),
        ("CREATE TABLE t (x int) USING csv", Step(deed=Deed.MAKES, provider="csv")),
        ("CREATE TABLE t LIKE a.`b``.c`", Step(deed=Deed.MAKES_LIKE, name=("a", "b`.c"))),
        ("ALTER TABLE d.t PARTITION (a = 1) SET LOCATION 'q'",
         Step(deed=Deed.MOVES, name=("d", "t"))),
        ("DROP TABLE IF EXISTS d . t PURGE", drops("d", "t")),
        ("DROP TABLE IDENTIFIER(:a || ')')", Step(deed=Deed.DROPS, expression=":a || ')'")),
        ("DROP SCHEMA IF EXISTS d CASCADE", Step(deed=Deed.DROPS_ALL, name=("d",))),
        ("EXECUTE IMMEDIATE 'DROP TABLE ' || lower('T') USING 1 AS a",
         Step(deed=Deed.RUNS, expression="'DROP TABLE ' || lower('T')")),
        ("EXECUTE IMMEDIATE a INTO b", Step(deed=Deed.RUNS, expression="a")),
    ],
)  # fmt: skip
def test_one_step(statement: str, step: Step) -> None:
    assert list(steps_of(statement)) == [step]


def test_each_statement_of_a_script() -> None:
    script = """
        BEGIN
            DECLARE a STRING DEFAULT 'x;y';
            CREATE TABLE t (index bigint) USING chronicle;
            IF a = ';' THEN ALTER TABLE t SET LOCATION 'q'; ELSE DROP TABLE t; END IF;
            EXECUTE IMMEDIATE a;
        END
    """
    assert list(steps_of(script)) == [
        MAKES,
        Step(deed=Deed.MOVES, name=("t",), is_in_script=True),
        drops("t", is_in_script=True),
        Step(deed=Deed.RUNS, expression="a", is_in_script=True),
    ]


def test_a_name() -> None:
    assert parts_of("a . `b.``c`") == ("a", "b.`c")
    assert not parts_of("")
