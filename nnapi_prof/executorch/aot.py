"""Imports ExecuTorch's ahead-of-time modules without the output of their own imports."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from nnapi_prof.executorch.host import require
from nnapi_prof.frontend.torch_logging import quiet_torch


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Suppresses ExecuTorch's warnings and logs, and undoes its setup of the process's logging."""
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        with quiet_torch():
            yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


require()
with silence():
    import executorch.kernels.quantized  # noqa: F401  (kernels of quantised programs)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import (
        EdgeCompileConfig,
        EdgeProgramManager,
        ExecutorchProgramManager,
        to_edge_transform_and_lower,
    )
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
    from executorch.extension.pybindings import portable_lib
__all__ = [
    "BackendDetails",
    "CompileSpec",
    "DelegationSpec",
    "EdgeCompileConfig",
    "EdgeProgramManager",
    "ExecutorchProgramManager",
    "NamedDataStore",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "XnnpackPartitioner",
    "portable_lib",
    "silence",
    "to_edge_transform_and_lower",
]
