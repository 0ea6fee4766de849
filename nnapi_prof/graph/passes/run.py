"""Runs passes in order, checks the graph after each, and blames by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import fx

from nnapi_prof.errors import FrontendError
from nnapi_prof.graph.passes.rewrite import erase_unused
from nnapi_prof.graph.verify import verify

Pass = Callable[[fx.Graph], int]


def run_passes(module: fx.GraphModule, passes: Sequence[Pass]) -> dict[str, int]:
    """Runs ``passes`` over the module's graph and recompiles it.

    Returns the number of changes by pass name, summed where a pass runs more than once. Raises
    FrontendError naming the pass after which a rule was broken, and the passes before it.
    """
    changes: dict[str, int] = {}
    done: list[str] = []
    for one in passes:
        name = one.__name__
        try:
            changes[name] = changes.get(name, 0) + one(module.graph)
            erase_unused(module.graph)
            verify(module.graph)
        except (AssertionError, FrontendError, LookupError, RuntimeError, TypeError) as error:
            before = ", ".join(done) or "none"
            raise FrontendError(f"pass {name} failed (passes before it: {before}): {error}") from (
                error
            )
        done.append(name)
    module.recompile()
    return changes
