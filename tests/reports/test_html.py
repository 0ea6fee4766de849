"""The report as a browser sees it: parsed, self-contained, escaped."""

import re
from dataclasses import replace

import pytest

from nnapi_prof.bundle.deployment import AppRuntime, DeployStep
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import HOST
from nnapi_prof.partition import baselines, make_problem
from nnapi_prof.reports import html as pages
from nnapi_prof.reports import markdown, sections
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.html import beside, render
from nnapi_prof.reports.sections import Section, filled_sections
from tests.partition.cases import solve
from tests.reports.browser import Parsed
from tests.reports.sample import cnn, measure, measured_on_hardware, poisoned, sample

SECTIONS = [
    "summary", "plan", "baselines", "units", "preferences", "refusals", "transfers", "accuracy",
    "history", "model", "environment", "method", "notes", "glossary",
]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return replace(sample(10, (4,)), every_preference=True)


@pytest.fixture(scope="module")
def html(data):
    return render(data)


def test_has_every_section_nests_and_fetches_nothing(html):
    page = Parsed(html)
    assert [*page.words] == ["", *SECTIONS] and len(page.tags["html"]) == 1
    # Of one segment there are none to compare, and there is no history without clocks.
    assert len(page.tags["figure"]) == 6
    assert len(page.tags["caption"]) == len(page.tags["table"]) > 8
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "@import" not in html and "url(http" not in html
    assert max(page.ids.values()) == 1
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


@pytest.mark.parametrize(
    ("widths", "classes"),
    [([350], "beside"), ([520], "beside tight"), ([600], ""), ([350, 350], ""),
     ([530, 530], "beside tight")],
)  # fmt: skip
def test_a_narrow_picture_has_figures_beside_it(widths, classes):
    strip = '<div class="pane">\n<svg role="group" width="{}" style=""></svg></div>'
    assert beside("".join(strip.format(width) for width in widths)) == classes


def test_says_what_the_data_say(data, html):
    words = Parsed(html).words
    for section, *texts in (
        ("", "net.pt", "simulated npu-phone"),
        ("plan", *(segment.cause for segment in data.plan.segments)),
        ("baselines", "CPU alone", "everything on the CPU"),
        ("refusals", "the driver lacks RESIZE_BILINEAR"),
        ("accuracy", "agrees", "4.20e-07"),
        ("summary", "agree", "4.2e-07"),
        ("environment", "sim-npu", "Simulated NPU phone", "2800 MHz"),
        ("method", "simulated (the phone"),
        ("notes", "is a guess", "outputs compared", data.plan.notes[0]),
        ("history", "tells neither clock nor temperature"),
        ("glossary", "This plan"),
    ):
        for text in texts:
            assert text in words[section]
    assert "memory" not in words["environment"]


def test_it_ends_with_how_to_ship(data):
    command = "nnapi-prof convert --to executorch a.nnprof"
    refused = DeployStep(AppRuntime.AAR, "", "an app has no PyTorch")
    ship = (DeployStep(AppRuntime.EXECUTORCH, command, None), refused)
    page = Parsed(render(replace(data, ship=ship)))
    assert [*page.words][1:] == [*SECTIONS, "ship"] and "#ship" in page.links
    assert command in page.words["ship"] and "has no PyTorch" in page.words["ship"]


def test_simulated_is_said_and_only_where_true(data, html):
    heads = re.findall(r"(?:predicted</a>|measured</a>|run</a>|predicted|time|model|invocation) ms"
                       r"[^<]*</th>", html)  # fmt: skip
    assert len(heads) > 8 and all("ms, simulated<" in head for head in heads), heads
    summary = html.split('id="plan"')[0].split("<main>")[1]
    assert not re.search(r"\d ms(?! \(simulated\))", summary)
    real, badge = render(measured_on_hardware(data)), 'class="badge"'
    assert not re.search(r"ms, simulated|ms \(simulated", real)
    assert badge in html and badge not in real


@pytest.mark.slow
def test_what_is_simulated_when_a_bundle_ran_elsewhere(data, html):
    real = measured_on_hardware(data)
    assert "<p>Latencies in this report come" in html
    assert html.count("Latencies in this report are simulated.</desc>") == 12
    assert "<p>Predictions and costs (but not" in render(replace(data, run=real.run))
    assert "<p>The latencies of the plans as they ran (but" in render(replace(real, run=data.run))


def test_everything_is_escaped(data, html):
    evil = "</td></title><script>alert(1)</script>\"'&"
    text = render(poisoned(data, evil))
    assert "<script>alert" not in text
    assert len(Parsed(text).tags["script"]) == len(Parsed(html).tags["script"])


def test_a_failed_run_and_differing_outputs_are_said(data):
    first = replace(data.run.runs[0], error="sim-npu: crashed: SIGSEGV", total_ns=(), segments=())
    bad = OutputCheck("out", (1,), 1.0, 0.5, 1e-4)
    run = replace(data.run, runs=(first, *data.run.runs[1:]), checks=(bad,))
    words = Parsed(render(replace(data, run=run))).words
    assert "did not run to its end" in words["summary"] and "SIGSEGV" in words["summary"]
    assert "not run yet" not in words["summary"] and "nan" not in words["baselines"].split()
    assert "1 of 1 differ" in words["summary"] and "differs" in words["accuracy"]


def test_a_unit_on_the_host_is_called_estimated():
    graph = cnn(8)
    lost = graph.units[4].signature
    rows = tuple(
        replace(row, status=type(row.status).REFUSED, samples_ns=(), message="nobody has GELU")
        if row.signature == lost
        else row
        for row in measure(graph, ())
        if lost not in row.members or row.n_units == 1
    )
    costs = fit(graph, rows)
    plan = solve(graph, costs)
    assert HOST in {s.target for s in plan.segments}
    rivals = baselines(make_problem(graph, costs.table))
    words = Parsed(render(ReportData("m.pt", graph, costs, rows, plan, rivals))).words
    assert "is an estimate of the static model" in words["refusals"]
    assert "nobody has GELU" in words["refusals"]


def test_a_table_is_shown_and_one_without_rows_is_not(data, monkeypatch):
    rows, heads = [("conv <1>", "3"), ("add", "14")], ("operation", "n")
    shown = Section("counts", "Counts", "How often", lambda _: rows, heads, (1,), "So.")
    monkeypatch.setattr(sections, "SECTIONS", (Section("none", "None", "Nothing", lambda _: []),))
    assert filled_sections(data) == []
    for module in (pages, markdown):
        monkeypatch.setattr(module, "filled_sections", lambda _: [(shown, rows)])
    page, text = render(data), markdown.render(data)
    assert (
        '<th scope="row">conv &lt;1&gt;</th><td class="n">3</td>' in page and "<p>So.</p>" in page
    )
    assert "## How often\n\nSo.\n\n| operation | n |\n| --- | --: |\n| conv &lt;1> | 3 |" in text
