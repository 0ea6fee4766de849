"""Judge outputs that differ from eager PyTorch's by what eager PyTorch itself leaves open.

Three things are left open: the step to which an intermediate value is rounded in 8 bits, which of
several values that are equal except for rounding is the largest, and the growth of rounding errors
in float32. Each is measured on the model and on the inputs of the run, never assumed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from nnapi_prof.execution.compare import QUANTISED_TOLERANCE, TOLERANCE
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.node import bound_args, makes_tensor, torch_dtype, type_of
from nnapi_prof.graph.program import Program, all_values
from nnapi_prof.graph.quantisation import is_quantize, stated_quantisation

aten = torch.ops.aten


def choose_inputs(program: Program, seed: int | None) -> tuple[Tensor, ...]:
    """Returns the inputs to run with: the program's examples (bundled ones where the file has
    them), or with a seed new ones of the same shapes: random normal floats, with integers and truth
    values kept."""
    if seed is None:
        return program.example_inputs
    random = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(value.shape, generator=random).to(value.dtype)
        if value.dtype.is_floating_point
        else value
        for value in program.example_inputs
    )


def last_step(program: Program, output: str) -> float:
    """Return the coarsest scale of the last roundings before an output; 0 without any.

    An output that is rounded itself consists of integers: its step is 1. Integer inputs of the
    model, such as a camera's bytes, are not rounded.
    """
    node = program.nodes[output]
    is_integers = makes_tensor(node) and type_of(node).quant is not None
    steps, seen, waiting = [0.0], {node}, [node]
    while waiting:
        node = waiting.pop()
        quant = stated_quantisation(node) if is_quantize(node) else None
        if quant is not None:
            steps.append(1.0 if is_integers else quant.scale)
        else:
            sources = [source for source in node.all_input_nodes if source not in seen]
            seen.update(sources)
            waiting += sources
    return max(steps)


def allow_ambiguous(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[Tensor],
    steps: Sequence[float],
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerance: float = TOLERANCE,
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """Return the checks and notes, with failures allowed that eager PyTorch leaves open.

    ``steps`` has :func:`last_step` of each output; ``tolerance`` is that of floats.
    """
    notes: list[str] = []
    checks, told = allow_halves(checks, program, inputs, actual, expected, tolerance)
    notes += told
    checks, told = allow_unsteady(checks, program, inputs, steps)
    notes += told
    checks, told = allow_decisions(checks, program, inputs, steps, actual, expected, tolerance)
    notes += told
    checks, told = allow_rounding(checks, program, inputs, steps, actual, expected, tolerance)
    return checks, [*notes, *told]


# ---- models in other types, which are computed in float32 ----------------------------------------


def allow_halves(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[Tensor],
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerance: float,
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """Return the checks of a widened program and notes, with failed outputs allowed that match
    eager PyTorch's in float32."""
    if not program.widened or all(check.ok for check in checks):
        return tuple(checks), []
    with torch.inference_mode():
        wide = program.module(*inputs)
    allowed, notes = [], []
    for check, mine, theirs, exact in zip(checks, actual, expected, wide, strict=True):
        half = exact.dtype in (torch.float16, torch.bfloat16)
        least = tolerance + (torch.finfo(exact.dtype).eps if half else 0.0)
        same = mine.shape == theirs.shape == exact.shape and _relative(mine, exact) <= least
        if not check.ok and same:
            check = replace(check, tolerance=check.relative)
            notes.append(
                f"{check.name} is what eager PyTorch gives in float32; the model computes in other"
                f" types on the way, which moves it by {_relative(exact, theirs):.1e} of its"
                " largest value"
            )
        allowed.append(check)
    return tuple(allowed), notes


# ---- quantised models whose outputs move far when one rounding goes the other way ----------------


NUDGE = 1 / 512
"""Half a step of 8 bits, relative to each input value."""


def allow_unsteady(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[Tensor],
    steps: Sequence[float],
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """Return the checks, with larger tolerances of failed quantised outputs, and notes.

    The tolerance is as large as eager PyTorch itself moves an output when the inputs move by NUDGE.
    ``steps`` has :func:`last_step` of each output.
    """
    doubtful = [
        not c.ok and step > 0 and not _is_decision(program, c.name)
        for c, step in zip(checks, steps, strict=True)
    ]
    if not any(doubtful):
        return tuple(checks), []
    with torch.inference_mode():
        exact = program.module(*inputs)
        moved = [program.module(*_nudged(inputs, sign * NUDGE)) for sign in (1, -1)]
    allowed, notes = [], []
    for index, (check, doubt) in enumerate(zip(checks, doubtful, strict=True)):
        jump = max(_relative(outputs[index], exact[index]) for outputs in moved) if doubt else 0.0
        if jump > check.tolerance:
            check = replace(check, tolerance=jump)
            notes.append(
                f"{check.name} is quantised and unsteady: in eager PyTorch, too, it moves by "
                f"{jump:.0%} of its largest value when the inputs move by {NUDGE:.1%} of themselves"
            )
        allowed.append(check)
    return tuple(allowed), notes


def _nudged(inputs: Sequence[Tensor], nudge: float) -> list[Tensor]:
    return [value * (1 + nudge) if value.is_floating_point() else value for value in inputs]


def _relative(moved: Tensor, exact: Tensor) -> float:
    largest = _largest_magnitude(exact)
    apart = (moved.double() - exact.double()).abs()
    return apart.max().item() / largest if largest > 0 else 0.0


def _largest_magnitude(values: Tensor) -> float:
    magnitudes = values.double().abs()
    magnitudes = magnitudes[magnitudes.isfinite()]
    return magnitudes.max().item() if magnitudes.numel() else 0.0


# ---- places, classes, masks and whole numbers: decisions about values in float -------------------


_FIRST = (aten.argmax.default, aten.argmin.default, aten.argsort.default)
"""Operations that return the places of values in their order."""
_SECOND = (aten.topk.default, aten.sort.default, aten.max.dim, aten.min.dim)
"""Operations that return values and, second, their places."""
_CASTS = (aten._to_copy.default, aten.clone.default)
_MOVES = (*_CASTS, *(aten.view.default, aten.reshape.default, aten.permute.default))
"""Operations that move or copy places without changing them."""


def _is_decision(program: Program, output: str) -> bool:
    """Returns whether an output has integers or truth values that do not stand for real numbers."""
    own = type_of(program.nodes[output])
    return own.quant is None and not torch_dtype(own.dtype).is_floating_point


def allow_decisions(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[Tensor],
    steps: Sequence[float],
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerance: float = TOLERANCE,
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """Return the checks and notes, with integers allowed that follow from floats within their
    tolerance.

    Places of the largest values (``argmax``, ``topk``, ``sort``) may name any value that is as
    large within the tolerance. Each other integer must lie between the model's results for values
    that are larger and smaller by the tolerance.
    """
    doubtful = [
        index
        for index, check in enumerate(checks)
        if not check.ok and _is_decision(program, check.name)
    ]
    allowed, notes = list(checks), list[str]()
    if not doubtful:
        return tuple(allowed), notes
    values = dict(zip(program.units.inputs, inputs, strict=True)) | all_values(program, inputs)

    def slack(value: Tensor, step: float) -> float:
        share = max(tolerance, QUANTISED_TOLERANCE) if step else tolerance
        return max(share * _largest_magnitude(value), 2.01 * step)

    for index in doubtful:
        mine, theirs, step = actual[index].long(), expected[index].long(), steps[index]
        if mine.shape != theirs.shape:
            continue
        ranking = _ranking(program.nodes[checks[index].name])
        if ranking is not None:
            ranked = values.get(ranking.values)
            if ranked is None:
                continue
            if not ranking.same(ranked, mine, theirs, slack(ranked, step)):
                wobble = 0.0 if step else _wobble(program, inputs, ranking.values)
                if not ranking.same(ranked, mine, theirs, MARGIN * wobble):
                    continue
            sentence = "names other places of equal values than eager PyTorch: which of them comes"
            sentence += " first is left open"
        else:
            own_slack = functools.partial(slack, step=step)
            shifted = [_Shifted(program.module, sign, own_slack) for sign in (1, 0, -1)]
            ends = torch.stack([run.run(*inputs)[index].long() for run in shifted])
            low, high = ends.amin(0), ends.amax(0)
            if not bool(((low <= mine) & (mine <= high)).all()):
                continue
            sentence = (
                f"has {int((mine != theirs).sum())} of {mine.numel()} integers otherwise than eager"
                " PyTorch, where values in float lie that near to the next integer"
            )
        check = checks[index]
        allowed[index] = replace(check, tolerance=check.relative)
        notes.append(f"{check.name} {sentence}")
    return tuple(allowed), notes


class _Shifted(fx.Interpreter):
    """Runs a graph with floats moved up or down where they become integers."""

    def __init__(self, module: fx.GraphModule, sign: int, slack: Callable[[Tensor], float]) -> None:
        super().__init__(module)
        self._sign, self._slack = sign, slack

    @torch.inference_mode()
    def run(self, *inputs: Any, **options: Any) -> Any:
        return super().run(*inputs, **options)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        floats = [a for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        if self._sign and floats and isinstance(result, Tensor) and not result.is_floating_point():
            first = floats[0]
            moved = first + self._sign * self._slack(first)
            args = tuple(moved if a is first else a for a in args)
            return super().call_function(target, args, kwargs)
        return result


@dataclass(frozen=True)
class _Ranking:
    """A node that returns places in the order of values, and the moves of these to an output."""

    node: fx.Node
    moves: tuple[fx.Node, ...]

    @property
    def values(self) -> str:
        """The name of the ranked values."""
        return str(bound_args(self.node)["self"].name)

    def same(self, ranked: Tensor, mine: Tensor, theirs: Tensor, slack: float) -> bool:
        """Returns whether two outputs name places of values that are equal within ``slack``, and
        ``mine`` names none twice."""
        args = bound_args(self.node)
        result = _call(self.node, ranked)
        places = result if isinstance(result, Tensor) else result[1]
        mine, theirs = self._unmoved(mine, places), self._unmoved(theirs, places)
        dim = args.get("dim")
        if dim is None:
            ranked, mine, theirs, dim = ranked.flatten(), mine.reshape(1), theirs.reshape(1), 0
        elif mine.dim() < ranked.dim():
            mine, theirs = mine.unsqueeze(dim), theirs.unsqueeze(dim)
        if not ranked.dim() or mine.min() < 0 or mine.max() >= ranked.shape[dim]:
            return False
        if (mine.sort(dim).values.diff(dim=dim) == 0).any():
            return False
        apart = (ranked.gather(dim, mine).double() - ranked.gather(dim, theirs).double()).abs()
        return bool((apart <= slack).all())

    def _unmoved(self, output: Tensor, places: Tensor) -> Tensor:
        """Returns the places of an output as they were before the moves."""
        origin = torch.arange(places.numel()).reshape(places.shape)
        for move in reversed(self.moves):
            if move.target not in _CASTS:
                origin = _call(move, origin)
        before = places.flatten().clone()
        before[origin.flatten()] = output.flatten()
        return before.reshape(places.shape)


def _call(node: fx.Node, first: Tensor) -> Any:
    """Repeats a node's call with another first argument."""
    assert callable(node.target)
    return node.target(first, *node.args[1:], **node.kwargs)


def _ranking(output: fx.Node) -> _Ranking | None:
    """Returns the ranking whose places an output has; None for any other output."""
    node, moves = output, []
    while node.target in _MOVES:
        moves.append(node)
        (node,) = node.all_input_nodes
    if node.target is operator.getitem and node.args[1] == 1:
        (node,) = node.all_input_nodes
        return _Ranking(node, tuple(moves)) if node.target in _SECOND else None
    return _Ranking(node, tuple(moves)) if node.target in _FIRST else None


# ---- floats whose rounding errors grow -----------------------------------------------------------


ROUNDING = 2.0**-20
"""Largest relative error that a run must expect of a result in float32: 8 units in the last place,
the difference between two orders of adding some thousand products."""
DRAWS = 3
"""Number of runs with random errors of that size."""
MARGIN = 2.0
"""Factor on an output's change in these runs: they are few, and a device's errors are others."""


def allow_rounding(
    checks: Sequence[OutputCheck],
    program: Program,
    inputs: Sequence[Tensor],
    steps: Sequence[float],
    actual: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerance: float = TOLERANCE,
) -> tuple[tuple[OutputCheck, ...], list[str]]:
    """Return the checks, with the tolerance of failed ones that eager PyTorch itself needs when
    each result is off by ROUNDING, and notes.

    Monte Carlo arithmetic (Parker, 1997): inputs and all float results are multiplied by random
    numbers next to 1. An output may then be off by MARGIN times as much as it moves, and at MARGIN
    times as many places: where rounding moves few places, a difference everywhere is an error.
    """
    doubtful = [
        index
        for index, check in enumerate(checks)
        if not check.ok and not steps[index] and not _is_decision(program, check.name)
    ]
    allowed, notes = list(checks), list[str]()
    if not doubtful:
        return tuple(allowed), notes
    exact = _Rounded(program.module, 0).run(*inputs)
    draws = [_Rounded(program.module, seed).run(*inputs) for seed in range(1, DRAWS + 1)]
    for index in doubtful:
        check = checks[index]
        if actual[index].shape != expected[index].shape:
            continue
        moved = [_relative(outputs[index], exact[index]) for outputs in draws]
        share = max(_share_off(outputs[index], exact[index], tolerance) for outputs in draws)
        jump = MARGIN * max(moved)
        off = _share_off(actual[index], expected[index], tolerance)
        if not check.relative <= jump or off > MARGIN * share:
            continue
        allowed[index] = replace(check, tolerance=jump)
        notes.append(
            f"{check.name} is unsteady in float32: in eager PyTorch, too, it moves by"
            f" {max(moved):.1e} of its largest value when every result is off by {ROUNDING:.0e} of"
            " itself; it was judged by that, and says little"
            if jump > LITTLE
            else f"{check.name} was judged by what rounding does in eager PyTorch: it moves by"
            f" {max(moved):.1e} of its largest value when every result is off by {ROUNDING:.0e} of"
            " itself"
        )
    return tuple(allowed), notes


def _wobble(program: Program, inputs: Sequence[Tensor], name: str) -> float:
    """Returns the largest change of an intermediate value by rounding."""
    runs = [_Rounded(program.module, seed, name) for seed in range(DRAWS + 1)]
    exact, *draws = [run.value_after(inputs) for run in runs]
    return max((value.double() - exact.double()).abs().max().item() for value in draws)


LITTLE = 0.05
"""Share of an output's largest value above which a tolerance shows only coarse faults."""


def _share_off(values: Tensor, exact: Tensor, least: float) -> float:
    """Returns the share of an output's places that are off by more than ``least`` of the largest
    value."""
    apart = (values.double() - exact.double()).abs()
    return (
        float((apart > least * _largest_magnitude(exact)).double().mean()) if apart.numel() else 0.0
    )


class _Rounded(fx.Interpreter):
    """Runs a graph with a random error of ROUNDING in inputs and results; none for seed 0."""

    def __init__(self, module: fx.GraphModule, seed: int, name: str | None = None) -> None:
        super().__init__(module)
        self._seed, self._name = seed, name
        self._value = torch.empty(0)
        self._random = torch.Generator().manual_seed(seed)

    @torch.inference_mode()
    def run(self, *inputs: Any, **options: Any) -> Any:
        return super().run(*inputs, **options)

    def value_after(self, inputs: Sequence[Tensor]) -> Tensor:
        """Returns the value called ``name`` in a run."""
        self.run(*inputs)
        return self._value

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op in ("placeholder", "call_function"):
            result = pytree.tree_map_only(Tensor, self._off, result)
        if n.name == self._name:
            self._value = result
        return result

    def _off(self, value: Tensor) -> Tensor:
        if not self._seed or not value.is_floating_point():
            return value
        error = torch.rand(value.shape, generator=self._random).to(value.dtype) * 2 - 1
        return value * (1 + ROUNDING * error)
