"""What is used of ExecuTorch ahead of time, imported without the chatter of its own imports."""

from __future__ import annotations

from nnapi_prof.executorch.version import require
from nnapi_prof.frontend.torch_logging import quiet_torch

require()
with quiet_torch():
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

__all__ = [
    "BackendDetails",
    "CompileSpec",
    "DelegationSpec",
    "ExecutorchProgramManager",
    "NamedDataStore",
    "PartitionResult",
    "Partitioner",
    "PreprocessResult",
    "XnnpackPartitioner",
    "to_edge_transform_and_lower",
]
