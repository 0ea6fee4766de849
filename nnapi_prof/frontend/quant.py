"""Put eager-mode quantised TorchScript into the graph's form: dequantize, float operator, quantize.

:class:`Quantised` is a quantised tensor: the integers that the graph holds, with their scale and
zero point. This form computes the same as PyTorch's quantised kernels, to within one step of the
result's scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from nnapi_prof.frontend.calls import Step, TracedValue
from nnapi_prof.frontend.tracer import GraphTracer
from nnapi_prof.graph.node import bind
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE

aten = torch.ops.aten
INTEGERS = {torch.quint8: torch.uint8, torch.qint8: torch.int8}
_SCALAR_TYPES: dict[Any, torch.dtype] = {12: torch.qint8, 13: torch.quint8, 14: torch.qint32}
"""Element types as TorchScript numbers them."""
_LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


class NoFloatForm(Exception):
    """A quantised operator that is not supported here; the message names it."""


@dataclass(eq=False)
class Quantised:
    """A quantised value that depends on the inputs. ``dtype`` is torch.quint8 or torch.qint8.

    Writing to the value in place makes ``value`` the integers of the new one.
    """

    value: TracedValue
    scale: float
    zero_point: int
    dtype: torch.dtype

    @property
    def fake(self) -> Tensor:
        return self.value.fake


def plain(value: Any) -> Any:
    """Returns the integers of a quantised tensor, and any other value as it is."""
    if isinstance(value, Quantised):
        return value.value
    if isinstance(value, Tensor) and value.is_quantized:
        return value.int_repr()
    return value


def plain_inputs(model: Callable[..., Any], examples: Sequence[Tensor]) -> Callable[..., Any]:
    """Returns ``model`` as a function that takes the integers of quantised inputs."""
    if not any(example.is_quantized for example in examples):
        return model

    def run(*inputs: Tensor) -> Any:
        return model(
            *(
                torch._make_per_tensor_quantized_tensor(
                    value, example.q_scale(), example.q_zero_point()
                )
                if example.is_quantized
                else value
                for value, example in zip(inputs, examples, strict=True)
            )
        )

    return run


def quantised_input(tracer: GraphTracer, name: str, example: Tensor) -> TracedValue | Quantised:
    """Adds an input of the model; a quantised one enters as its integers."""
    value = tracer.placeholder(name, plain(example))
    if not example.is_quantized:
        return value
    return Quantised(value, example.q_scale(), example.q_zero_point(), example.dtype)


def is_quantised(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Quantised) for value in pytree.tree_leaves(values))


class QuantisedCalls:
    """Carries out calls that take or return quantised tensors."""

    def __init__(self, tracer: GraphTracer) -> None:
        self.tracer = tracer

    def call(self, target: OpOverload, args: tuple[Any, ...], kwargs: Any, where: str) -> Any:
        """Returns the result of a call. Raises NoFloatForm for unsupported operators."""
        namespace, _, packet = target._schema.name.partition("::")
        bound = bind(target, args, kwargs)
        if packet == "quantize_per_tensor":
            scale, zero_point = (
                _as_python_number(bound["scale"]),
                _as_python_number(bound["zero_point"]),
            )
            return self._quantize(bound["self"], scale, int(zero_point), bound["dtype"], where)
        if namespace == "quantized":
            return self._quantized(target, packet, bound, where)
        if packet in _ASKS:
            return _ASKS[packet](bound["self"])
        if packet == "dequantize":
            return pytree.tree_map(lambda v: self._float(v, where), next(iter(bound.values())))
        if packet in _ON_INTEGERS:
            return self._moved(target, args, kwargs, where)
        return self._as_float(target, packet, args, kwargs, where)

    def step(self, target: OpOverload, args: Sequence[Any], where: str) -> Any:
        """Carries out a call of the graph."""
        hint = target._schema.name.partition("::")[2].strip("_")
        return self.tracer.call(Step(target, tuple(args), {}, where, hint))

    def _quantize(
        self, value: Any, scale: float, zero_point: int, dtype: torch.dtype, where: str
    ) -> Quantised:
        dtype = _SCALAR_TYPES.get(dtype, dtype)
        if dtype not in INTEGERS or not isinstance(value, TracedValue):
            raise NoFloatForm(f"quantize_per_tensor to {dtype}")
        integers = INTEGERS[dtype]
        numbers = (float(scale), zero_point, *_LIMITS[integers], integers)
        rounded = self.step(QUANTIZE, (value, *numbers), where)
        return Quantised(rounded, float(scale), zero_point, dtype)

    def _float(self, value: Any, where: str) -> Any:
        """Returns the floats of a quantised value or constant, and any other value as it is."""
        if isinstance(value, Quantised):
            integers = INTEGERS[value.dtype]
            numbers = (value.scale, value.zero_point, *_LIMITS[integers], integers)
            return self.step(DEQUANTIZE, (value.value, *numbers), where)
        if isinstance(value, Tensor) and value.is_quantized:
            return self.weight(value, where)
        return value

    def weight(self, value: Tensor, where: str) -> Any:
        """Returns the floats of a quantised constant, by a dequantize node where possible."""
        if value.dtype not in INTEGERS:
            return value.dequantize()
        integers = INTEGERS[value.dtype]
        limits = (*_LIMITS[integers], integers)
        if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            numbers = (value.q_scale(), value.q_zero_point(), *limits)
            return self.step(DEQUANTIZE, (value.int_repr(), *numbers), where)
        scales = value.q_per_channel_scales()
        zeros, axis = value.q_per_channel_zero_points(), value.q_per_channel_axis()
        if zeros.is_floating_point():
            return value.dequantize()
        args = (value.int_repr(), scales, zeros, axis, *limits)
        return self.step(DEQUANTIZE_CHANNELS, args, where)

    def _quantized(self, target: OpOverload, packet: str, bound: dict[str, Any], where: str) -> Any:
        base = packet if packet in _FLOAT_FORMS else packet.removesuffix("_relu")
        if base == "dropout" and not bound["training"]:
            return bound["self"]
        form = _FLOAT_FORMS.get(base)
        if form is None or "out" in bound:
            raise NoFloatForm(f"quantized::{packet}")
        floats = {
            name: pytree.tree_map(lambda v: self._float(v, where), value)
            for name, value in bound.items()
        }
        result = form(self, floats, where)
        if base != packet:
            result = self.step(aten.relu.default, (result,), where)
        scale = next((bound[n] for n in _SCALES if bound.get(n) is not None), None)
        if scale is None:
            return self._like_pytorch(result, target, list(bound.values()), {}, where)
        zero_point = next(bound[n] for n in _ZERO_POINTS if bound.get(n) is not None)
        leaves = pytree.tree_leaves(list(bound.values()))
        dtype = next(leaf.dtype for leaf in leaves if isinstance(leaf, Quantised))
        return self._quantize(
            result, _as_python_number(scale), int(_as_python_number(zero_point)), dtype, where
        )

    def _like_pytorch(
        self, results: Any, target: OpOverload, args: Sequence[Any], kwargs: Any, where: str
    ) -> Any:
        """Quantizes ``results``, a value or several, as PyTorch quantizes the result of this call.
        The call runs on zeros for that: scale and zero point follow from those of the arguments,
        never from their elements."""
        real_args, real_kwargs = pytree.tree_map(_sample, (tuple(args), kwargs))
        with torch.no_grad():
            try:
                result = target(*real_args, **real_kwargs)
            except (RuntimeError, TypeError) as error:
                raise NoFloatForm(f"{target._schema.name} of quantised tensors") from error

        def quantised(value: Any, like: Any) -> Any:
            if not isinstance(like, Tensor) or not like.is_quantized:
                return value
            return self._quantize(value, like.q_scale(), like.q_zero_point(), like.dtype, where)

        if isinstance(results, TracedValue):
            return quantised(results, result)
        return [quantised(value, like) for value, like in zip(results, result, strict=True)]

    def _moved(self, target: OpOverload, args: Any, kwargs: Any, where: str) -> Any:
        """Carries out an operator that only moves elements, on the integers."""
        source = next(v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Quantised))
        ints, named = pytree.tree_map(plain, (args, kwargs))
        hint = target._schema.name.partition("::")[2].strip("_")
        integers = self.tracer.call(Step(target, ints, named, where, hint))

        def wrapped(value: Any) -> Any:
            if not isinstance(value, TracedValue):
                return value
            return Quantised(value, source.scale, source.zero_point, source.dtype)

        return pytree.tree_map(wrapped, integers)

    def _as_float(self, target: OpOverload, packet: str, args: Any, kwargs: Any, where: str) -> Any:
        """Carries out any other operator on floats; quantizes the result as PyTorch does."""
        functional: Any = target
        if target._schema.is_mutable:
            family = getattr(aten, packet.removesuffix("_"), None)
            functional = getattr(family, target._overloadname, None)
            if functional is None:
                raise NoFloatForm(f"aten::{packet}")
        floats, named = pytree.tree_map(lambda v: self._float(v, where), (args, kwargs))
        hint = packet.strip("_")
        result = self.tracer.call(Step(functional, floats, named, where, hint))
        quantized = self._like_pytorch(result, functional, args, kwargs, where)
        written = args[0] if args else None
        if functional is target or not isinstance(written, Quantised):
            return quantized
        written.value = quantized.value
        written.scale, written.zero_point = quantized.scale, quantized.zero_point
        return written


def _as_python_number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _sample(value: Any) -> Any:
    """Returns a real tensor of a value's type, full of zeros."""
    if isinstance(value, Quantised):
        zeros = torch.zeros(value.fake.shape)
        return torch.quantize_per_tensor(zeros, value.scale, value.zero_point, value.dtype)
    if isinstance(value, TracedValue):
        return torch.zeros(value.fake.shape, dtype=value.fake.dtype)
    return value


_ASKS: dict[str, Callable[[Quantised], Any]] = {
    "q_scale": lambda value: value.scale,
    "q_zero_point": lambda value: value.zero_point,
    "int_repr": lambda value: value.value,
}

_ON_INTEGERS = frozenset(
    {
        *("alias", "chunk", "clone", "contiguous", "detach", "expand", "expand_as", "flatten"),
        *("flip", "index_select", "movedim", "narrow", "permute", "pixel_shuffle"),
        *("pixel_unshuffle", "repeat", "reshape", "roll", "select", "slice", "split", "squeeze"),
        *("channel_shuffle", "t", "tile", "to", "transpose", "unbind", "unflatten", "unsqueeze"),
        *("view", "view_as", "split_with_sizes", "tensor_split", "swapaxes"),
        *("dim", "is_floating_point", "numel", "size"),
    }
)

_SCALES = ("output_scale", "Y_scale_i", "scale")
_ZERO_POINTS = ("output_zero_point", "Y_zero_point_i", "zero_point")

Bound = Mapping[str, Any]
Form = Callable[[QuantisedCalls, Bound, str], Any]


def _convolution(rank: int, transposed: bool) -> Form:
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"

    def form(calls: QuantisedCalls, args: Bound, where: str) -> Any:
        packed = args.get("packed_weight")
        if packed is None:
            raise NoFloatForm(f"quantized::{name} in an old form")
        weight, bias = getattr(torch.ops.quantized, f"{name}_unpack")(packed)
        lists = (packed.stride(), packed.padding(), packed.dilation(), packed.output_padding())
        stride, padding, dilation, output_padding = (list(values)[-rank:] for values in lists)
        x, w = args["qx"], calls.weight(weight, where)
        last: tuple[Any, ...]
        if transposed:
            target = aten.conv_transpose1d.default if rank == 1 else aten.conv_transpose2d.input
            last = (stride, padding, output_padding, packed.groups(), dilation)
        else:
            target = getattr(aten, name).default
            last = (stride, padding, dilation, packed.groups())
        return calls.step(target, (x, w, bias, *last), where)

    return form


def _linear(calls: QuantisedCalls, args: Bound, where: str) -> Any:
    weight, bias = torch.ops.quantized.linear_unpack(args["W_prepack"])
    w = calls.weight(weight, where)
    return calls.step(aten.linear.default, (args["X"], w, bias), where)


def _arithmetic(target: OpOverload) -> Form:
    def form(calls: QuantisedCalls, args: Bound, where: str) -> Any:
        other = args["qb"] if "qb" in args else _as_python_number(args["b"])
        return calls.step(target, (args["qa"], other), where)

    return form


def _batch_norm(calls: QuantisedCalls, bound: Bound, where: str) -> Any:
    numbers = [bound[name] for name in ("weight", "bias", "mean", "var")]
    args = (bound["qx"], *numbers, False, 0.0, bound["eps"], False)
    return calls.step(aten.batch_norm.default, args, where)


def _instance_norm(calls: QuantisedCalls, bound: Bound, where: str) -> Any:
    args = (bound["input"], bound["weight"], bound["bias"], None, None, True, 0.0, bound["eps"])
    return calls.step(aten.instance_norm.default, (*args, False), where)


def _with_fixed(target: OpOverload, *names: str, **fixed: Any) -> Form:
    """Returns a form that calls ``target`` on these arguments, then on fixed ones."""

    def form(calls: QuantisedCalls, args: Bound, where: str) -> Any:
        return calls.step(target, [*(args[name] for name in names), *fixed.values()], where)

    return form


_FLOAT_FORMS: dict[str, Form] = {
    **{f"conv{rank}d": _convolution(rank, False) for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": _convolution(rank, True) for rank in (1, 2)},
    "linear": _linear,
    **dict.fromkeys(("add", "add_scalar"), _arithmetic(aten.add.Tensor)),
    **dict.fromkeys(("mul", "mul_scalar"), _arithmetic(aten.mul.Tensor)),
    "cat": _with_fixed(aten.cat.default, "qx", "dim"),
    **dict.fromkeys(("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d"), _batch_norm),
    "instance_norm": _instance_norm,
    "layer_norm": _with_fixed(
        aten.layer_norm.default, "input", "normalized_shape", "weight", "bias", "eps"
    ),
    "group_norm": _with_fixed(
        aten.group_norm.default, "input", "num_groups", "weight", "bias", "eps"
    ),
    "leaky_relu": _with_fixed(aten.leaky_relu.default, "qx", "negative_slope"),
    "hardswish": _with_fixed(aten.hardswish.default, "input"),
    "elu": _with_fixed(aten.elu.default, "self", "alpha", "scale", "input_scale"),
    "celu": _with_fixed(aten.celu.default, "self", "alpha"),
    "sigmoid": _with_fixed(aten.sigmoid.default, "qx"),
    "softmax": _with_fixed(aten.softmax.int, "qx", "dim"),
    "prelu": _with_fixed(aten.prelu.default, "qx", "weight"),
    "relu6": _with_fixed(aten.hardtanh.default, "qx", low=0.0, high=6.0),
    "clamp": _with_fixed(aten.clamp.default, "qx", "min", "max"),
    "threshold": _with_fixed(aten.threshold.default, "qx", "threshold", "value"),
    "matmul": _with_fixed(aten.matmul.default, "qa", "qb"),
}
"""Operator of the namespace ``quantized`` without ``_relu`` -> its form on floats."""


# Operators whose weights are quantised and whose inputs and results are floats
#
# Dynamic quantisation rounds the inputs of a linear layer to 8 bits, with a scale that is computed
# when it runs: in the graph's form that is choose_qparams, quantize, dequantize.


aten, _decomposed = torch.ops.aten, torch.ops.quantized_decomposed

_SMALLEST_SCALE = 6.1e-5
"""Smallest scale that PyTorch's engines choose (SMALL_SCALE_THRESHOLD)."""

_WeightForm = Callable[[QuantisedCalls, dict[str, Any], str], Any]


def float_form(packet: str) -> _WeightForm | None:
    """Returns a function that carries out an operator of the namespace ``quantized`` on floats,
    given its arguments by name; None for operators of another kind."""
    return _FORMS.get(packet)


def _dynamic_linear(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
    packed, x = args["W_prepack"], args["X"]
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    limits = (0, _largest_input(packed, weight, bias, bool(args["reduce_range"])))
    choice = (x, *limits, _SMALLEST_SCALE, torch.uint8)
    scale, zero = calls.step(_decomposed.choose_qparams.tensor, choice, where)
    numbers = (scale, zero, *limits, torch.uint8)
    integers = calls.step(_decomposed.quantize_per_tensor.tensor, (x, *numbers), where)
    rounded = calls.step(_decomposed.dequantize_per_tensor.tensor, (integers, *numbers), where)
    return calls.step(aten.linear.default, (rounded, calls.weight(weight, where), bias), where)


def _largest_input(packed: Any, weight: Tensor, bias: Tensor | None, reduce_range: bool) -> int:
    """Returns the largest integer that this machine's engine rounds inputs to. Engines and
    processors differ in whether they honour ``reduce_range``, so the layer itself is tried."""
    if not reduce_range:
        return 255
    x = torch.linspace(-1, 2, 4 * weight.shape[1]).reshape(4, -1)
    reference = torch.ops.quantized.linear_dynamic(x, packed, reduce_range)

    def apart(largest: int) -> float:
        scale, zero = _decomposed.choose_qparams.tensor(x, 0, largest, _SMALLEST_SCALE, torch.uint8)
        numbers = (scale, zero, 0, largest, torch.uint8)
        integers = _decomposed.quantize_per_tensor.tensor(x, *numbers)
        rounded = _decomposed.dequantize_per_tensor.tensor(integers, *numbers)
        approximation = torch.nn.functional.linear(rounded, weight.dequantize(), bias)
        return float((approximation - reference).abs().mean())

    return min((127, 255), key=apart)


def _half_linear(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
    weight, bias = torch.ops.quantized.linear_unpack_fp16(args["W_prepack"])
    bias = None if bias is None else bias.float()
    return calls.step(aten.linear.default, (args["X"], weight.float(), bias), where)


def _embedding(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
    table = torch.ops.quantized.embedding_bag_unpack(args["weight"]).dequantize()
    return calls.step(aten.embedding.default, (table, args["indices"]), where)


def _embedding_bag(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
    table = torch.ops.quantized.embedding_bag_unpack(args["weight"]).dequantize()
    indices, offsets, weights = (args[n] for n in ("indices", "offsets", "per_sample_weights"))
    if args["pruned_weights"] or args["compressed_indices_mapping"] is not None:
        raise NoFloatForm("quantized::embedding_bag of pruned weights")
    if offsets is None:  # a row of indices for each bag
        picked = calls.step(aten.embedding.default, (table, indices), where)
        if weights is not None:
            column = calls.step(aten.unsqueeze.default, (weights, -1), where)
            picked = calls.step(aten.mul.Tensor, (picked, column), where)
        return calls.step(aten.sum.dim_IntList, (picked, [1]), where)
    last = (False, 0, False, weights, args["include_last_offset"])  # it always sums
    bags = calls.step(aten.embedding_bag.default, (table, indices, offsets, *last), where)
    return bags[0]


def _relu(form: _WeightForm) -> _WeightForm:
    def then_relu(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
        return calls.step(aten.relu.default, (form(calls, args, where),), where)

    return then_relu


_FORMS: dict[str, _WeightForm] = {
    "linear_dynamic": _dynamic_linear,
    "linear_relu_dynamic": _relu(_dynamic_linear),
    "linear_dynamic_fp16": _half_linear,
    "linear_relu_dynamic_fp16": _relu(_half_linear),
    "embedding_byte": _embedding,
    "embedding_4bit": _embedding,
    "embedding_bag_byte": _embedding_bag,
    "embedding_bag_4bit": _embedding_bag,
}
