"""Convolutions, FULLY_CONNECTED and poolings of the reference back end, on random shapes: floats
against torch in float64, quantised data against exact integer arithmetic, to the bit."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.emulator.kernels.weighted_sums import (
    KINDS,
    SAME,
    VALID,
    Case,
    Tensor,
    Window,
    build,
    check,
    float_output,
    fused_limits,
    is_float,
    nhwc,
    operands,
    padded,
    product_scales,
    random_bias,
    random_data,
    random_weights,
    random_window,
    run,
    weighted_output,
)
from tests.emulator.nnapi import OK, TENSOR_INT32, TENSOR_QUANT8_ASYMM


def variants(rng):
    """Weights given at run time, and shapes: each in a third of the cases."""
    return {"constant": bool(rng.integers(3)), "dynamic": not rng.integers(3)}


def convolved(data, weights, window, groups=1):
    """[N, H, W, C] with filters [O, h, w, C / groups]."""
    filters = torch.from_numpy(np.ascontiguousarray(weights)).permute(0, 3, 1, 2)
    image = padded(data, window.pads)
    return nhwc(
        F.conv2d(image, filters, stride=window.strides, dilation=window.dilations, groups=groups)
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_conv_2d(nn, kind, seed):
    rng = np.random.default_rng(seed)
    window = random_window(rng)
    batches, depth_in, depth_out = (int(v) for v in rng.integers(1, [3, 9, 9]))
    data = random_data(rng, kind, (batches, *window.sizes, depth_in))
    weights = random_weights(rng, kind, (depth_out, *window.filters, depth_in), 0)
    tensors = [data, weights, random_bias(rng, kind, data, weights, depth_out)]
    fuse = int(rng.integers(4))
    products = convolved(*operands(tensors, kind), window)
    output = weighted_output(rng, kind, tensors, products, fuse)
    scalars = [*window.scalars(), fuse, False, window.dilations[1], window.dilations[0]]
    check(nn, Case("CONV_2D", tensors, scalars, output, **variants(rng)))


@pytest.mark.parametrize("kind", KINDS[2:])
def test_sums_smaller_than_steps_of_the_output(nn, kind):
    """The multiplier is greater than 1: sums are shifted to the left first."""
    rng = np.random.default_rng(23)
    window = Window((4, 4), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), VALID)
    data = random_data(rng, kind, (1, 4, 4, 2))
    weights = random_weights(rng, kind, (3, 1, 1, 2), 0)
    for tensor in (data, weights):
        tensor.zero_point = 0 if kind.endswith("channels") else 7
        tensor.values = (tensor.zero_point + rng.integers(0, 4, tensor.values.shape)).astype(
            tensor.values.dtype
        )
    bias = random_bias(rng, kind, data, weights, 3)
    bias.values = np.array([-2, 0, 1], np.int32)
    tensors = [data, weights, bias]
    products = convolved(*operands(tensors, kind), window)
    output = weighted_output(rng, kind, tensors, products, 0)
    assert max(product_scales(data, weights, 3)) > 4 * output.scale
    check(nn, Case("CONV_2D", tensors, [VALID, 1, 1, 0], output))


@pytest.mark.parametrize("kind", ["float32", "unsigned", "signed-channels"])
def test_conv_2d_nchw(nn, kind):
    rng = np.random.default_rng(17)
    window = random_window(rng)
    data = random_data(rng, kind, (2, *window.sizes, 3))
    weights = random_weights(rng, kind, (5, *window.filters, 3), 0)
    tensors = [data, weights, random_bias(rng, kind, data, weights, 5)]
    products = convolved(*operands(tensors, kind), window)
    output = weighted_output(rng, kind, tensors, products, 1)
    data.values = np.ascontiguousarray(data.values.transpose(0, 3, 1, 2))
    output.values = np.ascontiguousarray(output.values.transpose(0, 3, 1, 2))
    scalars = [*window.scalars(), 1, True, window.dilations[1], window.dilations[0]]
    check(nn, Case("CONV_2D", tensors, scalars, output))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_grouped_conv_2d(nn, kind, seed):
    rng = np.random.default_rng(100 + seed)
    window = random_window(rng, dilated=False)
    groups, group_in, group_out = (int(v) for v in rng.integers(1, 5, 3))
    data = random_data(rng, kind, (2, *window.sizes, groups * group_in))
    weights = random_weights(rng, kind, (groups * group_out, *window.filters, group_in), 0)
    tensors = [data, weights, random_bias(rng, kind, data, weights, groups * group_out)]
    fuse = int(rng.integers(4))
    products = convolved(*operands(tensors, kind), window, groups)
    output = weighted_output(rng, kind, tensors, products, fuse)
    scalars = [*window.scalars(), groups, fuse, False]
    check(nn, Case("GROUPED_CONV_2D", tensors, scalars, output, **variants(rng)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_depthwise_conv_2d(nn, kind, seed):
    rng = np.random.default_rng(200 + seed)
    window = random_window(rng)
    depth_in, multiplier = (int(v) for v in rng.integers(1, [9, 4]))
    n = depth_in * multiplier
    data = random_data(rng, kind, (2, *window.sizes, depth_in))
    weights = random_weights(rng, kind, (1, *window.filters, n), 3)
    tensors = [data, weights, random_bias(rng, kind, data, weights, n)]
    fuse = int(rng.integers(4))
    image, filters = operands(tensors, kind)
    products = convolved(image, filters.transpose(3, 1, 2, 0), window, depth_in)
    output = weighted_output(rng, kind, tensors, products, fuse)
    dilations = [False, window.dilations[1], window.dilations[0]]
    scalars = [*window.scalars(), multiplier, fuse, *dilations]
    check(nn, Case("DEPTHWISE_CONV_2D", tensors, scalars, output, **variants(rng)))


def transposed(data, weights, strides, pads, sizes):
    """Every product added where it belongs, then cut: the definition, not torch's."""
    n, height, width, _ = data.shape
    depth_out, filter_h, filter_w, _ = weights.shape
    whole = np.zeros(
        (
            n,
            height * strides[0] + filter_h + sizes[0],
            width * strides[1] + filter_w + sizes[1],
            depth_out,
        )
    )
    for y in range(height):
        for x in range(width):
            patch = np.einsum("nc,ohwc->nhwo", data[:, y, x], weights)
            top, left = y * strides[0], x * strides[1]
            whole[:, top : top + filter_h, left : left + filter_w] += patch
    return whole[:, pads[0] : pads[0] + sizes[0], pads[1] : pads[1] + sizes[1]]


@pytest.mark.parametrize("layout", [False, True])
@pytest.mark.parametrize("padding", ["explicit", "same", "valid"])
@pytest.mark.parametrize("kind", KINDS)
def test_transpose_conv_2d(nn, kind, padding, layout):
    for seed in range(3):
        rng = np.random.default_rng(300 + seed)
        filters, strides = rng.integers(1, 5, 2), rng.integers(1, 4, 2)
        in_sizes = rng.integers(2, 6, 2)
        depth_in, depth_out = (int(v) for v in rng.integers(1, 6, 2))
        whole = (in_sizes - 1) * strides + filters
        before = np.array([0, 0])
        if padding == "explicit":
            before = rng.integers(0, 2, 2)
            behind = rng.integers(0, 2, 2)
            if seed == 2:
                behind = -rng.integers(0, 2, 2)
            sizes = whole - before - behind
            head = [before[1], behind[1], before[0], behind[0]]
        elif padding == "same":
            sizes = in_sizes * strides - rng.integers(0, strides)
            before = np.maximum(whole - sizes, 0) // 2
            head = [SAME]
        else:
            sizes, head = whole, [VALID]
        if (sizes < 1).any():
            continue
        data = random_data(rng, kind, (2, *(int(s) for s in in_sizes), depth_in))
        weights = random_weights(rng, kind, (depth_out, *(int(f) for f in filters), depth_in), 0)
        tensors = [data, weights, random_bias(rng, kind, data, weights, depth_out)]
        fuse = int(rng.integers(4))
        products = transposed(*operands(tensors, kind), strides, before, sizes)
        output = weighted_output(rng, kind, tensors, products, fuse)
        shape = [2, int(sizes[0]), int(sizes[1]), depth_out]
        if layout:
            shape = [shape[i] for i in (0, 3, 1, 2)]
            data.values = data.values.transpose(0, 3, 1, 2)
            output.values = np.ascontiguousarray(output.values.transpose(0, 3, 1, 2))
        scalars = [int(v) for v in (*head, strides[1], strides[0], fuse)] + [layout]
        listed = [] if padding == "explicit" else shape
        case = Case("TRANSPOSE_CONV_2D", tensors, scalars, output, shape_input=listed)
        case.constant, case.dynamic = bool(rng.integers(2)), bool(rng.integers(2))
        check(nn, case)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS[:4])
def test_fully_connected(nn, kind, seed):
    rng = np.random.default_rng(400 + seed)
    batches, inputs, units = (int(v) for v in rng.integers(1, [6, 40, 20]))
    shape = [(batches, inputs), (batches, 1, inputs), (1, batches, 1, inputs)][seed % 3]
    data = random_data(rng, kind, shape)
    weights = random_weights(rng, kind, (units, inputs), 0)
    tensors = [data, weights, random_bias(rng, kind, data, weights, units)]
    fuse = int(rng.integers(4))
    rows, matrix = operands(tensors, kind)
    output = weighted_output(rng, kind, tensors, rows.reshape(-1, inputs) @ matrix.T, fuse)
    check(nn, Case("FULLY_CONNECTED", tensors, [fuse], output, **variants(rng)))


def pooled(name, image, window):
    """The operation's windows one by one, over the cells inside the image."""
    pads = window.pads
    n, _height, _width, channels = image.shape
    outs = [
        (size + sum(pad) - filter_) // stride + 1
        for size, pad, filter_, stride in zip(
            window.sizes, pads, window.filters, window.strides, strict=True
        )
    ]
    result = np.empty((n, *outs, channels))
    for y, x in np.ndindex(*outs):
        top, left = y * window.strides[0] - pads[0][0], x * window.strides[1] - pads[1][0]
        cells = image[
            :, max(top, 0) : top + window.filters[0], max(left, 0) : left + window.filters[1]
        ]
        cells = cells.reshape(n, -1, channels)
        if name == "MAX_POOL_2D":
            result[:, y, x] = cells.max(1)
        elif name == "L2_POOL_2D":
            result[:, y, x] = np.sqrt((cells**2).mean(1))
        elif image.dtype.kind == "f":
            result[:, y, x] = cells.mean(1)
        else:
            total, count = cells.sum(1), cells.shape[1]
            result[:, y, x] = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return result


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D") for kind in KINDS[:4]]
    + [("L2_POOL_2D", kind) for kind in KINDS[:2]],
)
def test_pool(nn, name, kind, seed):
    rng = np.random.default_rng(500 + seed)
    window = random_window(rng, dilated=False)
    data = random_data(rng, kind, (2, *window.sizes, int(rng.integers(1, 9))))
    fuse = int(rng.integers(4))
    if is_float(kind):
        expected = float_output(kind, pooled(name, data.values.astype(np.float64), window), fuse)
    else:
        values = pooled(name, data.values.astype(np.int64), window)
        expected = Tensor(data.code, data.values, data.scale, data.zero_point)
        expected.values = np.clip(values, *fused_limits(expected, fuse)).astype(data.values.dtype)
    scalars = [*window.scalars(), window.filters[1], window.filters[0], fuse]
    check(nn, Case(name, [data], scalars, expected, dynamic=bool(rng.integers(2))))


def test_long_sums_do_not_overflow(nn):
    """255 x 255 x 40000 does not fit 32 bits; the sum saturates and with it the output."""
    data = Tensor(TENSOR_QUANT8_ASYMM, np.full((1, 40000), 255, np.uint8), 1.0, 0)
    weights = Tensor(TENSOR_QUANT8_ASYMM, np.full((1, 40000), 255, np.uint8), 1.0, 0)
    bias = Tensor(TENSOR_INT32, np.zeros(1, np.int32), 1.0)
    output = Tensor(TENSOR_QUANT8_ASYMM, np.array([[215]], np.uint8), 1e7, 0)
    check(nn, Case("FULLY_CONNECTED", [data, weights, bias], [0], output))


# ---- refusals ----------------------------------------------------------------------------------


def refused(nn, case):
    """Whether the model or its compilation is refused."""
    model, inputs, _, out = build(nn, case)
    assert model.identify(inputs, [out]) == OK
    result = nn.Model_finish(model.handle)
    if result == OK:
        result = model.try_compile([nn.devices()["nnapi-reference"]])[1]
    return result != OK


def small_case(rng, kind="unsigned"):
    data = random_data(rng, kind, (1, 3, 3, 2))
    weights = random_weights(rng, kind, (3, 2, 2, 2), 0)
    tensors = [data, weights, random_bias(rng, kind, data, weights, 3)]
    output = weighted_output(rng, kind, tensors, np.zeros((1, 2, 2, 3)), 0)
    return Case("CONV_2D", tensors, [VALID, 1, 1, 0], output)


def test_bias_of_another_scale_is_refused(nn):
    case = small_case(np.random.default_rng(1))
    scale = case.tensors[2].scale
    case.tensors[2].scale = scale * 1.0000005
    assert not refused(nn, case)
    case.tensors[2].scale = scale * 1.00001
    assert refused(nn, case)


def test_channel_scales_want_no_scale_of_the_bias(nn):
    case = small_case(np.random.default_rng(1), "unsigned-channels")
    assert not refused(nn, case)
    case.tensors[2].scale = 0.5
    assert refused(nn, case)


def test_channel_scales_along_another_dimension_are_refused(nn):
    case = small_case(np.random.default_rng(1), "unsigned-channels")
    case.tensors[1].channel_dim = 3
    case.tensors[1].channel_scales = case.tensors[1].channel_scales[:2]
    assert refused(nn, case)


def test_pooling_keeps_its_scale(nn):
    data = random_data(np.random.default_rng(1), "unsigned", (1, 2, 2, 1))
    output = Tensor(data.code, data.values[:, :1, :1], data.scale, data.zero_point)
    case = Case("MAX_POOL_2D", [data], [VALID, 1, 1, 2, 2, 0], output)
    assert not refused(nn, case)
    output.scale *= 2
    assert refused(nn, case)


def test_transposed_output_must_exist(nn):
    case = small_case(np.random.default_rng(1), "float32")
    case.name, case.dynamic = "TRANSPOSE_CONV_2D", True
    case.output.values = np.zeros((1, 2, 2, 3), np.float32)
    case.scalars = [1, 1, 1, 1, 1, 1, 0, False]
    run(nn, case)
    case.scalars = [2, 2, 2, 2, 1, 1, 0, False]
    case.dynamic = False
    assert refused(nn, case)
