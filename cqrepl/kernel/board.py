"""Boards: how far each host is with one queue, at each level; threads and tasks wait for that.

Theory of operation. A source has one bell, and a board for each of its queues; a board has a row of
marks for each host. The native pump of a connection raises a mark the moment it takes an
acknowledgement, in its own thread and without the interpreter; what Python learns it raises the
same way. A thread waits at the board itself, and sleeps on a word of its own (a futex); for a task
the board rings the bell, an event descriptor that the event loop waits for.

    who raises                      who waits
    mark = max(mark, index)         waiting = waiting + 1
    look at waiting                 look at the marks

All four are sequentially consistent, so one of the two sees the other, and a mark costs no system
call while nothing waits.
"""

from cqrepl.kernel import choose
from cqrepl.kernel.interface import AckLevel as AckLevel
from cqrepl.kernel.interface import LoopBell as LoopBell
from cqrepl.kernel.interface import MarkBoard as MarkBoard
from cqrepl.kernel.interface import MarkRow as MarkRow
from cqrepl.kernel.interface import Waited as Waited


def new_bell() -> LoopBell:
    """A bell that has not rung, of the kernel in use.

    Raises:
        OSError: no descriptor can be had.
    """
    return choose.KERNEL.Bell()
