"""Write our plans as ``.pte`` files of ExecuTorch, and load the delegate that runs them.

    from nnapi_prof import executorch as np_et

    np_et.lower(model, costs).save("model.pte")     # the whole file, by our plan
    to_edge_transform_and_lower(program, partitioner=[np_et.NnapiPartitioner(costs), ...])
    np_et.load("sim:npu-phone")                     # before executorch.runtime.Runtime.get()

Needs the extra: ``pip install 'nnapi-prof[executorch]'``. Importing this package does not import
ExecuTorch. The first use of a name does, and raises UsageError where ExecuTorch is missing or its
version is not :data:`nnapi_prof.executorch.host.VERSION`.
"""

from __future__ import annotations

import importlib

_WHERE = {
    "Caution": "host",
    "FileChoice": "whole",
    "Lowered": "pte",
    "NnapiBackend": "partitioner",
    "NnapiPartitioner": "partitioner",
    "bisect": "bisection",
    "choose": "selection",
    "fastest": "rivals",
    "load": "host",
    "lower": "pte",
    "run_file": "runner",
}
"""Public name -> the module that defines it."""

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    """Imports a public name on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nnapi_prof.executorch.host import require

    require()
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
