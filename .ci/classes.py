"""Checks that a class name has one meaning: lists classes that several modules define.

    python .ci/classes.py

Tests, examples and benchmarks may repeat names; a program that ships may repeat LIMIT of them.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("nnapi_prof", "partition", "reports", "device_agent")
LIMIT = 4


def repeated() -> dict[str, list[str]]:
    """Returns each class name that several modules define, with these modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
            for name in names:
                places[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def main() -> int:
    names = repeated()
    for name, paths in names.items():
        print(f"{name}: {', '.join(paths)}")
    if len(names) <= LIMIT:
        return 0
    print(f"{len(names)} classes are defined twice, {LIMIT} may be: rename one", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
