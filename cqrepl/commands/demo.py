"""Runs the demonstrations; the exit code says whether the copy was identical, or the cluster lost
nothing."""

from pathlib import Path

from cqrepl.clusterdemo import run_cluster
from cqrepl.commands.sparkjob import missing
from cqrepl.console import exitcodes
from cqrepl.console.endings import ended_as_by_ctrl_c
from cqrepl.demo import check_empty, run
from cqrepl.fixdemo import run_fix
from cqrepl.griddemo import run_grid
from cqrepl.persistdemo import run_persist
from cqrepl.pipelinedemo import run_pipeline_demo as run_pipeline
from cqrepl.typeddemo import run_typed


def run_demo(count: int, size: int, keep: Path | None, *, as_json: bool) -> int:
    """Replicates, compares and prints the result; the exit code."""
    with ended_as_by_ctrl_c():
        same = run(count, size, keep, as_json=as_json)
    return exitcodes.OK if same else exitcodes.STOPPED


def run_cluster_demo(seconds: float, keep: Path | None, *, as_json: bool) -> int:
    """Has three hosts lead a board of tasks through a kill and a freeze; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
    """
    check_empty(keep)
    with ended_as_by_ctrl_c():
        is_right = run_cluster(seconds, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED


def run_persist_demo(seconds: float, keep: Path | None, *, as_json: bool) -> int:
    """Has three hosts keep sequences while the one that leads is killed; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
    """
    check_empty(keep)
    with ended_as_by_ctrl_c():
        is_right = run_persist(seconds, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED


def run_grid_demo(rows: int, seconds: float, keep: Path | None, *, as_json: bool) -> int:
    """Has three hosts load maps and move money while primaries are killed; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
    """
    check_empty(keep)
    with ended_as_by_ctrl_c():
        is_right = run_grid(rows, seconds, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED


def run_pipeline_demo(rows: int, keep: Path | None, *, as_json: bool) -> int:
    """Has a pipeline of Spark killed and begun again over replicated queues; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
        BadArguments: there is no Spark, or no Java for it.
    """
    check_empty(keep)
    try:
        import pyspark
    except ImportError as error:
        raise missing(error) from error
    assert pyspark.__version__
    from cqrepl.spark.java import find_java

    find_java()
    with ended_as_by_ctrl_c():
        is_right = run_pipeline(rows, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED


def run_fix_demo(seconds: float, jars: Path, keep: Path | None, *, as_json: bool) -> int:
    """Has two engines of QuickFIX/J go on while hosts are killed; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
        BadArguments: there is no such engine.
    """
    check_empty(keep)
    with ended_as_by_ctrl_c():
        is_right = run_fix(seconds, jars, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED


def run_typed_demo(rows: int, jars: Path | None, keep: Path | None, *, as_json: bool) -> int:
    """Reads the orders of a Java service, and has a method reader take signals; the exit code.

    Raises:
        NotAQueue: `keep` is there and not empty.
        BadArguments: there is no such Java service.
    """
    check_empty(keep)
    with ended_as_by_ctrl_c():
        is_right = run_typed(rows, jars, keep, as_json=as_json)
    return exitcodes.OK if is_right else exitcodes.STOPPED
