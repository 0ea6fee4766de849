"""Checks docstrings of the package: their first words, and the targets of their references.

    python .ci/docstrings.py

A docstring begins with a verb or a noun, never with a word of BEGINNINGS. The target of a role
(``:func:`name```, ``:class:`~nnapi_prof.module.Name```) is an absolute name of the package, or a
name of the module or of one of its classes; names of other packages are not checked.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

BEGINNINGS = frozenset("Of What Who Whoever Whose As Like That Where Which".split())
ROLE = re.compile(r":(?:func|class|meth|attr|mod|data|exc):`([^`]+)`")
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "nnapi_prof"
FOLDERS = (PACKAGE, "partition", "reports")
"""Folders to check; the last two are imported as modules of the package."""


def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Parses each file of the package; returns them by import name."""
    parsed = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == PACKAGE else (PACKAGE, *parts)
            name = ".".join(parts).removesuffix(".__init__")
            parsed[name] = path, ast.parse(path.read_text())
    return parsed


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yields names that statements bind, members of classes as ``Class.member``."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (f"{node.name}.{member}" for member in bound(node.body))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            yield from bound([*node.body, *node.orelse])


class Names:
    """The names of the package, and those that a reference in a module may use."""

    def __init__(self, parsed: dict[str, tuple[Path, ast.Module]]) -> None:
        self._own = {module: set(bound(tree.body)) for module, (_, tree) in parsed.items()}
        for module in parsed:  # a package also has its modules, the top one its public names
            parent, _, name = module.rpartition(".")
            self._own.get(parent, set()).add(name)
        self._own[PACKAGE] |= set(__import__(PACKAGE).__all__)
        self._absolute = set(self._own)
        for module, names in self._own.items():
            self._absolute |= {f"{module}.{name}" for name in names}

    def has(self, reference: str, module: str) -> bool:
        """Tells whether a reference in a docstring of ``module`` has a target."""
        name = reference.rpartition("<")[2].rstrip(">").lstrip("~")
        if name.startswith("."):
            return any(
                absolute == name.lstrip(".") or absolute.endswith(name)
                for absolute in self._absolute
            )
        if name.partition(".")[0] == PACKAGE:
            return name in self._absolute or self._is_member(name)
        own = self._own[module]
        first, _, rest = name.partition(".")
        if name in own or any(local.endswith(f".{name}") for local in own):
            return True
        return bool(rest) and first in own and self._is_member(name)

    def _is_member(self, name: str) -> bool:
        """Tells whether some class has the member, which may be inherited, or renamed on import."""
        member = name.rpartition(".")[2]
        return any(absolute.endswith(f".{member}") for absolute in self._absolute)


def complaints() -> Iterator[str]:
    """Yields a line for each docstring that breaks a rule."""
    parsed = modules()
    names = Names(parsed)
    for module, (path, tree) in parsed.items():
        for text, line in _strings(tree):
            place = f"{path.relative_to(ROOT)}:{line}"
            first = (text.split() or [""])[0].strip(".,:")
            if first in BEGINNINGS:
                yield f"{place}: begins with {first!r}: {text.strip().splitlines()[0]}"
            for reference in ROLE.findall(text):
                if not names.has(reference, module):
                    yield f"{place}: leads nowhere: {reference}"


def _strings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields docstrings, including those of attributes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.value.value, node.lineno


if __name__ == "__main__":
    lines = list(complaints())
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    sys.exit(bool(lines))
