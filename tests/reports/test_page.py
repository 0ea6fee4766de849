"""The report in a real browser: silent, self-contained, accessible, on a phone and on paper; and a
comparison of two simulated phones, all of it made by the command line."""

import itertools
import re
from dataclasses import replace

import pytest

from nnapi_prof.bundle.deployment import AppRuntime, DeployStep
from nnapi_prof.execution.report import RunReport
from nnapi_prof.reports.data import this_environment
from nnapi_prof.reports.html import render
from tests.cli.common import TinyNet, call, trace, two_phones
from tests.parts import again_but
from tests.reports.browser import VIEWS, visit
from tests.reports.sample import hot, ran_at_once, sample

CAUSE = re.compile(r"fastest: |stays on the CPU|only .* can run|too small to pay")
CONVERT = "nnapi-prof convert --format runtime -o a/b.nnprt a/b.nnprof"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Makes a report as large as MobileNetV2's, with refusals, throttled rounds and a run."""
    data = sample(66, (20, 41), "mobilenet_v2.pt")
    ship = (
        DeployStep(AppRuntime.LIBRARY, CONVERT, None),
        DeployStep(AppRuntime.AAR, "", "an app has no PyTorch"),
    )
    here = this_environment(["/usr/bin/nnapi-prof", "report", "m.nnprof"])
    big = replace(data, measurements=hot(data.measurements), environment=here, ship=ship)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(ran_at_once(big)), encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    return path


@pytest.fixture
def opened(browser, file, request):
    """Parametrised indirectly by (width, scheme)."""
    with visit(browser, file, *request.param) as seen:
        yield seen


VIEWED = again_but(VIEWS, *VIEWS[:2], why="each size and scheme is seen")
on_a_desk = pytest.mark.parametrize("opened", [(1440, "light")], indirect=True)


@pytest.mark.parametrize("opened", VIEWED, indirect=True)
def test_silent_self_contained_accessible_and_as_wide_as_the_screen(opened):
    """And every picture that shows has words and a size."""
    opened.page.wait_for_timeout(50)
    assert opened.text == opened.asked == []
    assert not opened.overflows
    assert opened.violations() == []
    rows = opened.script(r"""
      [...document.querySelectorAll("figure svg[role=img]")]
        .filter((svg) => svg.getClientRects().length)
        .map((svg) => [svg.querySelector(":scope > title")?.textContent ?? "",
                       svg.querySelector(":scope > desc")?.textContent ?? "",
                       svg.clientWidth, svg.clientHeight,
                       /\b(ms|MHz)\b|[×%]|°C/.test(
                         [...svg.querySelectorAll("text")].map((t) => t.textContent).join(" "))])
    """)
    assert len(rows) >= 6
    for title, description, width, height, has_unit in rows:
        assert len(title) > 8 and len(description) > 40, (title, description)
        assert width > 200 and height > 40 and has_unit, title


@pytest.mark.parametrize("opened", [(390, "light")], indirect=True)
def test_on_a_phone_text_is_readable_causes_show_on_tap_and_rows_are_cards(opened):
    sizes = opened.script("""
      [...document.querySelectorAll("figure svg[role=img]")]
        .filter((svg) => svg.getClientRects().length)
        .flatMap((svg) => [...svg.querySelectorAll("text")].map((t) =>
          parseFloat(getComputedStyle(t).fontSize) * svg.clientWidth / svg.viewBox.baseVal.width))
    """)
    assert min(sizes) >= 8.5
    opened.page.locator(".model-picture a[data-unit]").nth(5).tap()
    panel = opened.page.locator(".model-picture .panel")
    assert panel.is_visible() and CAUSE.search(panel.inner_text())
    # Rows are cards with the answer first; what still scrolls can be reached and has a name.
    second = opened.script("""
      ["plan-segments", "baselines-table"].map((name) => {
        const table = document.getElementById(name + "-caption").closest("table");
        return [...table.tBodies[0].rows[0].cells].filter((cell) => cell.offsetHeight)
          .sort((a, b) => a.offsetTop - b.offsetTop)[1].dataset.head;
      })
    """)
    assert second == ["measured ms, simulated"] * 2
    wide = opened.script("""[...document.querySelectorAll("main .scroll:has(.stacked)")]
      .filter((box) => box.scrollWidth > box.clientWidth + 1).length""")
    assert wide == 0
    boxes = opened.script("""
      [...document.querySelectorAll(".scroll")]
        .filter((box) => box.scrollWidth > box.clientWidth + 1)
        .map((box) => [box.tabIndex, box.getAttribute("role"), box.getAttribute("aria-label") ??
          document.getElementById(box.getAttribute("aria-labelledby")).textContent.trim()])
    """)
    assert all(tab == 0 and role in ("group", "region") and name for tab, role, name in boxes)


@on_a_desk
def test_headings_landmarks_and_explanations_are_there_and_a_heading_sorts_both_ways(opened):
    levels = opened.script(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert opened.page.locator(landmark).count() == 1, landmark
    lost = opened.script("""[...document.querySelectorAll("a.term")]
      .map((a) => a.getAttribute("href")).filter((to) => !document.querySelector(to + " dd"))""")
    assert lost == [] and opened.page.locator("a.term").count() > 15
    opened.page.keyboard.press("Tab")
    assert opened.script("document.activeElement.getAttribute('href')") == "#summary"
    # A heading sorts by number, not by text; what is unknown or refused stays last.
    column = """[...document.querySelectorAll("#units table.sortable tbody tr")]
      .map((row) => row.cells[3].dataset.sort).filter((text) => text !== "").map(Number)"""
    head = opened.page.locator("#units table.sortable thead th").nth(3)
    head.locator("button").focus()
    opened.page.keyboard.press("Enter")
    rising = opened.script(column)
    assert head.get_attribute("aria-sort") == "ascending" and rising == sorted(rising)
    opened.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert opened.script(column) == sorted(rising, reverse=True)
    refused = opened.script("""[...document.querySelectorAll("#units tbody tr")].map(
      (row) => row.textContent.includes("refused"))""")
    assert any(refused)


@on_a_desk
def test_causes_show_under_the_pointer_by_keyboard_and_by_search(opened):
    units = opened.page.locator(".model-picture a[data-unit]")
    panel = opened.page.locator(".model-picture .panel")
    assert units.count() == 66 and panel.is_hidden()
    units.nth(3).hover()
    assert panel.is_visible() and CAUSE.search(panel.inner_text())
    opened.page.mouse.move(0, 0)
    assert panel.is_hidden()
    opened.page.locator("a.beyond").focus()
    opened.page.keyboard.press("Tab")
    assert CAUSE.search(panel.inner_text())
    opened.page.keyboard.press("ArrowDown")
    assert "unit 1" in panel.inner_text()
    opened.page.keyboard.press("Escape")
    assert panel.is_hidden()
    # The picture is searched and made larger.
    tools = opened.page.locator(".tools")
    tools.get_by_label("Search units").fill("add 32x56")
    hits = opened.page.locator(".model-picture a.hit").count()
    assert 0 < hits < 20 and tools.inner_text().endswith(f"{hits} of 66 units")
    assert opened.page.locator(".model-picture a.miss").count() == 66 - hits
    opened.page.keyboard.press("Enter")
    assert "add 32x56" in panel.inner_text() and panel.is_visible()
    width = "document.querySelector('.pane > svg').getBoundingClientRect().width"
    before = opened.script(width)
    tools.get_by_label("Larger").click()
    assert opened.script(width) > 1.2 * before
    tools.get_by_label("As it was").click()
    assert opened.script(width) == before


@on_a_desk
def test_printed_it_is_white_whole_and_unrolled(opened):
    opened.page.emulate_media(media="print", color_scheme="dark")
    opened.page.set_viewport_size({"width": 690, "height": 980})  # A4 within its margins
    back, nav = opened.script("""[getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector("nav")).display]""")
    assert back == "rgb(255, 255, 255)" and nav == "none"
    rolled = opened.script("""[...document.querySelectorAll(".scroll")].filter((box) =>
      box.scrollWidth > box.clientWidth + 2 || box.scrollHeight > box.clientHeight + 2)
      .map((box) => box.getAttribute("aria-labelledby"))""")
    assert rolled == []
    assert len(opened.page.pdf(format="A4")) > 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``npu.nnprof`` and ``gpu.nnprof`` of one model, both run, and ``page.html``."""
    result = tmp_path_factory.mktemp("real")
    costs, *bundles = two_phones(trace(TinyNet(), result / "tiny.pt"), result, runs=9)
    call("compare", "--costs", costs, "-o", result / "page.html", *bundles)
    return result


def test_a_comparison_says_what_the_runs_were(folder):
    text = (folder / "page.html").read_text()
    one, two = (
        RunReport.from_json((folder / f"{phone}.nnprof/run.json").read_text()).runs[0].median_ns
        for phone in ("npu", "gpu")
    )
    assert f"The plan takes {two / one:.3f} × as long" in text and "(simulated)" in text
    assert "4 of 5 units run elsewhere." in text
    assert "pinned to nnapi:sim-npu/fast" in text
    assert "driver of sim-npu" in text and "simulated gpu-phone" in text
    figures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(figures) == 4  # two, each in two widths
    for figure in figures:
        assert re.search(r"<title[^>]*>[^<]{10,}</title><desc[^>]*>[^<]{40,}</desc>", figure)
    for section in ("numbers", "latencies"):
        (part,) = re.findall(rf'<section id="{section}".*?</section>', text, flags=re.DOTALL)
        latencies = re.findall(r">([^<]*\d ms\b[^<]*)<", part)
        assert len(latencies) > 1 and all(", simulated" in each for each in latencies)


@pytest.mark.parametrize("view", VIEWED)
def test_a_comparison_in_a_browser(browser, folder, view):
    with visit(browser, folder / "page.html", *view) as seen:
        assert seen.text == seen.asked == seen.violations() == []
        assert not seen.overflows
        for section in ("changed", "numbers", "placement", "conditions"):
            assert seen.page.locator(f"#{section}").is_visible()


def test_what_the_browser_is_asked_can_fail(browser, tmp_path):
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
