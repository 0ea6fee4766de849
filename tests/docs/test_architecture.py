"""What docs/architecture.md says of the house is so: packages, types, the number of forms."""

import importlib
import re

import pytest

from tests.docs.blocks import DOCS

PAGE = (DOCS / "architecture.md").read_text()
ROOT = DOCS.parent
PLACES = re.findall(r"`(nnapi_prof[\w.]*):(\w+)`", PAGE)


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_what_it_names_is_there(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_files_that_it_names_are_there():
    for line in re.findall(r"^\| \{src\}.*", PAGE, re.MULTILINE):
        folders = re.findall(r"\{src\}`([^`]+)`", line.split("|")[1])
        for file in re.findall(r"`(\w[\w/]*(?:\.py|/))`", line.split("|")[3]):
            assert any((ROOT / folder / file).exists() for folder in folders), (folders, file)


def test_every_package_is_a_room():
    packages = {init.parent.name for init in (ROOT / "nnapi_prof").glob("*/__init__.py")}
    rooms = {path.rsplit("/")[-1] for path in re.findall(r"\{src\}`([\w/]+)`", PAGE)}
    assert not packages - rooms


@pytest.mark.parametrize(("heading", "most"), [("weight", 5), ("sample", 8)])
def test_the_ways_are_no_longer_than_they_should_be(heading, most):
    table = PAGE.split(f"## The way of a {heading}")[1].split("\n## ")[0]
    numbers = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(numbers))]
    assert 3 <= len(numbers) <= most
