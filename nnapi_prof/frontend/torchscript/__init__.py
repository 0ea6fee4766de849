"""Turn TorchScript into a straight fx graph, by the first of four routes that takes the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.calls import DataDependent
from nnapi_prof.frontend.export import straight_graph
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch
from nnapi_prof.frontend.torchscript.builtins import all_nodes, source
from nnapi_prof.frontend.torchscript.control_flow import Outliner
from nnapi_prof.frontend.torchscript.inputs import frozen
from nnapi_prof.frontend.torchscript.interpreter import walked_graph
from nnapi_prof.frontend.tracer import GraphTracer


def torchscript_graph(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str, keep: bool = False
) -> fx.GraphModule:
    """Returns the model's straight graph on the shapes of ``examples``.

    The routes in order: walking its graph (:func:`.walked_graph`); PyTorch's converter; the same
    after freezing and propagating the known shapes, which folds arithmetic on sizes; tracing of the
    frozen module. With ``keep``, control flow on data stays TorchScript in the graph
    (:class:`~nnapi_prof.graph.node.ScriptCall`). Raises FrontendError with the construct and source
    line that stopped the first route.
    """
    routes: tuple[Callable[[], fx.GraphModule], ...] = (
        lambda: walked_graph(model, examples, name, keep_draws=keep),
        lambda: _convert_by_export(model, examples, name),
        lambda: _convert_by_export(_with_shapes(model, examples), examples, name),
        lambda: _traced(frozen(model), examples, name),
    )
    refusals: list[Exception] = []
    for route in routes:
        try:
            with quiet_torch():
                return route()
        except DataDependent as refusal:
            if not keep:
                raise
            return _keep_control_flow(model, examples, name, refusal)
        except FrontendError:
            raise  # not the route's fault: no graph can express this
        except Exception as error:
            refusals.append(error)
    raise FrontendError(_refusal(model, refusals, name)) from refusals[0]


def _keep_control_flow(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str, refusal: DataDependent
) -> fx.GraphModule:
    """Returns the graph with parts that depend on data kept. Raises ``refusal`` if that fails."""
    try:
        with quiet_torch():
            alone = torch.jit.freeze(model, optimize_numerics=False)
            return walked_graph(alone, examples, name, Outliner(), keep_draws=True)
    except FrontendError:
        raise
    except Exception as error:
        raise refusal from error


def _convert_by_export(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str
) -> fx.GraphModule:
    from torch._export.converter import TS2EPConverter  # seconds of imports, seldom needed

    program = TS2EPConverter(model, tuple(examples)).convert()
    return straight_graph(program, examples, name)


def _with_shapes(
    model: torch.jit.ScriptModule, examples: Sequence[Tensor]
) -> torch.jit.ScriptModule:
    fixed = frozen(model)
    graph = fixed.graph
    inputs = list(graph.inputs())[1:]
    for value, example in zip(inputs, examples, strict=False):
        value.setType(torch._C.TensorType.create_from_tensor(example))
    torch._C._jit_pass_propagate_shapes_on_graph(graph)
    torch._C._jit_pass_peephole(graph)
    torch._C._jit_pass_constant_propagation(graph)
    return fixed


def _traced(model: torch.jit.ScriptModule, examples: Sequence[Tensor], name: str) -> fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*args: Tensor) -> tuple[Tensor, ...]:
        return tuple(v for v in pytree.tree_leaves(model(*args)) if isinstance(v, Tensor))

    with torch.no_grad():
        traced = make_fx(torch.func.functionalize(flat))(*examples)
    tracer = GraphTracer(name)
    names = (f"input_{i}" for i in range(len(examples)))
    inputs = [tracer.placeholder(n, example) for n, example in zip(names, examples, strict=True)]
    return tracer.finish(tracer.run(traced.graph, traced, inputs))


def _refusal(model: torch.jit.ScriptModule, refusals: Sequence[Exception], name: str) -> str:
    """Returns a message that names the TorchScript construct in a route's error, and its line."""
    text = "; ".join(str(refusal) for refusal in refusals)
    first = essential_line(refusals[0])
    for construct in re.findall(r"\b(?:aten|prim|quantized|torchvision)::\w+", text):
        for node in all_nodes(model.inlined_graph):
            if node.kind() == construct:
                return (
                    f"{name} cannot become a graph: the TorchScript construct {construct} "
                    f"at {source(node)} is refused by PyTorch's converter and by tracing: {first}"
                )
    return f"{name} cannot become a graph: {first}"
