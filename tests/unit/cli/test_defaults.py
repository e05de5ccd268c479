"""The defaults that the flags show are those of the settings."""

import click
import pytest

from cqrepl.cli.append import append
from cqrepl.cli.main import cli
from cqrepl.cli.sink import sink
from cqrepl.cli.source import source
from cqrepl.replicator.settings import SinkSettings, SourceSettings, host_settings


def above(command: click.Command) -> click.Context:
    """A command keeps the names of its help option as it first finds them: below `cqrepl`."""
    assert command.name is not None
    return cli.make_context("cqrepl", [command.name])


def shown(command: click.Command) -> dict[str, object]:
    """Each option as the command gets it when nothing is said."""
    return command.make_context("cqrepl", ["queue"], above(command)).params


@pytest.mark.parametrize(
    ("command", "ids"), [(source, (1, 2)), (sink, (2, 1))], ids=["source", "sink"]
)
def test_flags_show_the_defaults_of_the_settings(
    command: click.Command, ids: tuple[int, int]
) -> None:
    flags = shown(command)
    tree = host_settings(*ids, connect="127.0.0.1:1")
    assert flags["host_id"] == tree.protocol.host_id
    text = command.get_help(click.Context(command, above(command)))
    assert f"expects {min(tree.protocol.remote_ids)}" in text
    assert flags["heartbeat_interval"] == tree.protocol.heartbeat.interval_ms
    assert flags["heartbeat_timeout"] == tree.protocol.heartbeat.timeout_ms
    assert flags["max_excerpt"] == tree.protocol.payload_max
    assert flags["wire_shape"] == tree.protocol.shape.value
    assert flags["runs"] == tree.protocol.runs


def test_flags_of_one_side_show_the_defaults_of_its_settings() -> None:
    flags = shown(source)
    assert flags["pauser"] == host_settings(1, 2, listen="h:1").net.pausing.name.lower()
    assert flags["no_ack"] is not SourceSettings().acknowledge
    flags = shown(sink)
    assert flags["roll_cycle"] == SinkSettings().roll_cycle
    assert flags["touch_ahead"] == SinkSettings().touch_ahead_bytes


@pytest.mark.parametrize(
    ("command", "options"),
    [(source, ["-q", "-v"]), (sink, ["--verbose", "--quiet"]), (append, ["--lines", "--whole"])],
)
def test_options_that_say_the_same_thing_otherwise_are_refused(
    command: click.Command, options: list[str]
) -> None:
    with pytest.raises(click.UsageError, match=r"one of --.*, --.* expected, all came"):
        command.make_context("cqrepl", ["queue", *options], above(command))
    command.make_context("cqrepl", ["queue", options[0], options[0]], above(command))
