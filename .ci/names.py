"""Checks for names that say how a thing came about, not what it is: ``found``, ``known``, ``kept``.

    python .ci/names.py            counts them; fails above the limit
    python .ci/names.py --list     shows where they are

A local, an attribute or a field is a noun of the thing (``regions``, not ``found``). Every place
that binds such a name counts: assignments, loops, ``with``, walruses, comprehensions, fields.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PARTICIPLES = frozenset({"found", "known", "wanted", "given", "kept", "made", "said"})
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (".ci", "nnapi_prof", "partition", "reports", "device_agent", "tests", "benchmarks")
FOLDERS += ("docs", "examples", "notebooks")
LIMIT = 60
"""Largest number of such names in the whole tree, tests included; file formats may have some."""


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, name) of each place that binds a bare participle."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        if name.lstrip("_") in PARTICIPLES:
            yield node.lineno, name


def main() -> int:
    places = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in bindings(ast.parse(path.read_text()))
    ]
    if "--list" in sys.argv[1:]:
        print("\n".join(places))
    if len(places) <= LIMIT:
        return 0
    print(
        f"{len(places)} names are bare participles ({', '.join(sorted(PARTICIPLES))}), {LIMIT} at"
        " most: give them a noun of the thing; `python .ci/names.py --list` shows them",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
