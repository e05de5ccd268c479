"""Times and sizes as people write them."""

import pytest

from cqrepl.console.units import format_bytes, parse_size, parse_time_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("500ms", 500), ("20s", 20_000), ("1m", 60_000), ("2h", 7_200_000), ("1.5s", 1500)),
        ("5d", 432_000_000),
        *(("0s", 0), ("0.4ms", 0), ("0.25h", 900_000), ("999999999h", 3_599_999_996_400_000)),
    ],
)
def test_time(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20",
        "s",
        "-1s",
        "+1s",
        "1 s",
        "1S",
        ".5s",
        "1.s",
        "1s ",
        "1w",
        "\u0661s",
        "1e3s",
        f"{10**400}s",
    ],
)
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="a time such as"):
        parse_time_ms(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("0", 0), ("65536", 65536), ("7B", 7), ("1KiB", 1024), ("16MiB", 16 << 20)),
        *(("2GiB", 2 << 30), ("1kB", 1000), ("1MB", 10**6), ("3GB", 3 * 10**9)),
    ],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "1.5MiB", "1 MiB", "1mib", "1K", "1KB", "0x10", "1TiB", "\u0661", "9" * 16],
)
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.23 kB"), (999_400, "999 kB")),
        *((256_000_000, "256 MB"), (1.5e9, "1.5 GB"), (2.5e12, "2.50 TB")),
    ],
)
def test_bytes_with_three_digits(count: float, text: str) -> None:
    assert format_bytes(count) == text
