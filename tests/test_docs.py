"""The pages of `docs`: what they name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GLOSSARY = ROOT / "docs" / "glossary.md"


def tables(page: Path) -> list[list[list[str]]]:
    """The rows of each table of a page, without its head."""
    found = re.findall(r"^\| [^\n]*\n\| ---[^\n]*\n((?:\|[^\n]*\n)+)", page.read_text(), re.M)
    return [[line.strip("|").split(" | ") for line in rows.splitlines()] for rows in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_headings(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in link:
            there = page.parent / link if link else page
            assert anchor in anchors(there), f"{page.name}: {link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """By their paths from the root, or within the package or the crate."""
    roots = (ROOT, ROOT / "cqrepl", ROOT / "native" / "kernel" / "src")
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|rs))`", page.read_text()):
        assert any((root / name).exists() for root in roots), f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_list_of_sections_has_all_of_them(page: Path) -> None:
    text = page.read_text()
    listed = re.findall(r"^\* \[(.+)\]\(#.+\)$", text, re.MULTILINE)
    if listed:
        assert listed == re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_each_check_that_is_named_for_a_promise_is_one_of_the_laboratory() -> None:
    checks = {row[0].strip() for rows in tables(ROOT / "docs" / "laboratory.md") for row in rows}
    for rows in tables(ROOT / "docs" / "promises.md"):
        for promise, tests, named in rows:
            assert "`tests/" in tests, promise
            for check in re.findall(r"`\w+`", named):
                assert check in checks, f"{promise.strip()}: {check}"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_each_word_stands_once_and_in_order() -> None:
    words = [[row[0].strip() for row in rows] for rows in tables(GLOSSARY)]
    assert len(words) == GLOSSARY.read_text().count("## ") >= 5
    for each in words:
        assert each == sorted(each, key=lambda word: re.sub("[`-]", "", word).lower())
    every = [word for each in words for word in each]
    assert len(every) == len(set(every))


def test_each_word_is_explained_and_lives_somewhere() -> None:
    *located, terms, later = tables(GLOSSARY)
    for row in (row for rows in located for row in rows):
        word, meaning, places = row
        assert meaning.endswith((".", "Java")), word
        found = re.findall(r"`([^`]+)`", places)
        assert found or places.strip() == "everywhere", word
        assert all((ROOT / place).exists() for place in found), word
    assert all(len(row) == 2 and row[1].rstrip(" ").endswith(".") for row in terms + later)
