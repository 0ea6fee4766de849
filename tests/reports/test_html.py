"""The report as a browser sees it: parsed, self-contained, escaped; and in a real browser."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from nnapi_prof.bundle.deployment import AppRuntime, DeployStep
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import HOST
from nnapi_prof.partition import baselines, make_problem
from nnapi_prof.reports import write_report
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.html import beside, render
from tests.partition.cases import solve
from tests.reports.sample import cnn, measure, measured_on_hardware, sample

SECTIONS = [
    "summary", "plan", "baselines", "units", "preferences", "refusals", "transfers", "accuracy",
    "history", "model", "environment", "method", "notes", "glossary",
]  # fmt: skip
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and collects what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        self._section = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        result = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self._section = str(result["id"])
            self.sections.append(self._section)
        if result.get("id"):
            self.ids[str(result["id"])] += 1
        self.links += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href", "action")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words[self._section] = self.words.get(self._section, "") + " ".join(data.split()) + " "


@pytest.fixture(scope="module")
def data():
    return replace(sample(10, (4,)), every_preference=True)


@pytest.fixture(scope="module")
def html(data):
    return render(data)


def test_has_every_section_and_nests(html):
    page = Page(html)
    assert page.sections == SECTIONS and page.tags["html"] == 1
    assert page.tags["figure"] == 6  # of one segment none to compare, no history without clocks
    assert page.tags["caption"] == page.tags["table"] > 8


@pytest.mark.parametrize(
    ("widths", "classes"),
    [
        ([350], "beside"),
        ([520], "beside tight"),
        ([600], ""),
        ([350, 350], ""),
        ([530, 530], "beside tight"),
    ],
)
def test_a_narrow_picture_has_figures_beside_it(widths, classes):
    strips = [
        f'<div class="pane">\n<svg role="group" width="{width}" style=""></svg></div>'
        for width in widths
    ]
    assert beside("".join(strips)) == classes


def test_fetches_nothing(html):
    page = Page(html)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "@import" not in html and "url(http" not in html
    assert max(page.ids.values()) == 1
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_says_what_the_data_say(data, html):
    words = Page(html).words
    assert "net.pt" in words[""] and "simulated npu-phone" in words[""]
    for segment in data.plan.segments:
        assert segment.cause in words["plan"]
    assert "CPU alone" in words["baselines"] and "everything on the CPU" in words["baselines"]
    assert "the driver lacks RESIZE_BILINEAR" in words["refusals"]
    assert "agrees" in words["accuracy"] and "4.20e-07" in words["accuracy"]
    assert "agree" in words["summary"] and "4.2e-07" in words["summary"]
    assert "sim-npu" in words["environment"] and "Simulated NPU phone" in words["environment"]
    assert "memory" not in words["environment"] and "2800 MHz" in words["environment"]
    assert "simulated (the phone" in words["method"]
    assert "is a guess" in words["notes"] and "outputs compared" in words["notes"]
    assert data.plan.notes[0] in words["notes"]
    assert "tells neither clock nor temperature" in words["history"]
    assert "This plan" in words["glossary"]


def test_it_ends_with_how_to_ship(data):
    ship = (
        DeployStep(AppRuntime.EXECUTORCH, "nnapi-prof convert --to executorch a.nnprof", None),
        DeployStep(AppRuntime.AAR, "", "an app has no PyTorch"),
    )
    page = Page(render(replace(data, ship=ship)))
    assert page.sections == [*SECTIONS, "ship"]
    assert ship[0].command in page.words["ship"] and "has no PyTorch" in page.words["ship"]
    assert "#ship" in page.links


def test_simulated_is_said_and_only_where_true(data, html):
    assert 'class="badge"' in html
    assert 'class="badge"' not in render(measured_on_hardware(data))


def test_every_head_says_whose_latencies_stand_below(data, html):
    heads = re.findall(r"(?:predicted</a>|measured</a>|run</a>|predicted|time|model|invocation) ms"
                       r"[^<]*</th>", html)  # fmt: skip
    assert len(heads) > 8 and all("ms, simulated<" in head for head in heads), heads
    summary = html.split('id="plan"')[0].split("<main>")[1]
    assert not re.search(r"\d ms(?! \(simulated\))", summary)
    assert not re.search(r"ms, simulated|ms \(simulated", render(measured_on_hardware(data)))


@pytest.mark.slow
def test_what_is_simulated_when_a_bundle_ran_elsewhere(data):
    real = measured_on_hardware(data)
    assert data.run is not None and real.run is not None
    assert "<p>Latencies in this report come" in render(data)
    assert render(data).count("Latencies in this report are simulated.</desc>") == 12
    assert "<p>Predictions and costs (but not" in render(replace(data, run=real.run))
    assert "<p>The latencies of the plans as they ran (but" in render(replace(real, run=data.run))


def test_everything_is_escaped(data, html):
    evil = "</td><script>alert(1)</script>\"'&"
    segments = tuple(replace(s, why=evil) for s in data.plan.segments)
    poisoned = replace(
        data,
        model=evil,
        graph=replace(
            data.graph,
            units=tuple(replace(u, operation=evil, sizes="") for u in data.graph.units),
        ),
        plan=replace(data.plan, segments=segments),
        run=replace(data.run, device=evil, checks=(OutputCheck(evil, (1,), 0, 0, 1),)),
        device_info={evil: evil, "accelerators": [dict.fromkeys(
            ("name", "type", "version", "feature_level"), evil)]},
        notes=(evil,),
    )  # fmt: skip
    text = render(poisoned)
    assert "<script>alert" not in text
    assert Page(text).tags["script"] == Page(html).tags["script"]


def test_a_failed_run_and_differing_outputs_are_said(data):
    first = replace(data.run.runs[0], error="sim-npu: crashed: SIGSEGV", total_ns=(), segments=())
    bad = OutputCheck("out", (1,), 1.0, 0.5, 1e-4)
    run = replace(data.run, runs=(first, *data.run.runs[1:]), checks=(bad,))
    words = Page(render(replace(data, run=run))).words
    assert "did not run to its end" in words["summary"] and "SIGSEGV" in words["summary"]
    assert "not run yet" not in words["summary"] and "nan" not in words["baselines"].split()
    assert "1 of 1 differ" in words["summary"] and "differs" in words["accuracy"]


def test_a_unit_on_the_host_is_called_estimated():
    graph = cnn(8)
    rows = [
        row
        for row in measure(graph, ())
        if graph.units[4].signature not in row.members or row.n_units == 1
    ]
    lost = [
        replace(row, status=type(row.status).REFUSED, samples_ns=(), message="nobody has GELU")
        if row.signature == graph.units[4].signature
        else row
        for row in rows
    ]
    costs = fit(graph, lost)
    plan = solve(graph, costs)
    assert HOST in {s.target for s in plan.segments}
    data = ReportData(
        "m.pt", graph, costs, tuple(lost), plan, baselines(make_problem(graph, costs.table))
    )
    words = Page(render(data)).words
    assert "is an estimate of the static model" in words["refusals"]
    assert "nobody has GELU" in words["refusals"]


def test_write_replaces_whole_files(data, html, tmp_path):
    path = tmp_path / "new" / "report.html"
    write_report(path, "html", data)
    assert path.read_text(encoding="utf-8") == html
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write the report .*file/report\.html"):
        write_report(tmp_path / "file" / "report.html", "html", data)
