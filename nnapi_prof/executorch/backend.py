"""ExecuTorch's back end, ahead of time: a delegated call becomes bytes and named weights."""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from nnapi_prof.bundle.runtime import ALIGNMENT
from nnapi_prof.errors import UsageError
from nnapi_prof.executorch.aot import (
    BackendDetails,
    CompileSpec,
    NamedDataStore,
    PreprocessResult,
)
from nnapi_prof.executorch.calls import find

PREFIX = "nnapi_prof/"
"""Of the names of weights in a file; their SHA-256 follows."""


class NnapiBackend(BackendDetails):  # type: ignore[misc]
    """Writes what the delegate of device_agent/executorch reads.

    A partition is one delegated call, which :class:`.partitioner.NnapiPartitioner` puts into the
    program. Weights are named data by their hash: equal ones of all calls, methods and back ends
    that name them so are once in the file.
    """

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Raises UsageError where the program is not one delegated call."""
        graph = edge_program.graph
        calls = [node for node in graph.nodes if is_call(node)]
        if len(calls) != 1:
            raise UsageError(
                f"NnapiBackend lowers what NnapiPartitioner gives it, one call, found {len(calls)}",
                "put NnapiPartitioner among the partitioners",
            )
        inputs, key = calls[0].args
        call = find(key)
        arguments = [node for node in graph.nodes if node.op == "placeholder"]
        in_order = [inputs.index(node) for node in arguments]
        out_order = [node.args[1] for node in graph.output_node().args[0]]
        store = NamedDataStore()
        for name, data in call.weights.items():
            store.add_named_data(PREFIX + name, data, ALIGNMENT)
        return PreprocessResult(
            processed_bytes=call.processed(in_order, out_order),
            data_store_output=store.get_named_data_store_output(),
        )


def is_call(node: fx.Node) -> bool:
    """Whether a node of an edge program, or of one before, is a delegated call."""
    target = node.target
    if not isinstance(target, OpOverload):
        target = getattr(target, "_op", target)
    return node.op == "call_function" and str(target) == "nnapi_prof.call.default"
