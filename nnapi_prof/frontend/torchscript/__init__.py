"""Turn TorchScript into a straight fx graph, by the first of four routes that takes the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError, InputSpecError, for_caller
from nnapi_prof.frontend.calls import DataDependent
from nnapi_prof.frontend.export import straight_graph
from nnapi_prof.frontend.inputs import (
    InputSpec,
    bundled_inputs,
    check_count,
    example_tensors,
    guesses,
    listed,
    try_model,
)
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch
from nnapi_prof.frontend.torchscript.builtins import all_nodes, source
from nnapi_prof.frontend.torchscript.control_flow import Outliner
from nnapi_prof.frontend.torchscript.interpreter import forward_arguments, walked_graph
from nnapi_prof.frontend.tracer import GraphTracer

_INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8)
_WEIGHT_KINDS = {
    "aten::_convolution": "conv",
    "aten::convolution": "conv",
    "aten::conv1d": "conv",
    "aten::conv2d": "conv",
    "aten::conv3d": "conv",
    "aten::linear": "linear",
    "aten::embedding": "embedding",
}


def find_inputs(
    model: torch.jit.ScriptModule, stated: Sequence[InputSpec], name: str
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Returns example inputs on which the model runs, and notes about guesses.

    Stated specs come first, then bundled inputs, then a guess from the first layer. Raises
    InputSpecError where their number is wrong, the model fails on them, or none can be found.
    """
    arguments = forward_arguments(model)
    needed = sum(not argument.has_default_value() for argument in arguments)
    _refuse_other_types(arguments[:needed], name)
    if stated:
        check_count(name, len(stated), needed, len(arguments))
        return _examples_without_zeros(model, example_tensors(stated), name), ()
    bundled = bundled_inputs(model)
    if bundled is not None:
        try_model(name, model, bundled)
        return bundled, ()
    return _guessed(model, needed, name)


def _examples_without_zeros(
    model: torch.jit.ScriptModule, examples: tuple[Tensor, ...], name: str
) -> tuple[Tensor, ...]:
    """Returns the examples, with ones for integers where the model divides by zeros among them."""
    try:
        try_model(name, model, examples)
    except InputSpecError as error:
        if "ZeroDivisionError" not in str(error):
            raise
        examples = tuple(
            torch.ones_like(example) if example.dtype in _INTEGERS else example
            for example in examples
        )
        try_model(name, model, examples)
    return examples


def _refuse_other_types(arguments: Sequence[Any], name: str) -> None:
    for argument in arguments:
        if str(argument.type) not in ("Tensor", "Optional[Tensor]"):
            raise InputSpecError(
                f"{name} takes the input {argument.name} of type {argument.type}: only tensors can "
                f"be inputs; wrap the model to take tensors"
            )


def _guessed(
    model: torch.jit.ScriptModule, needed: int, name: str
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    tried = []
    guess = guesses(_first_weights(model))
    of_tokens = guess is not None and guess.layer == "embedding"
    for spec in guess.specs if guess and (needed == 1 or of_tokens) else ():
        specs = [spec] * needed  # tokens, their mask and their types are of one shape
        examples = example_tensors(specs)
        try:
            try_model(name, model, examples)
        except InputSpecError:
            tried.append(str(spec))
            continue
        assert guess is not None
        # The note stays with the model, so it names neither an option nor an argument.
        shapes = f"shape guessed as {spec}" if needed == 1 else f"shapes guessed as {listed(specs)}"
        note = f"input {shapes} from the first {guess.layer}; state it where it is not"
        return examples, (note,)
    example = "1x64:int64" if of_tokens else "1x3x224x224"
    counted = "1 input" if needed == 1 else f"{needed} inputs"
    failed = f" (the model does not run on {', '.join(tried)})" if tried else ""
    raise InputSpecError(
        f"{name} takes {counted} and stores no shapes{failed}: state each with "
        + for_caller(f"--input, as in --input {example}", f'inputs, as in inputs=["{example}"]')
    )


def _first_weights(model: torch.jit.ScriptModule) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields kind and weight shape of each layer in code order, with the channels of all groups."""
    with quiet_torch():
        graph = frozen(model).graph
        nodes = list(all_nodes(graph))
    for node in nodes:
        kind = _WEIGHT_KINDS.get(node.kind())
        if kind is None:
            continue
        weight = node.inputsAt(0 if kind == "embedding" else 1).toIValue()
        if not isinstance(weight, Tensor):
            continue
        shape = list(weight.shape)
        if kind == "conv":
            groups = node.inputsAt(8 if "_convolution" in node.kind() else 6).toIValue()
            transposed = "_convolution" in node.kind() and node.inputsAt(6).toIValue()
            shape[1] = shape[0] if transposed else shape[1] * int(groups or 1)
        yield kind, tuple(shape)


def frozen(model: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns the model with attributes inlined as constants; itself if it is frozen already."""
    if not hasattr(model, "training"):
        return model
    return torch.jit.freeze(model)  # type: ignore[no-any-return]


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
