"""The page of a comparison: nothing fetched, everything escaped; and in a real browser."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nnapi_prof.reports import compare_page
from nnapi_prof.reports.compare_summary import compared
from nnapi_prof.reports.data import ReportData
from tests.reports.browser import SCHEMES, WIDTHS, Scheme, visit
from tests.reports.sample import NPU, measured_on_hardware, sample
from tests.reports.test_compare import slowed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECTIONS = ["changed", "numbers", "placement", "latencies", "refusals", "conditions", "notes"]


@pytest.fixture(scope="module")
def sides() -> list[tuple[str, ReportData]]:
    """Two that differ in everything that a comparison shows."""
    first = sample(12, (4, 7))
    second = slowed(sample(14, (4,), "other.pt"), NPU[0], 1.4)
    return [("first", first), ("second", second)]


@pytest.fixture(scope="module")
def html(sides: list[tuple[str, ReportData]]) -> str:
    return compare_page.render(sides)


@pytest.fixture(scope="module")
def file(html: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "compare.html"
    path.write_text(html, encoding="utf-8")
    return path


def test_what_changed_stands_first(html: str, sides: list[tuple[str, ReportData]]) -> None:
    assert re.findall(r'<section id="([^"]+)"', html) == SECTIONS
    for sentence in compared(sides).sentences:
        assert sentence.text in html
    assert html.index("takes") < html.index('id="numbers"')


def test_fetches_nothing_and_ids_are_single(html: str) -> None:
    links = re.findall(r'(?:src|href|action)="([^"]*)"', html)
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in html and "url(http" not in html
    ids = Counter(re.findall(r'\bid="([^"]+)"', html))
    assert max(ids.values()) == 1
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_every_figure_has_words_and_units(html: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(figures) == 6  # three, each in two widths
    for figure in figures:
        assert re.search(r"<title[^>]*>[^<]{10,}</title><desc[^>]*>[^<]{40,}</desc>", figure)
    assert "ms, median (hatched: predicted) (simulated)" in html
    assert "units in order (gap: has no such unit)" in html


def test_simulated_is_said_by_side(sides: list[tuple[str, ReportData]]) -> None:
    (_, first), (_, second) = sides
    real = measured_on_hardware(second)
    one = compare_page.render([("a", first), ("b", real)])
    assert "some simulated" in one
    names = re.findall(r"<li><span class=\"swatch\".*?</li>", one)
    assert ["simulated</span>" in name for name in names] == [True, False]
    none = compare_page.render([("a", measured_on_hardware(first)), ("b", real)])
    assert 'class="badge"' not in none


def test_everything_is_escaped(sides: list[tuple[str, ReportData]]) -> None:
    evil = "</td><script>alert(1)</script>\"'&"
    (_, first), (_, second) = sides
    units = tuple(replace(u, label=evil) for u in first.graph.units)
    segments = tuple(replace(s, why=evil) for s in first.plan.segments)
    poisoned = replace(
        first,
        model=evil,
        graph=replace(first.graph, units=units),
        plan=replace(first.plan, segments=segments),
        device_info={evil: evil},
        notes=(evil,),
    )
    text = compare_page.render([(evil, poisoned), ("b", second)])
    assert "<script>alert" not in text and text.count("<script>") == 1
    assert "&lt;/td&gt;&lt;script&gt;" in text


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_in_a_browser(browser: Browser, file: Path, width: int, scheme: Scheme) -> None:
    with visit(browser, file, width, scheme) as seen:
        assert seen.text == [] and seen.asked == []
        assert not seen.overflows
        assert seen.violations() == []
        shown = seen.page.locator("figure svg:visible").count()
        assert shown == 3  # of the two widths one


def test_headings_sort(browser: Browser, file: Path) -> None:
    with visit(browser, file) as seen:
        table = seen.page.locator("#latencies table.sortable")
        head = table.locator("thead th").nth(4)
        ratios = "(t) => [...t.tBodies[0].rows].map((row) => row.cells[4].dataset.sort)"
        head.locator("button").click()
        up = [float(text) for text in table.evaluate(ratios) if text]
        assert len(up) > 3 and up == sorted(up) and head.get_attribute("aria-sort") == "ascending"
        head.locator("button").click()
        down = table.evaluate(ratios)
        assert [float(text) for text in down if text] == sorted(up, reverse=True)
        assert down[len(up) :] == [""] * (len(down) - len(up))  # what has no ratio stands last


def test_what_the_browser_is_asked_can_fail(browser: Browser, tmp_path: Path) -> None:
    """A page with every fault that the tests above look for."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<!DOCTYPE html><html><body><img src='http://127.0.0.1:9/x.png'><script>boom()</script>"
        "<p style='color:#ccc;width:3000px'>pale</p></body></html>"
    )
    with visit(browser, path) as seen:
        assert any("boom" in words for words in seen.text)
        assert seen.asked == ["http://127.0.0.1:9/x.png"]
        assert seen.overflows
        result = " ".join(seen.violations())
        assert "color-contrast" in result and "image-alt" in result
