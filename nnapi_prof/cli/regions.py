"""Regions as files: JSON descriptions and C++ classes, for ``nnapi-prof convert``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import writing
from nnapi_prof.cli.output import say

if TYPE_CHECKING:
    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.cli.written import Written
    from nnapi_prof.convert.export.json import Description

_ENDINGS = (".nnapi.pt", ".pt", ".pt2", ".json", ".h", ".cpp", ".weights", ".nnprof")


def base_path(path: Path) -> Path:
    """``out/net`` for ``out/net.nnapi.pt``, ``out/net.json`` and ``out/net``: files are named
    after it. Letters that an #include could not say become underscores."""
    name = next((path.name.removesuffix(e) for e in _ENDINGS if path.name.endswith(e)), path.name)
    return path.with_name(re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) or "model")


def write_region(
    written: Written, base: Path, described: Description, formats: Sequence[str]
) -> None:
    """Writes a region as ``base``.json, as ``base``.h and .cpp, or both, and its weights to
    ``base``.weights; says which files there are."""
    from nnapi_prof.convert.export.cpp import to_cpp
    from nnapi_prof.convert.export.json import to_json

    weights_file = base.with_name(f"{base.name}.weights")
    text, weights = to_json(described, weights_file.name)
    files: dict[Path, str] = {}
    if "json" in formats:
        files[base.with_name(f"{base.name}.json")] = text
    if "cpp" in formats:
        made = to_cpp(described, base.name, weights)
        files[base.with_name(made.header_file)] = made.header
        files[base.with_name(f"{base.name}.cpp")] = made.source
    for path, content in files.items():
        with writing(path):
            path.write_text(content)
    if described.region.buffers:
        with writing(weights_file):
            weights.write(weights_file)
    written.files += [(path, "json" if path.suffix == ".json" else "cpp") for path in files]
    if described.region.buffers:
        written.files.append((weights_file, "weights"))
    names = [*map(str, files), *([str(weights_file)] if described.region.buffers else [])]
    say(f"{len(described.region.operations)} NNAPI operations in {', '.join(names)}")


def bundle_regions(bundle: Bundle) -> Iterator[tuple[int, Description]]:
    """The segments of a bundle's plan that NNAPI runs: the number of each and what it is."""
    from nnapi_prof.convert.export.json import Description
    from nnapi_prof.costs.conditions import Precision
    from nnapi_prof.graph.plan import AUTO, Engine

    for number, segment in enumerate(bundle.plan.segments):
        target = segment.target
        if target.engine is not Engine.NNAPI or target.preference is None:
            continue
        yield (
            number,
            Description(
                bundle.region(segment.units, target),
                target.preference,
                device=None if target.accelerator == AUTO else target.accelerator,
                relaxed=bundle.conditions.precision is Precision.RELAXED,
            ),
        )
