"""ONNX graphs of a few nodes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def graph(nodes, inputs, outputs, constants=(), opset=18):
    """A model; ``inputs`` and ``outputs`` are name -> shape, or (shape, element type)."""

    def values(named):
        for name, shape in named.items():
            shape, kind = shape if isinstance(shape[0], tuple) else (shape, TensorProto.FLOAT)
            yield helper.make_tensor_value_info(name, kind, shape)

    made = helper.make_graph(
        list(nodes),
        "g",
        list(values(inputs)),
        list(values(outputs)),
        [numpy_helper.from_array(value, name) for name, value in dict(constants).items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.1


def convolutions(n=2, names="", seed=0, channels=16, size=28):
    """``n`` 3x3 convolutions with ReLU, one after the other, channels first."""
    nodes, constants, x = [], {}, f"{names}x"
    for i in range(n):
        w, y, z = f"{names}w{i}", f"{names}y{i}", f"{names}z{i}"
        constants[w] = weights(channels, channels, 3, 3, seed=seed + i)
        nodes.append(helper.make_node("Conv", [x, w], [y], f"{names}conv{i}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [y], [z], f"{names}relu{i}"))
        x = z
    shape = (1, channels, size, size)
    return graph(nodes, {f"{names}x": shape}, {x: shape}, constants)


def channels_last(model):
    """A graph of one image in and out, whose borders lie channels last."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    (x,), (y,) = result.graph.input, result.graph.output
    for node in result.graph.node:
        node.input[:] = ["x_inner" if name == x.name else name for name in node.input]
        node.output[:] = ["y_inner" if name == y.name else name for name in node.output]
    first = helper.make_node("Transpose", [x.name], ["x_inner"], "first_t", perm=(0, 3, 1, 2))
    last = helper.make_node("Transpose", ["y_inner"], [y.name], "last_t", perm=(0, 2, 3, 1))
    nodes = [first, *result.graph.node, last]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    for value in (x, y):
        sizes = value.type.tensor_type.shape.dim
        n, channels, *image = (each.dim_value for each in sizes)
        for each, size in zip(sizes, (n, *image, channels), strict=True):
            each.dim_value = size
    return result


def quantised_convolution(zero_point):
    """uint8 in and out: a convolution and a ReLU in one Q/DQ unit, whose result has this zero
    point: other than 0, the ReLU stays between the convolution and its quantisation."""
    size, channels = 56, 128
    w = np.random.default_rng(0).integers(-100, 100, (channels, channels, 3, 3)).astype(np.int8)
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "zo": np.uint8(zero_point)}
    constants |= {"w": w, "sw": np.float32(0.01), "zw": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"], "dx"),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], "dw"),
        helper.make_node("Conv", ["xf", "wf"], ["y"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["y"], ["r"], "relu"),
        helper.make_node("QuantizeLinear", ["r", "s", "zo"], ["out"], "q"),
    ]
    shape = ((1, channels, size, size), TensorProto.UINT8)
    return graph(nodes, {"x": shape}, {"out": shape}, constants)


def softsign():
    """A convolution, and an operation that no NPU takes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], "the_conv", pads=[1] * 4),
        helper.make_node("Softsign", ["y"], ["z"], "the_softsign"),
    ]
    shape = (1, 16, 28, 28)
    return graph(nodes, {"x": shape}, {"z": shape}, {"w": weights(16, 16, 3, 3)})


def shuffle(channels=32, groups=2, order=(0, 2, 1, 3, 4), size=28):
    """A convolution of 1x1, a shuffle of its channels, and a convolution of each half; with another
    ``order`` no shuffle."""
    shape, half = (1, channels, size, size), channels // 2
    parts = (1, groups, channels // groups, size, size)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("Reshape", ["a", "parts"], ["b"], "split"),
        helper.make_node("Transpose", ["b"], ["c"], "exchange", perm=order),
        helper.make_node("Reshape", ["c", "whole"], ["d"], "join"),
    ]
    constants = {
        "w": weights(channels, channels, 1, 1),
        "parts": np.array(parts),
        "whole": np.array(shape),
        "axes": np.array([1]),
    }
    for name, start in (("left", 0), ("right", half)):
        constants |= {f"{name}_0": np.array([start]), f"{name}_1": np.array([start + half])}
        constants[f"{name}_w"] = weights(half, half, 1, 1, seed=start)
        cut = ["d", f"{name}_0", f"{name}_1", "axes"]
        nodes.append(helper.make_node("Slice", cut, [f"{name}_half"], f"{name}_slice"))
        read = [f"{name}_half", f"{name}_w"]
        nodes.append(helper.make_node("Conv", read, [name], f"{name}_conv"))
    return graph(
        nodes, {"x": shape}, dict.fromkeys(("left", "right"), (1, half, size, size)), constants
    )


def scale(channels=32, rank=3, size=56):
    """A convolution of 1x1 and a product with a constant for each channel, of rank 3 or 4."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "before"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Mul", ["s", "b"], ["c"], "scale"),
        helper.make_node("Add", ["b", "c"], ["y"], "sum"),
    ]
    shape = (1, channels, size, size)
    constants = {
        "w": weights(channels, channels, 1, 1),
        "s": weights(*(1, channels, 1, 1)[4 - rank :]),
    }
    return graph(nodes, {"x": shape}, {"y": shape}, constants)


def biased(rank=3, channels=64, of_rank=1, twice=False, shared=False):
    """A product of rows with a matrix, and its sum with a constant of that rank; ``twice`` reads
    the product behind the sum again, ``shared`` weights are those of another layer."""
    shape = (1, 1, 16, channels)[4 - rank :]
    nodes = [
        *([helper.make_node("Identity", ["w"], ["v"], "alias")] if shared else []),
        helper.make_node("MatMul", ["x", "v" if shared else "w"], ["a"], "product"),
        helper.make_node("Add", ["b", "a"], ["c"], "sum"),
        helper.make_node("Add" if twice else "Relu", ["c", "a"][: 1 + twice], ["y"], "last"),
    ]
    constants = {"w": weights(channels, channels), "b": weights(*(1,) * (of_rank - 1), channels)}
    return graph(nodes, {"x": shape}, {"y": shape}, constants)
