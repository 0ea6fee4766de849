"""Docstrings as this repository writes them: an indented paragraph is an example, shown as code."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def as_code(lines: list[str]) -> list[str]:
    """The lines with ``::`` in front of every indented paragraph that has none."""
    lines_out: list[str] = []
    before = ""
    for i, line in enumerate(lines):
        begins = line.startswith("    ") and i > 0 and not lines[i - 1].strip()
        if begins and not before.startswith("    ") and not before.endswith("::"):
            lines_out += ["::", ""]
        lines_out.append(line)
        if line.strip():
            before = line
    return lines_out


def _on_docstring(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _o: Any, lines: list[str]
) -> None:
    lines[:] = as_code(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _on_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
