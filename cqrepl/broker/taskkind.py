"""The conversation of a task board and its clients, under `/tasks/BOARD`.

A client asks: `submit`, `show`, `list`, `workers`; a worker says `join`, `finish`, `fail`, `leave`
and, to be heard of, `beat`. Each has a number (`ask`), which the answer repeats. To a worker that
has joined the board sends `work` unasked. A host that does not lead answers `refused`, with who
does.
"""

from typing import Final, TypeAlias

from cqrepl.broker.fields import MESSAGE_MAX, TaskWords, decode
from cqrepl.service.servicehalf import ConversationKind, Decoder, Half

TASKS_CAPABILITY: Final = "tasks"
CSP_PREFIX: Final = "/tasks/"
ASKS_MAX: Final = 1024  # of one client, that are not answered yet
DECODER: Final = Decoder(decode, MESSAGE_MAX)
TaskHalf: TypeAlias = Half[TaskWords]


def task_kind(*, is_asked: bool) -> ConversationKind[TaskWords]:
    """The row of the handler table; a client's is not asked."""
    return ConversationKind("!TasksHandler", TASKS_CAPABILITY, DECODER, is_asked=is_asked)
