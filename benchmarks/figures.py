"""Write docs/figures.md from the CSV files in benchmarks/results.

    python benchmarks/figures.py            writes the page
    python benchmarks/figures.py --check    fails if the page is out of date

``index.toml`` names each table's file, command, commit and machine, and the columns to show;
``single.csv`` has figures that need no table. A row of the page never has more than eight columns.
"""

from __future__ import annotations

import csv
import itertools
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "figures.md"
MOST_COLUMNS = 8
HEAD = """# Figures

<!-- Written by benchmarks/figures.py from benchmarks/results; edit those files. -->

Every figure names its command, the commit that recorded it, and the machine. Latencies are
**measured**, **simulated** (from a phone's description), **predicted** (by a plan from costs) or
**estimated** (by the static model). No phone was measured.
"""


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file in ``RESULTS``, by column."""
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown. Raises ValueError if it is too wide."""
    if len(headings) > MOST_COLUMNS:
        raise ValueError(f"{len(headings)} columns, at most {MOST_COLUMNS}: {headings}")
    cells = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell or "–" for cell in row) + " |" for row in cells)


def section(table: dict[str, Any]) -> str:
    """Return one table's part of the page."""
    rows = read(table["file"])
    parts = [
        f"## {table['title']}",
        f"`{table['command']}` ({table['label']}; commit {table['commit']}; {table['machine']}).",
        table["intro"].strip(),
    ]
    for view in table["views"]:
        columns, headings = zip(*(entry.split(" = ", 1) for entry in view), strict=True)
        parts.append(markdown(headings, [[row[column] for column in columns] for row in rows]))
    return "\n\n".join([*parts, *([table["notes"].strip()] if table["notes"] else [])])


def single() -> str:
    """Return the figures that need no table, a section for each topic."""
    parts = ["## Other figures"]
    for topic, group in itertools.groupby(read("single.csv"), lambda row: row["topic"]):
        rows = [
            [row["figure"], row["label"], f"`{row['command']}`", row["commit"], row["machine"]]
            for row in group
        ]
        headings = ["figure", "latencies are", "command", "commit", "machine"]
        parts += [f"### {topic}", markdown(headings, rows)]
    return "\n\n".join(parts)


def page() -> str:
    """Return the whole page."""
    tables = tomllib.loads((RESULTS / "index.toml").read_text())["table"]
    return "\n\n".join([HEAD.strip(), *map(section, tables), single()]) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() == page():
            return 0
        print("docs/figures.md is out of date: run python benchmarks/figures.py", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
