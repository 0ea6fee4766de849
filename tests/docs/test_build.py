"""The documentation builds without a warning, and needs nothing from elsewhere."""

import re
import subprocess

import pytest

from nnapi_prof.cli import commands
from tests import warm
from tests.docs.blocks import DOCS, REPO, pages
from tests.reports.browser import Parsed

EXTERNAL = re.compile(r"https?://[a-z0-9.-]+\.[a-z]{2,}(:\d+)?(/[^\s<>\"]*)?")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages, by ``make docs``' own options."""
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", str(out / "trees")]
    command = [*warm.python(), "-m", "sphinx", *options, str(DOCS), str(out / "html")]
    built = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return out / "html"


@pytest.fixture(scope="module")
def built(site):
    return {p.relative_to(site).as_posix(): Parsed(p.read_text()) for p in site.rglob("*.html")}


def values(page, attribute, *tags):
    """Returns the values of an attribute in a page's elements, where it has any."""
    elements = (each for tag in tags for each in page.tags.get(tag, ()))
    return [value for each in elements if (value := each.get(attribute))]


def test_every_page_is_there(built):
    expected = {p.relative_to(DOCS).with_suffix(".html").as_posix() for p in DOCS.rglob("*.md")}
    assert expected <= set(built)
    assert len(expected) > 20


def test_nothing_is_loaded_from_elsewhere(site, built):
    for page in built.values():
        loads = values(page, "src", "script", "img", "iframe", "source")
        loads += values(page, "href", "link")
        assert [one for one in loads if re.match(r"(https?:)?//", one)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text())


def test_links_lead_somewhere(site, built):
    anchors = {name: page.ids for name, page in built.items()}
    for name, page in built.items():
        for link in values(page, "href", "a"):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                assert EXTERNAL.fullmatch(link), f"{name}: {link}"
                continue
            path = (site / name).parent.joinpath(target).resolve() if target else site / name
            assert path.is_file(), f"{name}: {link}"
            inside = path.relative_to(site.resolve() if target else site).as_posix()
            if anchor and inside in built:
                assert anchor in anchors[inside], f"{name}: {link}"


def test_pictures_have_words(built):
    for name, page in built.items():
        assert len(values(page, "alt", "img")) == len(page.tags.get("img", ())), name


def test_every_command_is_on_the_reference_page(site):
    text = (site / "reference" / "commands.html").read_text()
    for command in commands():
        assert f'id="command-{command}"' in text
    for option in ("--device", "--every-preference", "--max-compile-ms", "--json"):
        assert f">{option}" in text


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_files_that_a_page_links_to_are_there(page):
    text = re.sub(r"```.*?```", "", page.path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if re.match(r"https?:", target):
            assert EXTERNAL.fullmatch(target), target
        else:
            assert (page.path.parent / target).exists(), target
