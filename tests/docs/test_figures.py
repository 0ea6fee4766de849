"""Pictures and figures of the documentation are those that their scripts write."""

import re
import tomllib
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import DOCS, REPO
from tests.parts import script

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / "figures")
        return script(DOCS / "figures" / "draw.py").pictures()


def test_pictures_are_current(drawn):
    files = {path.name: path.read_text() for path in (DOCS / "figures").glob("*.svg")}
    assert files == drawn, "run python docs/figures/draw.py"


def test_every_picture_says_what_it_shows_and_where_latencies_are_from(drawn):
    pages = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    for name, text in drawn.items():
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        assert len(root.findtext(f"{SVG}title", "")) > 5
        assert len(root.findtext(f"{SVG}desc", "").split()) > 15

        assert re.search(rf"figures/{name}\n:alt: .{{60,}}", pages), name
        assert "stimated" in text or not re.search(r"\d ms", text), name


@pytest.fixture(scope="module")
def figures():
    return script(REPO / "benchmarks" / "figures.py")


def test_figures_are_current(figures):
    assert figures.page() == figures.PAGE.read_text(), "run python benchmarks/figures.py"


def test_figures_name_command_commit_and_machine(figures):
    index = tomllib.loads((figures.RESULTS / "index.toml").read_text())["table"]
    shown = {table["file"] for table in index} | {"single.csv"}
    assert shown == {path.name for path in figures.RESULTS.glob("*.csv")}
    for entry in [*index, *figures.read("single.csv")]:
        assert re.fullmatch(r"[0-9a-f]{7,}", entry["commit"])
        assert len(entry["machine"]) > 8
        assert re.search("measured|simulated|predicted|estimated", entry["label"])
        named = re.findall(r"(?:benchmarks|tests)/\S+\.py", entry["command"])
        named += [
            f"{name.replace('.', '/')}.py"
            for name in re.findall(r"-m (tests\S+)", entry["command"])
        ]
        assert all((REPO / name).is_file() for name in named), entry["command"]


def test_no_table_of_figures_is_wide(figures):
    with pytest.raises(ValueError, match="9 columns"):
        figures.markdown(["column"] * 9, [])
