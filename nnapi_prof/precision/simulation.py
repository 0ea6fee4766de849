"""Simulate plans on this host, with NNAPI's own arithmetic, to find the effect of precisions.

Units in float32 run in eager PyTorch. Those in 8 bits, float16 or relaxed run as one NNAPI model
each, on a compiler of regions on the host; float16, which rounds after every operation, stands for
relaxed. Nothing is lost between units of one precision: in 8 bits integers are passed, and a
float16 number is also a float32 number. So a unit alone computes the same as in any larger region.

Sums that are rounded to float16 at every step, as in Arm's kernels, have an additional error. A sum
of K products p_i that is rounded after each is off by a random walk: step k moves it by a part of
the partial sum s_k, uniform within half a unit in the last place. Over the mantissas of floats that
has a variance of :data:`STEP` s_k^2. Where products are in random order, the mean of s_k^2 over the
steps is about sum(p_i^2) / 6 + (b^2 + b y + y^2) / 3: a walk between two ends, the bias b and the
result y. So the result has a normal error of variance K STEP times that. Adding a zero rounds
nothing, so K is the number of nonzero products: the result of the same operation on indicators of
nonzero elements, as sum(p_i^2) is that on squares.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, to_float16
from nnapi_prof.errors import ConversionError, DeviceError, UnsupportedOp
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import Precision
from nnapi_prof.graph.program import Program, all_values, constant_outputs
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE, RANGES
from nnapi_prof.nnapi.codes import OperationCode
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.program import QuantisedProgram, quantise

aten = torch.ops.aten

STEP = 2.0**-20 / 12 * (3 / (8 * math.log(2)))
"""Variance of rounding to float16, relative to a number's square. A unit in the last place is 2^-10
of the power of two below the number; relative to the number, the mean of its square over mantissas
from 1 to 2 is 3 / (8 ln 2) of 2^-20."""


BIASES: Mapping[Any, int | None] = {
    aten.convolution.default: 2,
    aten.linear.default: 2,
    aten.addmm.default: 0,
    aten.mm.default: None,
    aten.bmm.default: None,
    aten.matmul.default: None,
}
"""Operators that add up products -> position of the argument that is added to them. Means, pools
and softmax add up in float32 on such a CPU, too."""
NARROW_DOUBT = 1.25
"""Largest factor, either way, between the error of sums in float16 and that of the model here
(tests/precision/test_simulation.py)."""

CPU_HALVES = frozenset(
    {
        *(OperationCode.ABS, OperationCode.ADD, OperationCode.BATCH_MATMUL),
        *(OperationCode.CONV_2D, OperationCode.DIV, OperationCode.ELU),
        *(OperationCode.FLOOR, OperationCode.FULLY_CONNECTED, OperationCode.GROUPED_CONV_2D),
        *(OperationCode.HARD_SWISH, OperationCode.LOGISTIC, OperationCode.MAXIMUM),
        *(OperationCode.MAX_POOL_2D, OperationCode.MEAN, OperationCode.MINIMUM),
        *(OperationCode.MUL, OperationCode.NEG, OperationCode.PRELU),
        *(OperationCode.REDUCE_SUM, OperationCode.RELU, OperationCode.RELU1),
        *(OperationCode.RELU6, OperationCode.RESIZE_BILINEAR, OperationCode.SUB),
        OperationCode.TRANSPOSE_CONV_2D,
    }
)
"""Operations that XNNPACK computes in float16 where the CPU may, as in xnnpack_half.c of the
runtime; tests/agent/test_half.py compares the two."""
NATIVE_HALVES = CPU_HALVES | {OperationCode.DEPTHWISE_CONV_2D}
"""Operations in float16 where the processor has arithmetic for it."""
MOVES = frozenset(
    {
        *(OperationCode.CONCATENATION, OperationCode.DEPTH_TO_SPACE, OperationCode.EXPAND_DIMS),
        *(OperationCode.PAD, OperationCode.PAD_V2, OperationCode.RESHAPE, OperationCode.SLICE),
        *(OperationCode.SPACE_TO_DEPTH, OperationCode.SPLIT, OperationCode.SQUEEZE),
        *(OperationCode.STRIDED_SLICE, OperationCode.TRANSPOSE),
    }
)
"""Operations that only move data, and do so in the precision of their neighbours."""


def kept_in_float32(program: Program, units: Iterable[int], native: bool) -> frozenset[int]:
    """Return those of ``units`` that a CPU computes in float32 while it computes others in float16,
    ``native``ly or by converting: XNNPACK has none of their operations in float16."""
    halves = NATIVE_HALVES if native else CPU_HALVES
    in_float32 = set()
    for unit in units:
        try:
            model = convert_region(program, [unit], HOST_LEVEL).model
        except (UnsupportedOp, ConversionError):
            continue  # assumed to be in float16, which has the larger error
        codes = {operation.code for operation in model.operations}
        if codes.isdisjoint(halves) and not codes <= MOVES:
            in_float32.add(unit)
    return frozenset(in_float32)


def to_half(value: object) -> object:
    """Returns a tensor of floats rounded to float16; anything else unchanged."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.half().to(value.dtype)
    return value


def error_spread(target: Any, args: tuple[Any, ...], result: Any) -> Tensor | None:
    """Returns the standard deviation of the error of each number in the ``result`` of an operator
    called with ``args``; None where nothing is added up in float16."""
    if target not in BIASES:
        return None
    squared = [arg.square() if isinstance(arg, Tensor) else arg for arg in args]
    present = [(arg != 0).to(arg.dtype) if isinstance(arg, Tensor) else arg for arg in args]
    first: Any = 0.0
    place = BIASES[target]
    if place is not None and place < len(args) and args[place] is not None:
        first = args[place]
        squared[place] = present[place] = torch.zeros_like(first)
        if target is aten.convolution.default:
            first = first.reshape(-1, *[1] * (result.ndim - 2))
    power, terms = target(*squared), target(*present)
    way = (first * first + first * result + result.square()) / 3
    return torch.sqrt(terms * STEP * (power / 6 + way))


HOST_LEVEL = 30
"""Feature level of the host's library, as devices report it; float16 is lowered for it."""

Assignment = Mapping[int, Precision]
"""Unit -> its precision; float32 where a unit is absent."""


class CompiledRegion(Protocol):
    """Region that can run on this host."""

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs the region on logical tensors in the order of its inputs; returns its outputs."""
        ...


class Nnapi(Protocol):
    """Compiler of regions on this host: :class:`nnapi_prof.device.host_nnapi.HostNnapi`."""

    def compile(self, region: Region) -> CompiledRegion: ...


class _Interpreter(fx.Interpreter):
    """Interpreter that copies instead of making views, since NNAPI's values may be laid out
    differently from eager PyTorch's."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        plain = aten.reshape.default if target is aten.view.default else target
        return super().call_function(plain, args, kwargs)


class _NarrowInterpreter(_Interpreter):
    """Interpreter in float16 with sums rounded at every step: it adds one draw of their errors,
    which is the same in each process."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._draws = torch.Generator().manual_seed(0)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args = tree_map(to_half, args)
        result = super().call_function(target, args, kwargs)
        spread = error_spread(target, args, result)
        if spread is not None:
            result = result + spread * torch.randn(result.shape, generator=self._draws)
        return tree_map(to_half, result)


class EagerUnits:
    """Runs units of a program in eager PyTorch from given values; with ``narrow``, in float16 with
    sums rounded at every step."""

    def __init__(self, program: Program, narrow: bool = False) -> None:
        self._interpreter = (_NarrowInterpreter if narrow else _Interpreter)(program.module)
        nodes = program.nodes
        self._nodes = nodes
        self._constants = {
            node: self._interpreter.run_node(node)
            for node in program.module.graph.nodes
            if node.op == "get_attr"
        }
        self._units = [[nodes[name] for name in unit.nodes] for unit in program.units.units]
        self._program = program

    def run(self, units: Sequence[int], values: dict[str, Tensor]) -> None:
        """Computes units, in this order, from ``values``, and adds their outputs to it."""
        interpreter, graph = self._interpreter, self._program.units
        interpreter.env = dict(self._constants)
        with torch.inference_mode():
            for index in units:
                for name in graph.units[index].inputs:
                    interpreter.env[self._nodes[name]] = values[name]
                for node in self._units[index]:
                    if node not in self._constants:
                        interpreter.env[node] = interpreter.run_node(node)
                for name in graph.units[index].outputs:
                    values[name] = interpreter.env[self._nodes[name]]


class PrecisionSimulation:
    """Simulation of a float program with its units in any precision.

    ``level`` is the feature level that 8-bit units are lowered for, as devices report it; at older
    ones, some compute in float32 between integers. Without a recipe there is no int8.
    """

    def __init__(
        self,
        program: Program,
        nnapi: Nnapi,
        recipe: Recipe | None = None,
        level: int = HOST_LEVEL,
    ) -> None:
        self.program = program
        self.recipe = recipe
        self._nnapi = nnapi
        self._level = level
        self._eager = EagerUnits(program)
        self._constants = constant_outputs(program)
        self._compiled: dict[tuple[int, Precision], tuple[Region, CompiledRegion]] = {}
        self._refusals: dict[tuple[int, Precision], str] = {}

    @cached_property
    def _quantised(self) -> QuantisedProgram:
        assert self.recipe is not None
        return quantise(self.program, self.recipe)

    @cached_property
    def _float_names(self) -> Mapping[str, str]:
        """Value in 8 bits -> its value in the float program."""
        return {integers: name for name, integers in self._quantised.integers.items()}

    @cached_property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """For each unit, the other units that depend on its outputs, in order."""
        graph = self.program.units
        rows: list[tuple[int, ...]] = []
        for unit in graph.units:
            after = {unit.index}
            for other in graph.units[unit.index + 1 :]:
                if not after.isdisjoint(graph.predecessors(other.index)):
                    after.add(other.index)
            rows.append(tuple(sorted(after - {unit.index})))
        return tuple(rows)

    def refusal(self, unit: int, precision: Precision) -> str | None:
        """Returns why a unit cannot be in a precision, in a sentence; None where it can."""
        self._prepare(unit, precision)
        return self._refusals.get((unit, precision))

    def values(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Returns every value between units in float32."""
        return all_values(self.program, inputs)

    def reference(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the outputs in float32."""
        return self._outputs(self.values(inputs))

    def alone(
        self, unit: int, precision: Precision, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        """Returns the program's outputs with only this unit in a precision; ``values`` are those of
        :meth:`values`."""
        current = dict(values)
        self._run(unit, precision, current, {})
        self._eager.run(self.dependents[unit], current)
        return self._outputs(current)

    @cached_property
    def _narrow(self) -> EagerUnits:
        return EagerUnits(self.program, narrow=True)

    @cached_property
    def summing(self) -> frozenset[int]:
        """Units that add up products, so that sums in float16 affect them."""
        nodes = self.program.nodes
        return frozenset(
            unit.index
            for unit in self.program.units.units
            if any(nodes[name].target in BIASES for name in unit.nodes)
        )

    def alone_narrow(self, unit: int, values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Returns the outputs like :meth:`alone`, in float16 with sums rounded at every step."""
        current = dict(values)
        self._narrow.run([unit], current)
        self._eager.run(self.dependents[unit], current)
        return self._outputs(current)

    def outputs(
        self,
        assignment: Assignment,
        inputs: Sequence[Tensor],
        narrow: Collection[int] = (),
    ) -> tuple[Tensor, ...]:
        """Returns the program's outputs with each unit in its precision; ``narrow`` are units in
        float16 whose sums are rounded at every step."""
        graph = self.program.units
        values: dict[str, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
        integers: dict[str, Tensor] = {}
        waiting: list[int] = []
        for unit in graph.units:
            precision = assignment.get(unit.index, Precision.FLOAT32)
            if precision is Precision.FLOAT32:
                waiting.append(unit.index)
                continue
            self._eager.run(waiting, values)
            waiting = []
            if unit.index in narrow:
                self._narrow.run([unit.index], values)
            else:
                self._run(unit.index, precision, values, integers)
        self._eager.run(waiting, values)
        return self._outputs(values)

    def _outputs(self, values: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            self._constants[name] if name in self._constants else values[name]
            for name in self.program.units.outputs
        )

    def _run(
        self,
        unit: int,
        precision: Precision,
        values: dict[str, Tensor],
        integers: dict[str, Tensor],
    ) -> None:
        """Runs a unit from float values; adds its outputs as floats to ``values``, and those in 8
        bits to ``integers``."""
        self._prepare(unit, precision)
        if (unit, precision) in self._refusals:
            raise ConversionError(
                f"unit {unit} of {self.program.name} ({self.program.units.units[unit].label}) "
                f"cannot be in {precision.value}: {self._refusals[unit, precision]}"
            )
        region, compiled = self._compiled[unit, precision]
        if precision is not Precision.INT8:
            results = compiled.run([values[name] for name in region.inputs])
            values.update(zip(region.outputs, results, strict=True))
            return
        inputs = [self._integers(name, values, integers) for name in region.inputs]
        for name, result in zip(region.outputs, compiled.run(inputs), strict=True):
            float_name = self._float_names.get(name, name)
            if float_name == name:
                values[name] = result
                continue
            integers[float_name] = result
            values[float_name] = DEQUANTIZE(result, *self._numbers(float_name))

    def _integers(
        self, name: str, values: Mapping[str, Tensor], integers: dict[str, Tensor]
    ) -> Tensor:
        """Returns the value that a unit in 8 bits reads under this name."""
        float_name = self._float_names.get(name, name)
        if float_name == name:  # indices and the like, which stay as they are
            return values[name]
        if float_name not in integers:
            integers[float_name] = QUANTIZE(values[float_name], *self._numbers(float_name))
        return integers[float_name]

    def _numbers(self, name: str) -> tuple[float, int, int, int, torch.dtype]:
        assert self.recipe is not None
        quant, dtype = self.recipe.values[name], self.recipe.dtype
        return quant.scale, quant.zero_point, *RANGES[dtype], torch_dtype(dtype)

    def _prepare(self, unit: int, precision: Precision) -> None:
        """Compiles a unit, or stores the reason why that fails."""
        key = (unit, precision)
        if key in self._compiled or key in self._refusals:
            return
        try:
            region = self._region(unit, precision)
            self._compiled[key] = region, self._nnapi.compile(region)
        except (UnsupportedOp, ConversionError, DeviceError) as error:
            self._refusals[key] = str(error)

    def _region(self, unit: int, precision: Precision) -> Region:
        """Lowers a unit in a precision. Raises UnsupportedOp, ConversionError."""
        if precision is not Precision.INT8:
            return to_float16(convert_region(self.program, [unit], HOST_LEVEL))
        if self.recipe is None:
            raise ConversionError("nothing was calibrated for 8 bits")
        if unit not in self.recipe.units:
            raise ConversionError(self.recipe.refusals.get(unit, "the recipe for 8 bits lacks it"))
        index = self._quantised.unit_of[unit]
        return convert_region(self._quantised.program, [index], self._level)
