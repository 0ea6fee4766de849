"""Turn an ExportedProgram into a straight fx graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError, InputSpecError, KeepsState, option_name
from nnapi_prof.frontend.calls import WritesToViews
from nnapi_prof.frontend.host_parts import PartsTracer, concrete_values
from nnapi_prof.frontend.inputs import (
    DTYPES,
    InputSpec,
    check_count,
    example_tensors,
    listed,
    shapes_or_values,
)
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.frontend.tracer import GraphTracer
from nnapi_prof.graph.node import dtype_name

_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


def straight_graph(
    program: ExportedProgram, examples: Sequence[Tensor], name: str, keep: bool = False
) -> fx.GraphModule:
    """Writes the program's graph for the shapes of ``examples``: inputs, constants, ATen calls.

    In-place writes become functional. With ``keep``, parts that depend on the values of tensors
    become calls of functions (:class:`~nnapi_prof.graph.node.ScriptCall`). Raises FrontendError
    where the program keeps state between runs or has no straight form (see GraphTracer).
    """
    with quiet_torch():
        _refuse_state(program, name)
        try:
            return _concretised(program, examples, name, keep)
        except WritesToViews:  # slow, and decomposes more than wanted: only if necessary
            program = program.run_decompositions({})
            _refuse_state(program, name)
            return _concretised(program, examples, name, keep)
        except RuntimeError as error:  # such as of an operator that cannot run without data
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            raise FrontendError(
                f"{name} cannot become a graph: {essential_line(error)}{notes}"
            ) from error


def _refuse_state(program: ExportedProgram, name: str) -> None:
    if buffers := kept_buffers(program):
        raise KeepsState(
            f"{name} changes its buffer {next(iter(buffers))} whenever it runs (batch norm does"
            " this in training mode: call model.eval() before exporting): load it with"
            " nnapi_prof.load(), which makes an input and an output of such a buffer"
        )


def kept_buffers(program: ExportedProgram) -> dict[str, Tensor]:
    """Returns the stored values of buffers that each run of the program changes for the next."""
    stored = {**program.state_dict, **program.constants}
    return {
        str(spec.target): stored[str(spec.target)]
        for spec in program.graph_signature.output_specs
        if spec.kind in _STATE and not _is_counter(program, spec.target)
    }


def _is_counter(program: ExportedProgram, buffer: str | None) -> bool:
    """Returns whether a written buffer holds integers that no output depends on."""
    value = program.state_dict.get(buffer or "")
    if not isinstance(value, Tensor) or value.is_floating_point():
        return False
    signature = program.graph_signature
    user_outputs = {s.arg.name for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT}
    waiting = [n for n in program.graph.output_node().all_input_nodes if n.name in user_outputs]
    needed: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node.name not in needed:
            needed.add(node.name)
            waiting += node.all_input_nodes
    return not any(s.target == buffer and s.arg.name in needed for s in signature.input_specs)


def _concretised(
    program: ExportedProgram, examples: Sequence[Tensor], name: str, keep: bool
) -> fx.GraphModule:
    example_iter, concrete_iter = iter(examples), iter(examples)
    inputs, concrete = list[Any](), list[Any]()

    def run() -> Mapping[fx.Node, Any]:
        return concrete_values(program.graph, program.graph_module, concrete)

    tracer = PartsTracer(name, run) if keep else GraphTracer(name)
    lifted = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(_user_input(tracer, spec.arg, example_iter))
            is_tensor = _is_tensor(spec.arg)
            concrete.append(next(concrete_iter).clone() if is_tensor else inputs[-1])
            continue
        value = lifted.get(spec.target or "")
        if isinstance(value, Tensor):
            tracer.names.setdefault(value.data_ptr(), spec.target or "constant")
        inputs.append(value)
        concrete.append(value)
    returned = tracer.run(program.graph, program.graph_module, inputs)
    user_outputs = [
        value
        for spec, value in zip(program.graph_signature.output_specs, returned, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    return tracer.finish(user_outputs)


def _user_input(tracer: GraphTracer, argument: Any, example_iter: Any) -> Any:
    if _is_tensor(argument):
        return tracer.placeholder(argument.name, next(example_iter))
    return getattr(argument, "value", None)  # a constant the program was exported with


def find_inputs(
    program: ExportedProgram, stated: Sequence[InputSpec], name: str
) -> tuple[tuple[InputSpec, ...], tuple[Tensor, ...]]:
    """Returns the shapes of the inputs, stated or as exported, and inputs on which the program
    runs: those that it was exported with, as they are typical of the model, else random ones.
    Constant inputs such as zeros show little, so random ones are tried before them.

    Raises InputSpecError where stated shapes are not the program's, and with PyTorch's essential
    line where it does not run.
    """
    specs = tuple(stated) or stored_specs(program)
    check_specs(program, specs, name)
    module, failed = _module(program), None
    run = _on_flat_inputs(program, module)
    stored, random = _exported_with(program, specs), example_tensors(specs)
    candidates = [random] if stored is None else [stored, random]
    if stored is not None and not any(map(_varies, stored)):
        candidates.reverse()
    for examples in candidates:
        try:
            with run_once(), restored_buffers(module):
                run(*(example.clone() for example in examples))
        except Exception as error:
            failed = failed or error
        else:
            return specs, examples
    assert failed is not None
    raise InputSpecError(
        f"{name} does not run on the input {listed(specs)}: {essential_line(failed)}",
        f"state what it runs on with {shapes_or_values()}",
    ) from failed


def _varies(value: Tensor) -> bool:
    """Returns whether a tensor has several distinct values, or only one element."""
    return value.numel() == 1 or bool((value != value.flatten()[0]).any())


def _exported_with(
    program: ExportedProgram, specs: Sequence[InputSpec]
) -> tuple[Tensor, ...] | None:
    """Returns the example inputs that the export saved, if they have these shapes."""
    stored = [v for v in pytree.tree_leaves(program.example_inputs) if isinstance(v, Tensor)]
    shapes = [(tuple(v.shape), dtype_name(v.dtype)) for v in stored]
    if shapes != [(s.shape, s.dtype) for s in specs]:
        return None
    return tuple(value.detach().contiguous() for value in stored)


def _is_tensor(argument: Any) -> bool:
    return type(argument).__name__ == "TensorArgument"


def eager(program: ExportedProgram) -> Callable[..., object]:
    """Returns the program in eager PyTorch as a function of its tensor inputs, in graph order.

    Keywords, nesting and the constants it was exported with are restored.
    """
    return _on_flat_inputs(program, _module(program))


def _module(program: ExportedProgram) -> torch.nn.Module:
    try:
        return program.module()
    except SyntaxError as error:  # PyTorch writes names into Python code unescaped
        raise FrontendError(
            f"PyTorch cannot run the exported program ({error.msg}): a submodule's name with quotes"
            " or line breaks does that; rename it and export again"
        ) from error


def _on_flat_inputs(program: ExportedProgram, module: torch.nn.Module) -> Callable[..., object]:
    nested = nested_arguments(program)

    def run(*tensors: Tensor) -> object:
        args, kwargs = nested(tensors)
        return module(*args, **kwargs)

    return run


@contextlib.contextmanager
def restored_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Restores a model's buffers afterwards: a run may write them, and others read them. Values
    that a run returned change too, where they are the buffers themselves."""
    before = [
        (
            part._buffers,
            name,
            buffer,
            None if buffer is None else (_version(buffer), buffer.clone()),
        )
        for part in model.modules()
        for name, buffer in part._buffers.items()
    ]
    try:
        yield
    finally:
        for buffers, name, buffer, state in before:
            buffers[name] = buffer
            if buffer is not None and state is not None and _version(buffer) != state[0]:
                with torch.no_grad():
                    buffer.copy_(state[1])


def _version(tensor: Tensor) -> int:
    """Returns a number that grows with each write; an inference tensor cannot be written here."""
    return 0 if tensor.is_inference() else tensor._version


def nested_arguments(program: ExportedProgram) -> Callable[[Sequence[Tensor]], tuple[Any, Any]]:
    """Returns a function that nests flat tensors into the arguments of the program's call, by
    position and by name."""
    form = program.call_spec.in_spec
    arguments = [
        spec.arg
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]

    def nested(tensors: Sequence[Tensor]) -> tuple[Any, Any]:
        leaf_iter = iter(tensors)
        leaves = [
            next(leaf_iter) if _is_tensor(a) else getattr(a, "value", None) for a in arguments
        ]
        args, kwargs = pytree.tree_unflatten(leaves, form)
        return args, kwargs

    return nested


def tensor_inputs(program: ExportedProgram) -> list[fx.Node]:
    """Returns the placeholders of the tensor inputs, in order."""
    names = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and _is_tensor(spec.arg)
    }
    return [node for node in program.graph.nodes if node.name in names]


def stored_specs(program: ExportedProgram) -> tuple[InputSpec, ...]:
    """Returns the input shapes that a program was exported with; a free dimension has its hint."""
    values = [node.meta["val"] for node in tensor_inputs(program)]
    return tuple(InputSpec(tuple(map(_hint, v.shape)), dtype_name(v.dtype)) for v in values)


def _hint(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return int(hint) if hint is not None else 1


def check_specs(program: ExportedProgram, stated: Sequence[InputSpec], name: str) -> None:
    """Raises InputSpecError where stated shapes differ from those the program was exported for."""
    exported_for = stored_specs(program)
    check_count(name, len(stated), len(exported_for), len(exported_for))
    for node, spec, stored in zip(tensor_inputs(program), stated, exported_for, strict=True):
        sizes = node.meta["val"].shape
        fits = len(sizes) == len(spec.shape) and all(
            not isinstance(size, int) or size == size_now
            for size, size_now in zip(sizes, spec.shape, strict=True)
        )
        if not fits or spec.dtype != stored.dtype:
            raise InputSpecError(
                f"{name} was exported for the input {listed(exported_for)}, {listed(stated)} was "
                "stated",
                f"leave {option_name('input')} out or export the model again for other shapes",
            )


def check_stored(program: ExportedProgram, name: str) -> None:
    """Raises InputSpecError where the program takes an input that no device supports."""
    for node, spec in zip(tensor_inputs(program), stored_specs(program), strict=True):
        if spec.dtype not in DTYPES:
            raise InputSpecError(
                f"{name} takes {node.name} as {spec.dtype}, which no device has",
                "export the model"
                f" in float32, as model.float(), or with an input of {', '.join(DTYPES)}",
            )
        if 0 in spec.shape:
            raise InputSpecError(
                f"{name} takes {node.name} as {spec}, which has a dimension of 0: every size must"
                " be at least 1; export the model without that input"
            )


def check_open(program: ExportedProgram, specs: Sequence[InputSpec], name: str) -> None:
    """Raises InputSpecError where ``specs`` leave a size open that the export fixed."""
    for index, (node, spec) in enumerate(zip(tensor_inputs(program), specs, strict=False)):
        sizes = node.meta["val"].shape
        for dim in spec.open_dims:
            if dim < len(sizes) and isinstance(sizes[dim], int):
                raise InputSpecError(
                    f"{name} was exported with {sizes[dim]} as dimension {dim} of input {index}",
                    "export it with dynamic_shapes to leave that size open",
                )


def check_sizes(program: ExportedProgram, specs: Sequence[InputSpec], name: str) -> None:
    """Raises InputSpecError where the sizes of ``specs`` violate the constraints of the export:
    ranges, multiples and equal sizes."""
    values: dict[Any, int] = {}
    for node, spec in zip(tensor_inputs(program), specs, strict=True):
        for size, stated_size in zip(node.meta["val"].shape, spec.shape, strict=True):
            if isinstance(size, int):
                continue
            expression = size.node.expr
            (symbol,) = expression.free_symbols
            at_0, at_1 = (int(expression.subs(symbol, n)) for n in (0, 1))  # it is linear
            value, rest = divmod(stated_size - at_0, at_1 - at_0)
            bounds = program.range_constraints.get(symbol)
            if rest or (bounds is not None and not bounds.lower <= value <= bounds.upper):
                raise InputSpecError(
                    f"{name} was not exported for a size of {stated_size}: {expression}"
                )
            if values.setdefault(symbol, value) != value:
                raise InputSpecError(f"{name} was exported for equal sizes, {spec} was stated")
