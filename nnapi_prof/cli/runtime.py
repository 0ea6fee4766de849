"""Bundles as one file for apps, for ``nnapi-prof convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import writing
from nnapi_prof.cli.output import say

if TYPE_CHECKING:
    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.cli.written import Written

ENDING = ".nnprt"


def write_runtime(written: Written, path: Path, bundle: Bundle) -> None:
    """Writes a bundle for ``libnnapi_prof_runtime`` to ``path``, or to ``path``.nnprt where it has
    no ending; says what an app will find there."""
    from nnapi_prof.bundle.runtime import needs_host, runtime_bundle, runtime_plans

    content = runtime_bundle(bundle)
    plans = runtime_plans(bundle)
    path = path if path.suffix else path.with_name(f"{path.name}{ENDING}")
    with writing(path):
        path.write_bytes(content)
    written.files.append((path, "runtime"))
    segments = ", ".join(segment.target.key for segment in plans[0].segments)
    say(f"{path}: {len(content) / 1e6:.2f} MB, plan {plans[0].name} ({segments})")
    if len(plans) > 1:
        say(f"other plans in it: {', '.join(plan.name for plan in plans[1:])}")
    left_out = [plan.name for plan in bundle.plans if needs_host(plan)]
    if left_out:
        written.note(f"left out, for they need PyTorch: {', '.join(left_out)}")
