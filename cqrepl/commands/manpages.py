"""Manual pages of all commands, from the options that they have."""

from collections.abc import Iterator
from pathlib import Path

import click

from cqrepl._version import VERSION
from cqrepl.console import exitcodes, output


def write_pages(root: click.Command, directory: Path) -> int:
    """Writes a page for each command; the exit code.

    Raises:
        OSError: one cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for context in _contexts(root, None, "cqrepl"):
        name = context.command_path.replace(" ", "-")
        (directory / f"{name}.1").write_text(page_of(context))
        count += 1
    output.write_text(f"{directory}: {count} pages\n")
    output.flush()
    return exitcodes.OK


def _contexts(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent)
    yield context
    if isinstance(command, click.Group):
        for each in sorted(command.commands):
            yield from _contexts(command.commands[each], context, each)


def page_of(context: click.Context) -> str:
    """The page of one command, as roff."""
    command, name = context.command, context.command_path
    lines = [f'.TH "{name.upper().replace(" ", "-")}" 1 "" "cqrepl {VERSION}"', ".SH NAME"]
    lines.append(f"{_text(name.replace(' ', '-'))} \\- {_text(command.get_short_help_str(200))}")
    pieces = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B {_text(name)}", _text(pieces), ".SH DESCRIPTION"]
    for paragraph in (command.help or "").replace("\b", "").strip().split("\n\n"):
        lines += [".PP", _text(" ".join(paragraph.split()))]
    records = [each.get_help_record(context) for each in command.get_params(context)]
    options = [each for each in records if each is not None]
    if options:
        lines.append(".SH OPTIONS")
    for term, says in options:
        lines += [".TP", f"\\fB{_text(term)}\\fR", _text(says)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each, sub in sorted(command.commands.items()):
            lines += [".TP", f"\\fB{_text(each)}\\fR", _text(sub.get_short_help_str(200))]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("-", "\\-").replace("\n", " ")
    return f"\\&{text}" if text.startswith((".", "'")) else text
