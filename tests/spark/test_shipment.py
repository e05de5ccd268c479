"""Shipped files go beside what the user sends to the executors, and cancel none of it."""

from pathlib import Path

from cqrepl.spark.session import SessionSettings, _conf
from tests.spark.conftest import spark_missing
from tests.support.requirements import require

ARCHIVES = "spark.archives"
PATH = "spark.executorEnv.PYTHONPATH"


def settings_of(folder: Path, **chosen: str) -> dict[str, str]:
    """The settings of a session that ships; names of the user's with `_` for dots."""
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)

    conf = {name.replace("_", "."): value for name, value in chosen.items()}
    return _conf(SessionSettings(conf=conf, ship=True), "test", folder)


def test_archives_of_the_user_go_beside_what_is_shipped(tmp_path: Path) -> None:
    alone = settings_of(tmp_path)[ARCHIVES]
    assert alone == f"{tmp_path}/cqrepl.zip#cqrepl_shipped"
    assert (tmp_path / "cqrepl.zip").exists()
    both = settings_of(tmp_path, spark_archives="data.zip#data,env.tar.gz#env")
    assert both[ARCHIVES] == f"{alone},data.zip#data,env.tar.gz#env"


def test_a_path_of_the_user_goes_behind_what_is_shipped(tmp_path: Path) -> None:
    assert settings_of(tmp_path)[PATH] == "./cqrepl_shipped"
    found = settings_of(tmp_path, spark_executorEnv_PYTHONPATH="/opt/more:./cqrepl_shipped")
    assert found[PATH] == "./cqrepl_shipped:/opt/more"


def test_other_settings_of_the_user_go_before_ours(tmp_path: Path) -> None:
    assert settings_of(tmp_path, spark_sql_session_timeZone="CET")[
        "spark.sql.session.timeZone"
    ] == ("CET")
