"""A comparison of two simulated phones, all of it made by the command line, in a browser."""

import re

import pytest

from nnapi_prof.cli import main
from nnapi_prof.execution.report import RunReport
from tests.cli.common import INPUT, TinyNet, trace
from tests.parts import again_but
from tests.reports.browser import VIEWS, visit


def call(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``npu.nnprof`` and ``gpu.nnprof`` of one model, both run, and ``page.html``."""
    result = tmp_path_factory.mktemp("real")
    model = trace(TinyNet(), result / "tiny.pt")
    costs = ("--costs", result / "costs.sqlite")
    for phone in ("npu", "gpu"):
        device = ("--device", f"sim:{phone}-phone")
        named = (*device, "--input", INPUT, *costs)
        pin = ("--pin", "conv2d*=nnapi:sim-npu/fast") if phone == "npu" else ("--no-verify",)
        bundle = result / f"{phone}.nnprof"
        call("profile", *named, "--preference", "fast", model)
        call("partition", *named, *pin, "--output", bundle, model)
        call("run", *device, "--runs", 9, bundle)
    bundles = result / "npu.nnprof", result / "gpu.nnprof"
    call("compare", *costs, "-o", result / "page.html", *bundles)
    return result


def test_the_page_says_what_the_runs_were(folder):
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


@pytest.mark.parametrize("view", again_but(VIEWS, *VIEWS[:2], why="each width and scheme is seen"))
def test_in_a_browser(browser, folder, view):
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
