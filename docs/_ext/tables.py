"""Make tables of code: ``{cost-columns}``, ``{errors}``, ``{options}`` and ``{schemas}``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def table(head: Sequence[str], rows: Sequence[Sequence[str]], code: int = 1) -> nodes.table:
    """A table whose first ``code`` columns are set as code."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row(head, 0))
    group += nodes.tbody("", *(_row(row, code) for row in rows))
    return nodes.table("", group)


def _row(cells: Sequence[str], code: int) -> nodes.row:
    row = nodes.row()
    for i, cell in enumerate(cells):
        text = nodes.literal("", cell) if i < code and cell else nodes.Text(cell)
        row += nodes.entry("", nodes.paragraph("", "", text))
    return row


class CostColumns(SphinxDirective):
    """The columns of the table of measurements, and those derived from it."""

    def run(self) -> list[nodes.Node]:
        from nnapi_prof.costs.store.files import DERIVED
        from nnapi_prof.costs.store.rows import MEASUREMENTS

        words = {
            "n_samples": "number of samples that the next columns summarise",
            "median_ns": "ns: median of the samples, without those of throttled rounds if others "
            "exist",
            "spread_ns": "ns: robust standard deviation of one sample",
            "minimum_ns": "ns: the lowest of them",
            "p95_ns": "ns: 95th percentile of them",
        }
        rows = [
            (column.name, str(column.type), "yes" if column.nullable else "", column.comment or "")
            for column in MEASUREMENTS.columns
        ]
        rows += [(name, "derived", "", words[name]) for name in DERIVED]
        return [table(("column", "type", "may be empty", "what it says"), rows)]


class Errors(SphinxDirective):
    """Every error of the tree, its exit code and its one line."""

    def run(self) -> list[nodes.Node]:
        from nnapi_prof import errors

        rows: list[tuple[str, str, str]] = []

        def walk(kind: type[errors.NnapiProfError]) -> None:
            line = (kind.__doc__ or "").split("\n\n")[0].replace("``", "")
            rows.append((kind.__name__, str(kind.exit_code), " ".join(line.split())))
            for child in kind.__subclasses__():
                walk(child)

        walk(errors.NnapiProfError)
        return [table(("error", "exit code", "when"), rows)]


class Options(SphinxDirective):
    """The options that a public dataclass declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        import nnapi_prof
        from nnapi_prof.options import default_of, flag_of, options_of

        cls = getattr(nnapi_prof, self.arguments[0].rpartition(".")[2])
        rows = [
            (
                name,
                flag_of(cls, name),
                str(default_of(cls, name)),
                option.range_words(),
                option.help,
            )
            for name, option in options_of(cls).items()
        ]
        return [table(("field", "command line", "default", "values", "meaning"), rows, code=2)]


class Schemas(SphinxDirective):
    """The JSON documents that commands print: name, what it is, its schema folded away."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for name, schema in _schemas().items():
            text = json.dumps(schema, indent=2, ensure_ascii=False)
            section = nodes.section(ids=[nodes.make_id(f"document-{name}")])
            section += nodes.title("", "", nodes.literal("", name))
            section += nodes.paragraph("", schema.get("description") or schema.get("title", ""))
            section += nodes.literal_block(text, text, language="json")
            sections.append(section)
        return sections


def _schemas() -> dict[str, dict[str, object]]:
    """What ``nnapi-prof schema`` prints, by name."""
    documents = importlib.import_module("nnapi_prof.documents")
    schemas: dict[str, dict[str, object]] = documents.schemas()
    return schemas


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cost-columns", CostColumns)
    app.add_directive("errors", Errors)
    app.add_directive("options", Options)
    app.add_directive("schemas", Schemas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
