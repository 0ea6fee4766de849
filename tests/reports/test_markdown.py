"""The Markdown report as a Markdown parser sees it; and a golden file."""

import html
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from nnapi_prof.reports.data import Environment
from nnapi_prof.reports.markdown import render, table, text
from tests.reports.sample import measured_on_hardware, poisoned, run_of, sample, three_segments

GOLDEN = Path(__file__).parent / "golden" / "report.md"
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HEADINGS = [
    "Plan", "Baselines", "Outputs", "Refusals", "Transfers", "Units", "Cost model", "Device",
    "How it was measured", "Environment", "Notes",
]  # fmt: skip
EVIL = "a|b\n|---|\n*c* _d_ `e` <b>f</b> [g](h) &amp; \\| #1 @you $x$ ~~i~~ 1. 2) - + = > ![j](k)"


@pytest.fixture(scope="module")
def data():
    sample_, plan = sample(8, (4,)), three_segments(8, estimated=True)
    here = Environment(
        written_at="2024-05-02T08:00:00+00:00",
        command="nnapi-prof report net.nnprof",
        host="Linux 6.1, x86_64, 8 CPUs",
        python="3.11.2",
        nnapi_prof="0.1.0",
        packages={"torch": "2.13.0"},
    )
    run = run_of(sample_.graph, (plan, *sample_.baselines), sample_.model)
    return replace(sample_, plan=plan, run=run, environment=here)


class Document:
    """Headings, and of each table its rows of plain cells, by the heading above it."""

    def __init__(self, source: str) -> None:
        self.headings: list[str] = []
        self.tables: dict[str, list[list[list[str]]]] = {}
        tokens = PARSER.parse(source)
        above = ""
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                above = plain(tokens[at + 1])
                if token.tag == "h2":
                    self.headings.append(above)
            elif token.type == "table_open":
                self.tables.setdefault(above, []).append([])
            elif token.type == "tr_open":
                self.tables[above][-1].append([])
            elif token.type in ("th_open", "td_open"):
                self.tables[above][-1][-1].append(plain(tokens[at + 1]))


def plain(inline: Token) -> str:
    """The text of an inline token; fails where it is more than text."""
    children = inline.children or []
    assert {child.type for child in children} <= {"text", "text_special", "strong_open",
                                                   "strong_close"}, inline.content  # fmt: skip
    return "".join(child.content for child in children)


def test_is_the_golden_file(data):
    """On purpose changed? ``python -m tests.reports.test_markdown`` writes it anew."""
    assert render(data) == GOLDEN.read_text(encoding="utf-8")


def test_what_is_not_so_is_not_told(data):
    source = render(measured_on_hardware(data))
    assert "**simulated** phone" not in source and "ms, simulated |" not in source
    free = replace(data, cost_model=replace(data.cost_model, refusals={}))
    assert "None: every target that was measured runs every unit." in render(free)


def test_only_the_preference_of_the_plan_unless_asked(data):
    """As on the page; the NPU is told of once either way, its preferences are told apart."""
    sources = chosen, every = render(data), render(replace(data, every_preference=True))
    assert " low_power" not in chosen and " low_power" in every
    own, all_ = (
        {row[0] for row in Document(source).tables["Cost model"][0][1:] if "sim-npu" in row[0]}
        for source in sources
    )
    assert own == {"sim-npu (fast)"} < all_


def test_text_of_others_stays_text_in_cells_and_paragraphs(data):
    source = render(replace(poisoned(data, EVIL), device_info={EVIL: EVIL}))
    document, text = Document(source), " ".join(EVIL.split())
    assert document.headings == HEADINGS
    assert {row[-1] for row in document.tables["Plan"][0][1:]} == {text}
    assert document.tables["Device"][0][1] == [text, text]
    assert "<b>" not in PARSER.render(source)


@given(st.text(max_size=60))
@example(EVIL)
@example("- a")
@example("+\n\n1. x\n---\n===")
@example("12) x")
@example("    code")
@example("_a_ b_c __init__ \\")
def test_any_text_survives(raw):
    raw = raw.replace("\0", "")  # CommonMark itself replaces it
    printed = " ".join(raw.split())
    paragraph = PARSER.render(text(raw))
    assert html.unescape(paragraph.removeprefix("<p>").removesuffix("</p>\n")) == printed
    document = Document("\n".join(table(["a", "b"], [[raw, "x"]])))
    assert document.tables[""][0][1:] == [[printed, "x"]]


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        list(table(["a", "b"], [["only"]]))


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(render(data.__wrapped__()), encoding="utf-8")
