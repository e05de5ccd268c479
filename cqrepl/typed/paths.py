"""Paths of fields, as commands and options name them: `order.px`."""


def parse_paths(text: str) -> tuple[tuple[str, ...], ...]:
    """The paths of a list such as `symbol,order.px`.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    paths = tuple(tuple(each.strip().split(".")) for each in text.split(","))
    if not all(name for path in paths for name in path):
        raise ValueError(f"names of fields such as symbol,order.px expected, {text!r} came")
    return paths
