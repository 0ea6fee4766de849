"""Run the normalised graph in eager PyTorch and compare it with the model.

Views that eager PyTorch refuses become reshapes first. Models in other float types are computed in
float32, and a report says how far that moves their outputs.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.quant import plain
from nnapi_prof.frontend.torch_logging import essential_line, run_once
from nnapi_prof.frontend.tracer import IN_FLOATS
from nnapi_prof.graph.node import TENSOR, bound_args, calls, drawing_in_order, dtype_name
from nnapi_prof.graph.quantisation import is_quantize
from nnapi_prof.passes.promotion import is_in_doubles, narrow_doubles, widen_halves

aten = torch.ops.aten
TOLERANCE = 1e-3
"""Largest difference, relative to the largest finite output, between model and normalised graph.
Folding and channels-last kernels reorder float32 sums: 1e-6 is usual, 1e-4 was seen in deep models.
A wrong rewrite is off by far more."""
SMALLEST = torch.finfo(torch.float32).tiny
"""Smallest difference that counts: the smallest normal number of float32. Smaller ones are rounded
coarsely, or flushed to zero."""
QUANTISED_TOLERANCE = 0.1
"""``TOLERANCE`` of outputs behind a quantize node: if another order of sums or rounding of a tie
moves a value by one step, later values can move by several. Two steps are always allowed."""
NUDGE = 1e-6
"""Relative change of inputs that shows what rounding alone does to a model that ranks, picks or
rounds: among 300 boxes of nearly equal scores, another one comes first."""


class _Runner(fx.Interpreter):
    """Runs a graph and notes which views eager's strides forbid."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.refused: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except RuntimeError:
            if n.target is not aten.view.default:
                raise
            self.refused.append(n)
            args: Any = self.map_nodes_to_values(n.args, n)
            source, shape = args
            return source.reshape(shape)


def resolve_view_strides(
    module: fx.GraphModule,
    examples: Sequence[Tensor],
    model: Callable[..., tuple[Tensor, ...]],
    name: str,
) -> tuple[int, tuple[str, ...]]:
    """Turns views that eager's strides forbid into reshapes; compares the graph with the model.

    Passes drop ``contiguous`` and set dim orders, so a view may read strided memory. Returns the
    number of views changed and notes on the model. Raises FrontendError where the outputs differ
    from those of ``model`` by more than TOLERANCE, and by more than the model's own outputs do when
    its inputs move by NUDGE: such a bug must not pass silently.
    """
    runner = _Runner(module)
    try:
        with torch.no_grad(), drawing_in_order():
            outputs = runner.run(*(example.clone() for example in examples))
    except RuntimeError as error:
        raise FrontendError(
            f"{name}: the normalised graph does not run on the example inputs: "
            f"{essential_line(error)}: please report"
        ) from error
    for node in runner.refused:
        node.target = aten.reshape.default
    module.recompile()

    def wanted(nudge: float = 0.0) -> tuple[Tensor, ...]:
        return model(*(_nudged(example, nudge) for example in examples))

    listed = module.graph.output_node().args[0]
    assert isinstance(listed, tuple | list)
    steps = [_step(node) if isinstance(node, fx.Node) else 0.0 for node in listed]
    engine = str(torch.backends.quantized.engine)
    try:
        _compare(outputs, wanted(), steps, name)
    except FrontendError as refusal:
        if engine == "qnnpack" and any(map(is_quantize, module.graph.nodes)):
            others = (e for e in _ENGINES if e in torch.backends.quantized.supported_engines)
            with quantised_engine(next(others)):
                _compare(outputs, wanted(), steps, name)
            return len(runner.refused), (_QNNPACK,)
        return len(runner.refused), _unsteady(outputs, wanted, name, refusal)
    return len(runner.refused), ()


def flat_outputs(model: Callable[..., object]) -> Callable[..., tuple[Tensor, ...]]:
    """Returns the model with its outputs flattened to a tuple of tensors, with integers for
    quantised ones."""

    def run(*args: Tensor) -> tuple[Tensor, ...]:
        with run_once(), drawing_in_order():
            leaves = pytree.tree_leaves(model(*args))
        return tuple(plain(leaf) for leaf in leaves if isinstance(leaf, Tensor))

    return run


def largest_move(
    ours: Callable[..., tuple[Tensor, ...]],
    theirs: Callable[..., tuple[Tensor, ...]],
    examples: Sequence[Tensor],
) -> float:
    """Returns the largest difference between outputs of two functions on the examples, relative to
    the largest value of that output of the second."""
    with torch.no_grad():
        both = zip(ours(*examples), theirs(*examples), strict=True)
        moves = [_distance(a, b) / (_largest_magnitude(b) or 1.0) for a, b in both]
    return max(moves, default=0.0)


FEW_OPERATIONS = ("float64",)
"""Element types for which devices have few operations, and no layers."""


def element_type_notes(graph: fx.Graph) -> tuple[str, ...]:
    """Suggests remedies for a model that computes in one of FEW_OPERATIONS."""
    types = [type_.dtype for node in calls(graph) if (type_ := node.meta.get(TENSOR)) is not None]
    few = [dtype for dtype in types if dtype in FEW_OPERATIONS]
    if not few:
        return ()
    return (
        f"{len(few)} of {len(types)} operations compute in {' and '.join(sorted(set(few)))};"
        " devices have few operations and no layers for it, so they stay in eager PyTorch. Where"
        " float32 is accurate enough, save the model with model.float()",
    )


def draw_notes(drawing: Sequence[str]) -> tuple[str, ...]:
    """Returns a note on random numbers that names the nodes drawing them."""
    if not drawing:
        return ()
    return (
        f"the model draws random numbers ({', '.join(drawing)}): eager PyTorch draws them, and"
        " outputs are compared for the same numbers",
    )


_QNNPACK = (
    "PyTorch's qnnpack engine gives other outputs than its other engines: its clamp and ReLU6 mix"
    " up the elements of images that lie channels last, its average pools always count padding;"
    " NNAPI computes what the others do"
)


def _nudged(example: Tensor, nudge: float) -> Tensor:
    if not nudge or not example.is_floating_point():
        return example.clone()
    return example + example.abs() * nudge


def _unsteady(
    outputs: Sequence[Tensor],
    reference: Callable[[float], tuple[Tensor, ...]],
    name: str,
    refusal: FrontendError,
) -> tuple[str, ...]:
    """Returns a note that a model's outputs jump when its inputs barely move, which explains the
    error of ``outputs``. Raises ``refusal`` where that does not explain it."""
    exact = reference(0.0)
    if [ours.shape for ours in outputs] != [theirs.shape for theirs in exact]:
        raise refusal
    nudged = [reference(nudge) for nudge in (NUDGE, -NUDGE, 2 * NUDGE, -2 * NUDGE)]
    largest = 0.0
    for index, (ours, theirs) in enumerate(zip(outputs, exact, strict=True)):
        jump = max(_distance(other[index], theirs) for other in nudged)
        apart = _distance(ours, theirs)
        if apart == torch.inf or apart > max(
            TOLERANCE * _largest_magnitude(theirs), SMALLEST, 2 * jump
        ):
            raise refusal
        largest = max(largest, jump)
    return (
        f"inputs that change by {NUDGE:g} of themselves change the outputs of {name} by up to"
        f" {largest:.2g}, as where it ranks values that are nearly equal: rounding on another"
        " device will, too",
    )


def _distance(ours: Tensor, theirs: Tensor) -> float:
    """Returns the largest difference of two tensors of one shape; infinite where only one of two
    values is a number."""
    ours, theirs = ours.double(), theirs.double()
    apart = (ours - theirs).abs()
    apart[(ours == theirs) | (ours.isnan() & theirs.isnan())] = 0.0
    apart[apart.isnan()] = torch.inf
    return apart.max().item() if apart.numel() else 0.0


def _largest_magnitude(value: Tensor) -> float:
    """Returns the largest finite magnitude."""
    finite = value[value.isfinite()].abs().double()  # a logarithm also has infinite ones
    return finite.max().item() if finite.numel() else 0.0


_ENGINES = ("x86", "fbgemm", "onednn", "none")


@contextlib.contextmanager
def quantised_engine(name: str) -> Iterator[None]:
    """Switches the engine of quantised operators; packed weights keep theirs."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def _step(output: fx.Node) -> float:
    """Returns the coarsest scale of the quantize nodes nearest to an output; 0 without any."""
    output_type = output.meta.get(TENSOR)
    if output_type is not None and output_type.quant is not None:
        return 1.0
    steps, seen, waiting = [0.0], {output}, [output]
    while waiting:
        node = waiting.pop()
        if is_quantize(node):
            steps.append(float(bound_args(node)["scale"]))
            continue
        new = [source for source in node.all_input_nodes if source not in seen]
        seen.update(new)
        waiting += new
    return max(steps)


def _compare(
    outputs: Sequence[Tensor], reference: Sequence[Tensor], steps: Sequence[float], name: str
) -> None:
    if len(outputs) != len(reference):
        raise FrontendError(
            f"{name}: the graph has {len(outputs)} outputs, the model {len(reference)}: please "
            "report"
        )
    pairs = zip(outputs, reference, steps, strict=True)
    for index, (ours, theirs, step) in enumerate(pairs):
        if ours.shape != theirs.shape:
            raise FrontendError(
                f"{name}: output {index} of the normalised graph has the shape "
                f"{tuple(ours.shape)}, the model's {tuple(theirs.shape)}: please report"
            )
        # Without its optimiser, as here, TorchScript treats numbers as float64 or int64 tensors.
        if ours.dtype != theirs.dtype and theirs.dtype not in (torch.float64, torch.int64):
            raise FrontendError(
                f"{name}: output {index} of the normalised graph is {dtype_name(ours.dtype)}, the "
                f"model's {dtype_name(theirs.dtype)}: please report"
            )
        ours, theirs = ours.double(), theirs.double()
        scale = _largest_magnitude(theirs)
        allowed = max(2.01 * step, QUANTISED_TOLERANCE * scale) if step else TOLERANCE * scale
        atol = max(allowed, SMALLEST)
        if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=atol, equal_nan=True):
            raise FrontendError(
                f"{name}: output {index} of the normalised graph differs from the model's by "
                f"{(ours - theirs).abs().max().item():.3g} on example inputs: please report"
            )


MOST = 1e-4
"""Largest move of an output through float32 in place of float64, relative to its largest value."""

Outputs = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Float32Report:
    """The changes that :func:`in_float32` made, if any, as notes."""

    changed: bool
    notes: tuple[str, ...]


def in_float32(
    graph: fx.GraphModule, own: Outputs, examples: Sequence[Tensor]
) -> tuple[fx.GraphModule, Outputs, Float32Report]:
    """Computes half precision, float64, and parts that round in every step, in float32.

    ``own`` runs the model. Returns the graph, a function that gives its expected outputs, and a
    report. float64 stays where float32 would move the outputs by more than MOST, as for times in
    seconds since 1970.
    """
    notes, changed = [], False
    if parts := graph.meta.get(IN_FLOATS, 0):
        computed = _as_it_is(graph)
        notes.append(
            f"{parts} parts of the model, recurrences that are quantised dynamically or what runs"
            " under autocast, round in every step: they compute in float32 with the weights as they"
            f" are, which moves its outputs by up to {largest_move(computed, own, examples):.1e} of"
            " their largest value"
        )
        own, changed = computed, True
    if halves := widen_halves(graph.graph):
        graph.recompile()
        computed = _as_it_is(graph)
        notes.append(
            f"{halves} values of the model are in half precision: they are computed in float32,"
            f" which moves its outputs by up to {largest_move(computed, own, examples):.1e} of"
            " their largest value; --float16 has NNAPI compute in halves"
        )
        own, changed = computed, True
    if is_in_doubles(graph.graph):
        single = copy.deepcopy(graph)
        doubles = narrow_doubles(single.graph)
        single.recompile()
        computed = _as_it_is(single)
        move = largest_move(computed, own, examples)
        if move <= MOST:
            notes.append(
                f"{doubles} values of the model are in float64: they are computed in float32, which"
                f" moves its outputs by up to {move:.1e} of their largest value"
            )
            graph, own, changed = single, computed, True
        else:
            notes.append(
                f"float64 stays: in float32 the model's outputs would move by {move:.1e} of their"
                " largest value"
            )
    return graph, own, Float32Report(changed, tuple(notes))


def _as_it_is(graph: fx.GraphModule) -> Outputs:
    """Returns the graph's outputs as a function that later passes do not change."""
    return flat_outputs(copy.deepcopy(graph))
