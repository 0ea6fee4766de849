"""Rewrite parts of an ONNX graph into forms that Qualcomm's compiler and its tools handle well.

Each computes the same. The simulator says which form is faster (tests/qnn/test_compile.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of all values and constants; unknown sizes are 0."""
FEWEST_CHANNELS = 16
"""Channels below which a product is simulated to be faster than a convolution: pixels have 3."""


def shuffle_last(model: onnx.ModelProto, shapes: Shapes) -> int:
    """Rewrites shuffles of channels to work channels last, in place; returns their number.

    A shuffle reshapes [N, C, ...] to [N, G, C / G, ...], exchanges G and C / G, and reshapes back.
    The convolutions around it are channels last on the NPU, and ONNX Runtime would change the
    layout before each shuffle and behind each of its readers. (AI Hub's ShuffleNet has 158
    operations without these changes, and 223 through ONNX Runtime.)
    """
    from onnx import helper, numpy_helper

    graph, readers = model.graph, _readers(model)
    outputs = {value.name for value in graph.output}
    replaced: dict[str, list[onnx.NodeProto]] = {}
    for first in graph.node:
        chain = [first]
        while len(chain) < 3 and chain[-1].output[0] not in outputs:
            behind = readers.get(chain[-1].output[0], [])
            if len(behind) != 1:
                break
            chain += behind
        if len(chain) < 3 or not _shuffles(chain, shapes):
            continue
        value, done = first.input[0], chain[2].output[0]
        whole, groups = shapes[value], shapes[first.output[0]][1:3]
        n = len(whole)
        sizes = {
            "parts": (whole[0], *whole[2:], *groups),
            "whole": (whole[0], *whole[2:], whole[1]),
        }
        for kind, size in sizes.items():
            array = np.array(size, dtype=np.int64)
            graph.initializer.append(numpy_helper.from_array(array, f"{done}_{kind}"))
        steps: list[tuple[str, list[str], dict[str, Any]]] = [
            ("Transpose", [], {"perm": [0, *range(2, n), 1]}),
            ("Reshape", [f"{done}_parts"], {}),
            ("Transpose", [], {"perm": [*range(n - 1), n, n - 1]}),
            ("Reshape", [f"{done}_whole"], {}),
            ("Transpose", [], {"perm": [0, n - 1, *range(1, n - 1)]}),
        ]
        nodes = []
        for place, (kind, constants, attributes) in enumerate(steps, 1):
            target = done if place == len(steps) else f"{done}_{place}"
            name = f"{chain[2].name}_{place}"
            nodes.append(helper.make_node(kind, [value, *constants], [target], name, **attributes))
            value = target
        replaced |= {first.output[0]: [], chain[1].output[0]: [], done: nodes}
    rewritten = [n for node in graph.node for n in replaced.get(node.output[0], [node])]
    del graph.node[:]
    graph.node.extend(rewritten)
    return sum(map(bool, replaced.values()))


def _shuffles(chain: Sequence[onnx.NodeProto], shapes: Shapes) -> bool:
    """Returns whether three consecutive nodes shuffle channels."""
    if [node.op_type for node in chain] != ["Reshape", "Transpose", "Reshape"]:
        return False
    whole, parts, after = (
        shapes.get(name, ()) for name in (chain[0].input[0], chain[0].output[0], chain[2].output[0])
    )
    order = next((tuple(a.ints) for a in chain[1].attribute if a.name == "perm"), None)
    return (
        all(whole)
        and 2 < len(whole) == len(parts) - 1
        and whole == after == (*parts[:1], parts[1] * parts[2], *parts[3:])
        and order == (0, 2, 1, *range(3, len(parts)))
    )


def scale_by_convolution(model: onnx.ModelProto, shapes: Shapes) -> int:
    """Rewrites products of an image and a constant for each channel to depthwise convolutions, in
    place; returns their number.

    A 1x1 convolution is simulated to be faster on both generations. Networks that scale their
    layers have one such product for each.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {constant.name: constant for constant in graph.initializer}
    done = 0
    for node in graph.node:
        read = list(node.input)
        if node.op_type != "Mul" or len(constants.keys() & read) != 1:
            continue
        value, constant = sorted(read, key=constants.__contains__)
        shape, scale = shapes.get(value, ()), constants[constant]
        if len(shape) != 4 or shape[1] < FEWEST_CHANNELS or not all(shape):
            continue
        if tuple(scale.dims) not in ((shape[1], 1, 1), (1, shape[1], 1, 1)):
            continue
        weights = numpy_helper.to_array(scale).reshape(-1, 1, 1, 1)
        name = f"{node.output[0]}_scale"
        graph.initializer.append(numpy_helper.from_array(weights, name))
        node.CopyFrom(
            helper.make_node("Conv", [value, name], node.output, node.name, group=shape[1])
        )
        done += 1
    return done


def join_biases(model: onnx.ModelProto, shapes: Shapes) -> int:
    """Rewrites products with a constant matrix and the sums with their biases to ``Gemm``, in
    place; returns their number.

    ONNX Runtime does so itself, except in attention whose output is added to what was normalised
    before, as in BERT: there it keeps the two apart for a fusion that comes later, and that is not
    for the NPU (``AttentionPatternCache`` in onnxruntime/core/optimizer/matmul_add_fusion.cc of
    github.com/microsoft/onnxruntime at 9c69a3b7).
    """
    from onnx import helper, numpy_helper

    graph, readers = model.graph, _readers(model)
    outputs = {value.name for value in graph.output}
    constants = {constant.name: tuple(constant.dims) for constant in graph.initializer}
    shared = {  # weights of layers that share them, as ALBERT's do
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Identity" and node.input[0] in constants
    }
    joined: dict[str, list[onnx.NodeProto]] = {}
    products: set[str] = set()
    for node in graph.node:
        product, behind = node.output[0], readers.get(node.output[0], [])
        if node.op_type != "MatMul" or product in outputs or len(behind) != 1:
            continue
        value, matrix = (shared.get(name, name) for name in node.input)
        bias = next((name for name in behind[0].input if name != product), "")
        bias, weights = shared.get(bias, bias), constants.get(matrix, ())
        size, whole = (shapes.get(name, ()) for name in (value, behind[0].output[0]))
        if behind[0].op_type != "Add" or len(weights) != 2 or constants.get(bias) != weights[1:]:
            continue
        if len(size) < 2 or not all((*size, *whole)):
            continue
        done = behind[0].output[0]
        for kind, shape in (("rows", (-1, weights[0])), ("whole", whole)):
            array = np.array(shape, dtype=np.int64)
            graph.initializer.append(numpy_helper.from_array(array, f"{done}_{kind}"))
        names = (value, f"{done}_in", f"{done}_out", done)
        joined[done] = [
            helper.make_node("Reshape", [names[0], f"{done}_rows"], [names[1]], f"{node.name}_in"),
            helper.make_node("Gemm", [names[1], matrix, bias], [names[2]], node.name),
            helper.make_node("Reshape", [names[2], f"{done}_whole"], [done], behind[0].name),
        ]
        products.add(product)
    rest = [
        step
        for node in graph.node
        if node.output[0] not in products
        for step in joined.get(node.output[0], [node])
    ]
    del graph.node[:]
    graph.node.extend(rest)
    return len(joined)


def unshare_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy in which every node has its own weights.

    Exporters let equal constants share one initializer, also through ``Identity``. The quantiser
    would give a shared bias the type of an activation, and the compiler would take fifty times as
    long for a graph that is sixty times as slow.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    constants = {constant.name: constant for constant in graph.initializer}
    outputs = {value.name for value in graph.output}
    aliases = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Identity"
        and node.input[0] in constants
        and node.output[0] not in outputs
    }
    rest = [node for node in graph.node if node.output[0] not in aliases]
    used: set[str] = set()
    for node in rest:
        for place, name in enumerate(node.input):
            origin = aliases.get(name, name)
            if origin not in constants:
                continue
            if origin in used:
                copy = onnx.TensorProto()
                copy.CopyFrom(constants[origin])
                copy.name = f"{origin}_of_{node.name}_{place}"
                graph.initializer.append(copy)
                node.input[place] = copy.name
            else:
                used.add(origin)
                node.input[place] = origin
    del graph.node[:]
    graph.node.extend(rest)
    return result


def _readers(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers
