"""The time as the native kernel takes it, where it is not the machine's."""

from cqrepl.kernel import choose


def give_time(monotonic_ns: int, wall_ms: int) -> None:
    """From now on it is that time; nothing with the plain kernel, which is told the time."""
    if choose.KERNEL.give_time is not None:
        choose.KERNEL.give_time((monotonic_ns, wall_ms))


def give_back_time() -> None:
    """It is the machine's time again."""
    if choose.KERNEL.give_time is not None:
        choose.KERNEL.give_time(None)
