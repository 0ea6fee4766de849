"""The documentation's pictures are those that its script draws today, and can be read aloud."""

import re
import sys
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import DOCS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    sys.path.insert(0, str(DOCS / "figures"))
    try:
        import draw

        return draw.pictures()
    finally:
        sys.path.remove(str(DOCS / "figures"))


def test_pictures_are_current(drawn):
    files = {path.name: path.read_text() for path in (DOCS / "figures").glob("*.svg")}
    assert files == drawn, "run python docs/figures/draw.py"


def test_every_picture_says_what_it_shows(drawn):
    for text in drawn.values():
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        assert len(root.findtext(f"{SVG}title", "")) > 5
        assert len(root.findtext(f"{SVG}desc", "").split()) > 15


def test_every_picture_is_shown_with_words_in_its_place(drawn):
    pages = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    for name in drawn:
        assert re.search(rf"figures/{name}\n:alt: .{{60,}}", pages), name


def test_latencies_in_pictures_are_labelled(drawn):
    for name, text in drawn.items():
        if re.search(r"\d ms", text):
            assert "stimated" in text, name
