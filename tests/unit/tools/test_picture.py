"""The picture of the README is what its script draws."""

from xml.etree import ElementTree

from tools.picture import PICTURE, picture


def test_the_page_shows_what_the_script_draws() -> None:
    assert PICTURE.read_text() == picture()
    ElementTree.fromstring(picture())
