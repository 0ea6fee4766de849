"""Convert the annotated fx graph to the UnitGraph that every later stage uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nnapi_prof.graph.node import (
    UNIT,
    ScriptCall,
    bound_args,
    calls,
    is_constant,
    makes_tensor,
    op_name,
    results_of,
    type_of,
)
from nnapi_prof.graph.quantisation import CONVERSIONS
from nnapi_prof.graph.unit import Unit, UnitGraph, Work, describe_type, unit_signature

aten = torch.ops.aten


def unit_graph(graph: fx.Graph) -> UnitGraph:
    """Groups nodes into units by ``meta["unit"]`` (see fuse_activations), in the graph's order.

    A node of several values is in one unit with its ``getitem`` readers, which name its outputs.
    """
    members: dict[str, list[fx.Node]] = {}
    for node in calls(graph):
        if makes_tensor(node) and not isinstance(node.target, torch._ops.OpOverload):
            continue  # a getitem belongs to the node that it reads
        members.setdefault(node.meta[UNIT], []).append(node)
    order = {node: position for position, node in enumerate(graph.nodes)}
    groups = sorted(members.values(), key=lambda nodes: order[nodes[-1]])
    units = tuple(_unit(index, nodes) for index, nodes in enumerate(groups))
    inputs = tuple(node.name for node in graph.find_nodes(op="placeholder"))
    listed = graph.output_node().args[0]
    assert isinstance(listed, tuple | list)
    outputs = tuple(node.name for node in listed if isinstance(node, fx.Node))
    named = {*inputs, *outputs, *(v for unit in units for v in (*unit.inputs, *unit.outputs))}
    values = {node.name: type_of(node) for node in graph.nodes if node.name in named}
    return UnitGraph(units, values, inputs, outputs)


def _unit(index: int, nodes: list[fx.Node]) -> Unit:
    own = set(nodes)
    read = dict.fromkeys(
        source for node in nodes for source in node.all_input_nodes if source not in own
    )
    inputs = [source for source in read if not is_constant(source)]
    outputs = results_of(nodes[-1])
    constants = [source for source in read if is_constant(source)]
    described = [_describe(node, nodes, inputs) for node in nodes]
    shown = _shown(nodes)
    return Unit(
        index=index,
        name=nodes[-1].name,
        operation=_operation(shown),
        sizes=_sizes(shown),
        quantised=len(shown) < len(nodes),
        nodes=tuple(
            name for node in nodes for name in dict.fromkeys((node.name, *_names(results_of(node))))
        ),
        inputs=_names(inputs),
        outputs=_names(outputs),
        signature=unit_signature(described, map(type_of, inputs), map(type_of, outputs)),
        macs=sum(map(macs, nodes)),
        constant_bytes=sum(type_of(constant).n_bytes for constant in constants),
        work=_work(nodes, inputs, outputs, constants),
    )


def _names(nodes: Any) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _describe(node: fx.Node, nodes: list[fx.Node], inputs: list[fx.Node]) -> dict[str, Any]:
    def describe(value: Any) -> Any:
        if isinstance(value, fx.Node):
            if value in inputs:
                return {"input": inputs.index(value)}
            if is_constant(value):
                return {"constant": describe_type(type_of(value))}
            return {"node": nodes.index(value)}
        if isinstance(value, list | tuple):
            return [describe(item) for item in value]
        if value is None or isinstance(value, bool | int | str):
            return value
        return repr(value)  # floats exactly, inf and nan, dtypes, memory formats

    if isinstance(node.target, ScriptCall):
        return {"op": op_name(node.target), "args": {"inputs": describe(node.args)}}
    args = {name: describe(value) for name, value in bound_args(node).items()}
    return {"op": op_name(node.target), "args": args}


_RECURRENT = frozenset({aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input})


def macs(node: fx.Node) -> int:
    """Returns the multiply-accumulates of one node: a convolution, linear layer, matrix product,
    attention or recurrent layer; 0 for others."""
    if node.target is aten.convolution.default:
        args = bound_args(node)
        weight = type_of(args["weight"]).shape
        # Each weight is used for each output pixel; if transposed, for each input pixel.
        at = type_of(args["input"] if args["transposed"] else node).shape
        return at[0] * math.prod(at[2:]) * math.prod(weight)
    if node.target is aten.linear.default:
        return type_of(node).n_elements * type_of(bound_args(node)["weight"]).shape[1]
    if node.target in (aten.matmul.default, aten.mm.default, aten.bmm.default):
        first = bound_args(node)["self"]
        return type_of(node).n_elements * type_of(first).shape[-1]
    if node.target in (aten.addmm.default, aten.baddbmm.default):
        args = bound_args(node)
        inner = type_of(args.get("mat1") or args["batch1"]).shape[-1]
        return type_of(node).n_elements * inner
    if node.target is aten.scaled_dot_product_attention.default:
        query, key = (type_of(bound_args(node)[name]).shape for name in ("query", "key"))
        # A product of each query with each key, and of each weight with each value.
        return math.prod(query[:-1]) * key[-2] * (query[-1] + type_of(node).shape[-1])
    if node.target in _RECURRENT:
        args = bound_args(node)
        steps = math.prod(type_of(args["input"]).shape[:2])
        shapes = [type_of(parameter).shape for parameter in args["params"]]
        return steps * sum(math.prod(shape) for shape in shapes if len(shape) == 2)
    return 0


KINDS = {
    "linear": "FULLY_CONNECTED",
    "addmm": "FULLY_CONNECTED",
    "cat": "CONCATENATION",
    "hardswish": "HARD_SWISH",
    "sigmoid": "LOGISTIC",
    "_softmax": "SOFTMAX",
    "avg_pool2d": "AVERAGE_POOL_2D",
    "max_pool2d": "MAX_POOL_2D",
    "adaptive_avg_pool2d": "MEAN",
    "view": "RESHAPE",
    "flatten": "RESHAPE",
    "unsqueeze": "RESHAPE",
    "squeeze": "RESHAPE",
    "permute": "TRANSPOSE",
    "transpose": "TRANSPOSE",
    "slice": "STRIDED_SLICE",
    "to_channels_last": "TRANSPOSE",
    "to_contiguous": "TRANSPOSE",
    "upsample_bilinear2d": "RESIZE_BILINEAR",
    "upsample_nearest2d": "RESIZE_NEAREST_NEIGHBOR",
    "bmm": "BATCH_MATMUL",
    "matmul": "BATCH_MATMUL",
    "mm": "BATCH_MATMUL",
}
"""First word of a unit -> NNAPI's name; the name of any other word is the word in capitals."""


def _work(
    nodes: list[fx.Node], inputs: list[fx.Node], outputs: Any, constants: list[fx.Node]
) -> Work:
    """Returns the unit's work, by its main operation: the convolution, or else the first."""
    shown = [node for node in nodes if node.target not in CONVERSIONS] or nodes
    main = next((n for n in shown if n.target is aten.convolution.default), shown[0])
    read = [type_of(node) for node in inputs if makes_tensor(node)]
    written = [type_of(node) for node in outputs]
    out = written[0].shape if written else ()
    shape = type_of(main).shape if makes_tensor(main) else out
    elements = sum(value.n_elements for value in written)
    data = _data_kind(written[0].dtype if written else "float32", len(shown) < len(nodes))
    channels = shape[1] if len(shape) > 1 else math.prod(shape[-1:])
    sizes = {
        "kind": _kind(main),
        "data": data,
        "macs": float(sum(map(macs, nodes)) or max(elements, 1)),
        "in_bytes": float(sum(value.n_bytes for value in read)),
        "out_bytes": float(sum(value.n_bytes for value in written)),
        "weight_bytes": float(sum(type_of(constant).n_bytes for constant in constants)),
        "pixels": float(max(math.prod(shape) // max(channels, 1), 1)),
        "width": float(shape[-1] if len(shape) > 2 else 1),
        "in_channels": float(max(channels, 1)),
        "out_channels": float(max(channels, 1)),
        "n_inputs": max(len(read), 1),
        "rank": max([len(value.shape) for value in [*read, *written]], default=1),
    }
    return Work(**(sizes | _shape_of_weights(main, shape)))  # type: ignore[arg-type]


def _kind(node: fx.Node) -> str:
    if node.target is aten.convolution.default:
        word = _convolution_word(node)
        if word.startswith("conv_transpose"):
            return "TRANSPOSE_CONV_2D"
        return {"d": "DEPTHWISE_CONV_2D", "g": "GROUPED_CONV_2D"}.get(word[0], "CONV_2D")
    return KINDS.get(_word(node), _word(node).upper())


def _data_kind(dtype: str, quantised: bool) -> str:
    if quantised or dtype in ("uint8", "int8", "quint8", "qint8"):
        return "quant8"
    named = {"float16": "float16", "int32": "int32", "int64": "int32", "bool": "bool8"}
    return named.get(dtype, "float32")


def _shape_of_weights(node: fx.Node, shape: Sequence[int]) -> dict[str, float]:
    """Returns sizes of a matrix product or a window that do not follow from the result."""
    args = bound_args(node) if not isinstance(node.target, ScriptCall) else {}
    if node.target is aten.convolution.default:
        weight = type_of(args["weight"]).shape
        per_group = weight[0] // args["groups"] if args["transposed"] else weight[1]
        return {
            "in_channels": float(per_group),
            "kernel": float(math.prod(weight[2:])),
            "stride": float(max(args["stride"])),
        }
    matrix = node.target in (aten.matmul.default, aten.mm.default, aten.bmm.default)
    if node.target is aten.linear.default:
        inner = type_of(args["weight"]).shape[1]
    elif matrix:
        inner = type_of(args["self"]).shape[-1]
    elif node.target in (aten.addmm.default, aten.baddbmm.default):
        inner = type_of(args.get("mat1") or args["batch1"]).shape[-1]
    else:
        window = args.get("kernel_size")
        if not isinstance(window, list | tuple) or not window:
            return {}
        stride = args.get("stride") or window
        return {"kernel": float(math.prod(window)), "stride": float(max(stride))}
    out = shape[-1] if shape else 1
    rows = math.prod(shape) // max(out, 1) if shape else 1
    return {
        "in_channels": float(inner),
        "out_channels": float(out),
        "pixels": float(max(rows, 1)),
        "width": 1.0,
    }


_ACTIVATIONS = {(0.0, 6.0): "relu6", (-1.0, 1.0): "relu1"}


def label(nodes: list[fx.Node]) -> str:
    """Describes a unit for people: operations, attributes, channels, size of the result.

    ``conv2d+relu6 3x3/2 3->32 112x112``, ``quantised linear 1280->1000``, ``add 1x24x56x56``.
    """
    shown = _shown(nodes)
    words = ("quantised" if len(shown) < len(nodes) else "", _operation(shown), _sizes(shown))
    return " ".join(filter(None, words))


def _shown(nodes: list[fx.Node]) -> list[fx.Node]:
    """Returns the nodes without conversions, or all where there are only conversions."""
    return [node for node in nodes if node.target not in CONVERSIONS] or nodes


def _operation(shown: Sequence[fx.Node]) -> str:
    return "+".join(map(_word, shown))


def _sizes(shown: Sequence[fx.Node]) -> str:
    main = next((n for n in shown if n.target is aten.convolution.default), shown[0])
    return " ".join(_details(main))


def _word(node: fx.Node) -> str:
    if node.target is aten.convolution.default:
        return _convolution_word(node)
    if node.target is aten.hardtanh.default:
        args = bound_args(node)
        return _ACTIVATIONS[args["min_val"], args["max_val"]]
    if node.target is aten.clone.default:
        return "to_" + type_of(node).dim_order.value
    if node.target is aten.constant_pad_nd.default:
        return "pad"
    if isinstance(node.target, ScriptCall):
        return node.target.construct
    return op_name(node.target).split(".")[1]


def _convolution_word(node: fx.Node) -> str:
    args = bound_args(node)
    weight = type_of(args["weight"]).shape
    rank = len(weight) - 2
    kind = f"conv_transpose{rank}d" if args["transposed"] else f"conv{rank}d"
    groups = args["groups"]
    if groups > 1 and not args["transposed"] and weight[1] == 1:
        return f"depthwise_{kind}"
    return f"grouped_{kind}" if groups > 1 else kind


def _details(node: fx.Node) -> list[str]:
    if not makes_tensor(node):
        return []
    args, shape = bound_args(node), type_of(node).shape
    if node.target is aten.convolution.default:
        weight = type_of(args["weight"]).shape
        channels_in = type_of(args["input"]).shape[1]
        kernel = _by(weight[2:]) + _per(args["stride"])
        dilated = [f"dilation {_by(args['dilation'])}"] if max(args["dilation"]) > 1 else []
        return [kernel, *dilated, f"{channels_in}->{shape[1]}", _by(shape[2:])]
    if node.target is aten.linear.default:
        out_features, in_features = type_of(args["weight"]).shape
        rows = [_by(shape[:-1])] if math.prod(shape[:-1]) > 1 else []
        return [f"{in_features}->{out_features}", *rows]
    if "kernel_size" in args and isinstance(args["kernel_size"], list | tuple):
        return [_by(args["kernel_size"]) + _per(args["stride"]), _by(shape)]
    return [_by(shape)]


def _by(sizes: Any) -> str:
    return "x".join(map(str, sizes)) or "scalar"


def _per(stride: Any) -> str:
    sides = list(stride)
    if all(s == 1 for s in sides):
        return ""
    return f"/{sides[0]}" if len(set(sides)) == 1 else f"/{_by(sides)}"
