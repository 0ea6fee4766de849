"""Sections that are one table or one list of facts, in both forms of a report."""

from nnapi_prof.reports import html, markdown, sections
from nnapi_prof.reports.sections import Section, filled_sections


def test_every_section_stands_in_the_page_and_in_markdown(data):
    filled = filled_sections(data)
    assert [section.id for section, _ in filled] == ["method"]
    page, text = html.render(data), markdown.render(data)
    for section, rows in filled:
        assert f'<section id="{section.id}"' in page and f"## {section.heading}\n" in text
        assert f'<a href="#{section.id}">{section.name}</a>' in page
        assert all(len(row) == len(section.heads or ("name", "value")) for row in rows)


def test_a_table_is_shown_and_one_without_rows_is_not(data, monkeypatch):
    rows = [("conv <1>", "3"), ("add", "14")]
    shown = Section(
        "counts", "Counts", "How often", lambda _: rows, ("operation", "n"), (1,), "So."
    )
    monkeypatch.setattr(sections, "SECTIONS", (Section("none", "None", "Nothing", lambda _: []),))
    assert filled_sections(data) == []
    for module in (html, markdown):
        monkeypatch.setattr(module, "filled_sections", lambda _: [(shown, rows)])
    page, text = html.render(data), markdown.render(data)
    assert '<th scope="row">conv &lt;1&gt;</th><td class="n">3</td>' in page
    assert "<p>So.</p>" in page
    assert "## How often\n\nSo.\n\n| operation | n |\n| --- | --: |\n" in text
    assert "| conv &lt;1> | 3 |" in text
