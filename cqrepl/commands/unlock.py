"""Frees locks one by one, and says of each what became of it."""

from pathlib import Path

import click

from cqrepl.console import exitcodes, output
from cqrepl.queue.files.locks import free_lock
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.inspection.overview import LockState, inspect_queue
from wire.text.terminal import one_line


def print_unlocked(path: Path, *, is_applied: bool, force: bool, asks: bool, as_json: bool) -> int:
    """Frees what may be freed; exits 5 if a lock was to be freed and was not."""
    code = exitcodes.OK
    for lock in inspect_queue(path).locks:
        done = "free"
        if lock.holder is not None:
            done = "held"
            if is_applied and (not lock.is_alive or (force and _is_sure(path, lock, asks))):
                done = (
                    "freed"
                    if free_lock(path / FILE_NAME, lock.name, lock.holder)
                    else "changed hands"
                )
            if is_applied and done != "freed":
                code = exitcodes.REFUSED
        output.write_text(_json(lock, done) if as_json else f"{one_line(_text(lock, done))}\n")
    output.flush()
    return code


def _is_sure(path: Path, lock: LockState, asks: bool) -> bool:
    question = f"{path}: process {lock.holder} is alive and holds {lock.name}. Take it away?"
    return not asks or click.confirm(question, err=True)


def _text(lock: LockState, done: str) -> str:
    if lock.holder is None:
        return f"{lock.name}  free"
    state = "is alive" if lock.is_alive else "is dead"
    said = {"held": "left as it is", "freed": "freed", "changed hands": "changed hands meanwhile"}
    return f"{lock.name}  held by process {lock.holder}, which {state}: {said[done]}"


def _json(lock: LockState, done: str) -> str:
    fields = {"v": 1, "name": lock.name, "holder": lock.holder, "is_alive": lock.is_alive}
    return output.json_line(fields | {"is_freed": done == "freed"})
