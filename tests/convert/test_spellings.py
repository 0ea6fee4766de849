"""Models that spell movement, lines and high ranks in many ways, converted whole and run; tensors
of more than four dimensions at the border of a region."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nnapi_prof
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import TensorType
from tests.convert.coverage.rows import Function, layer, numbers, row
from tests.convert.harness import agree, aten, run_whole, traced, whole

X = numbers(2, 8, 6, 4)
LINE = numbers(2, 4, 15)
VOLUME = numbers(2, 4, 6, 7, 5)
ROWS = numbers(3, 4)


def windows(x):
    """Swin's partition of [B, H, W, C] into windows of 2 x 2, and back."""
    b, h, w, c = x.shape
    parted = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    parted = parted + 1
    whole = parted.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    return whole.reshape(b, h, w, c)


def shuffled(x):
    """ShuffleNet's channel shuffle."""
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def pixels(x):
    n, c, h, w = x.shape
    split = x.view(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3)
    return split.reshape(n, c // 4, h * 2, w * 2)


def unpixels(x):
    n, c, h, w = x.shape
    split = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return split.reshape(n, c * 4, h // 2, w // 2)


def depth_to_space(x):
    """The other order of channels, (i, j, c), which is no pixel_shuffle."""
    n, c, h, w = x.shape
    split = x.view(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2)
    return split.reshape(n, c // 4, h * 2, w * 2)


def heads(x):
    """q, k, v of 2 heads from one projection, as timm's attention has them."""
    b, n, c = x.shape
    q, k, v = x.reshape(b, n, 3, 2, c // 6).permute(2, 0, 3, 1, 4).unbind(0)
    return (q * 2 + k - v).transpose(1, 2).reshape(b, n, c // 3)


def grouped_heads(x):
    """Heads repeated for grouped queries."""
    b, h, n, d = x.shape
    return x[:, :, None].expand(b, h, 3, n, d).reshape(b, h * 3, n, d)


def patches(x):
    """ViT's patches by rearrangement."""
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1)
    return split.reshape(n, (h // 2) * (w // 2), 4 * c)


def assigned(x):
    y = x.clone()
    y[:, 1:3] = 0.5
    y[:, :, 2] = x[:, :, 0]
    y[0, -1] += 1
    return y


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(4, 8, 3, 2, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(8, 8, 3, 1, 2, 2, 8), nn.Hardswish())
        self.up = nn.ConvTranspose1d(8, 4, 4, 2, 1)
        self.first[1].running_mean.normal_()

    def forward(self, x):
        y = self.first(x)
        return self.up(self.second(y) + y)


def resized(x, **options):
    return row(lambda value: F.interpolate(value, **options), x)


SPELLINGS = {
    "windows of Swin": row(windows, numbers(2, 4, 6, 5)),
    "channel shuffle": row(shuffled, X),
    "channel shuffle between convolutions": layer(
        lambda: nn.Sequential(nn.Conv2d(8, 8, 1), Function(shuffled), nn.Conv2d(8, 8, 1)), X
    ),
    "pixel shuffle": row(pixels, X),
    "pixel shuffle behind a convolution": layer(
        lambda: nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2), nn.ReLU()), X
    ),
    "pixel unshuffle": row(unpixels, X),
    "depth to space": row(depth_to_space, X),
    "heads of attention": row(heads, numbers(2, 5, 24)),
    "heads for grouped queries": row(grouped_heads, numbers(2, 2, 3, 4)),
    "patches": row(patches, X),
    "line of layers": layer(Line, LINE),
    "volumes": layer(
        lambda: nn.Sequential(
            nn.Conv3d(4, 6, (3, 2, 3), (2, 1, 2), (1, 0, 2), (2, 1, 1), groups=2),
            nn.BatchNorm3d(6),
            nn.ReLU(),
            nn.Conv3d(6, 6, 3, padding="same", groups=6, bias=False),
            nn.MaxPool3d((2, 3, 2), (1, 2, 1), (1, 1, 0), ceil_mode=True),
            nn.AvgPool3d(2, 1, 1, count_include_pad=False),
            nn.AdaptiveAvgPool3d((1, 2, 1)),
        ),
        VOLUME,
    ),
    "average of volumes with their padding": row(lambda x: F.avg_pool3d(x, 3, 2, 1, True), VOLUME),
    "a volume without a batch": layer(lambda: nn.Conv3d(4, 2, (2, 1, 3)), numbers(4, 3, 4, 5)),
    "conv1d without a batch": layer(lambda: nn.Conv1d(4, 6, 3), numbers(4, 15)),
    "conv1d dilated in groups": layer(lambda: nn.Conv1d(4, 6, 3, 1, 2, 2, 2), LINE),
    "conv1d padding='same'": layer(lambda: nn.Conv1d(4, 6, 4, padding="same"), LINE),
    "conv_transpose1d": layer(lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), LINE),
    "max_pool1d": row(lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True), LINE),
    "avg_pool1d": row(lambda x: F.avg_pool1d(x, 4, 3, 2), LINE),
    "avg_pool1d, padding left out": row(
        lambda x: F.avg_pool1d(x, 4, 3, 2, count_include_pad=False), LINE
    ),
    "adaptive_avg_pool1d": row(lambda x: F.adaptive_avg_pool1d(x, 4), LINE),
    "adaptive_max_pool1d": row(lambda x: F.adaptive_max_pool1d(x, 5), LINE),
    "interpolate nearest 1-d": resized(LINE, scale_factor=2.0),
    "interpolate linear 1-d": resized(LINE, size=22, mode="linear"),
    "interpolate nearest-exact 1-d": resized(LINE, size=22, mode="nearest-exact"),
    "interpolate area": resized(X, size=(4, 3), mode="area"),
    "interpolate antialiased": resized(X, size=(3, 3), mode="bilinear", antialias=True),
    "adaptive_max_pool2d, even": row(lambda x: F.adaptive_max_pool2d(x, (3, 2)), X),
    "adaptive_max_pool2d, uneven": row(lambda x: F.adaptive_max_pool2d(x, (4, 3)), X),
    "lp_pool2d with padding elsewhere": row(lambda x: F.lp_pool2d(F.relu(x), 2, (2, 3), 1), X),
    "hstack": row(lambda x: torch.hstack([x, x * 2]), ROWS),
    "hstack of vectors": row(lambda x: torch.hstack([x, x * 2]), numbers(5)),
    "vstack of vectors": row(lambda x: torch.vstack([x, x * 2]), numbers(5)),
    "column_stack": row(lambda x: torch.column_stack([x[:, 0], x]), ROWS),
    "tensor_split": row(lambda x: torch.tensor_split(x, 3, dim=1), numbers(2, 8)),
    "tensor_split at places": row(lambda x: torch.tensor_split(x, (1, -2), dim=1), numbers(2, 8)),
    "chunk of uneven parts": row(lambda x: x.chunk(3, 1), numbers(2, 7)),
    "rot90": row(lambda x: x.rot90(1, (2, 3)) + x.rot90(-1, (2, 3)), X),
    "rot90 twice": row(lambda x: x.rot90(2, (0, 1)), ROWS),
    "fliplr, flipud": row(lambda x: x.fliplr() + x.flipud(), ROWS),
    "moveaxis": row(lambda x: torch.moveaxis(x, 1, -1), X),
    "tile": row(lambda x: torch.tile(x, (2, 1, 1, 2)) * x.tile((2, 1, 1, 2)), X),
    "advanced indexing with numbers and slices": row(lambda x: x[:, [0, 3], 1:, -1], X),
    "x[..., None]": row(lambda x: x[:, None, 1:] * x[..., :1].unsqueeze(1), ROWS),
    "padding modes of convolutions": layer(
        lambda: nn.Sequential(
            nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"),
            nn.Conv2d(4, 4, (3, 2), padding=1, padding_mode="circular"),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate"),
        ),
        X,
    ),
    "index_select by computed indices": row(
        lambda x, i: torch.index_select(x, 1, i) + x[:, i], ROWS, torch.tensor([2, -0, 1])
    ),
    "assignment to a slice": row(assigned, X),
    "unfold": row(lambda x: x.unfold(1, 3, 2) * 2, numbers(2, 9)),
    "unfold of an image": row(lambda x: x.unfold(2, 3, 1).reshape(2, -1), X),
    "im2col": row(lambda x: F.unfold(x, (3, 2), (2, 1), (1, 0), 2), X),
    "col2im": row(lambda x: F.fold(x * 2, (6, 4), (3, 2), 1, (1, 0), 1), numbers(2, 12, 18)),
    "col2im that leaves rows over": row(lambda x: F.fold(x, (6, 5), 2, stride=2), numbers(2, 8, 6)),
    "expand_as of a broadcast operand": row(
        lambda x: x * x.mean((2, 3), keepdim=True).expand_as(x) + 1, X
    ),
}


def written(way, module, inputs):
    """The model in the form that it comes in: traced or exported."""
    if way == "traced":
        return traced(module, inputs)
    with quiet_torch():
        return torch.export.export(module, inputs)


WAYS = pytest.mark.parametrize("way", ["traced", "exported"])


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name, way, nnapi_library):
    module, inputs = SPELLINGS[name].make()
    agree(written(way, module, inputs), inputs, module)


OPERATIONS = {
    "channel shuffle between convolutions": "TRANSPOSE CONV_2D CHANNEL_SHUFFLE CONV_2D TRANSPOSE",
    "pixel shuffle behind a convolution": (
        "TRANSPOSE CONV_2D CHANNEL_SHUFFLE DEPTH_TO_SPACE RELU TRANSPOSE"
    ),
    "line of layers": (
        "RESHAPE TRANSPOSE CONV_2D DEPTHWISE_CONV_2D HARD_SWISH ADD TRANSPOSE_CONV_2D TRANSPOSE"
        " RESHAPE"
    ),
    "windows of Swin": "RESHAPE TRANSPOSE RESHAPE ADD RESHAPE TRANSPOSE RESHAPE",
    "heads for grouped queries": "RESHAPE TILE RESHAPE",
    "expand_as of a broadcast operand": "TRANSPOSE AVERAGE_POOL_2D RESHAPE MUL ADD",
}


@WAYS
@pytest.mark.parametrize("name", OPERATIONS)
def test_few_operations(name, way):
    module, inputs = SPELLINGS[name].make()
    region = whole(prepare(written(way, module, inputs), inputs, name))
    assert " ".join(region.operations) == OPERATIONS[name]


SHAPE = (4, 2, 1, 3, 7)


def converted(model, x, given=None, **options):
    example = x if given is None else given
    return nnapi_prof.convert_model(traced(model.eval(), (x,)), [example], **options)


def test_the_operand_has_four_dimensions():
    assert TensorType((2, 3, 4, 5, 6)).memory_shape == (6, 4, 5, 6)
    assert TensorType((2, 3, 4, 5, 6, 7)).memory_shape == (24, 5, 6, 7)
    assert TensorType((2, 3, 4, 5)).memory_shape == (2, 3, 4, 5)


@pytest.mark.parametrize("level", [27, 30])
@pytest.mark.parametrize("dims", [(1, -1), (2, 3), (2, 4), (0, -2), (0, 4)])
def test_flatten(dims, level, nnapi_library):
    x = numbers(*SHAPE)
    module = converted(nn.Flatten(*dims), x, level=level, whole=True)
    assert torch.equal(module(x), x.flatten(*dims))


def test_five_dimensions_out(nnapi_library):
    x = numbers(*SHAPE)
    module = converted(Function(lambda x: (x.relu(), x.reshape(2, 2, 3, 2, 7))), x, whole=True)
    mirrored = numbers(7, 3, 1, 2, 4).permute(4, 3, 2, 1, 0)  # the same shape, another order
    for tensors in (x, mirrored):
        first, second = module(tensors)
        assert torch.equal(first, tensors.relu())
        assert torch.equal(second, tensors.reshape(2, 2, 3, 2, 7))


def test_five_quantised_dimensions(nnapi_library):
    with quiet_torch():
        x = torch.quantize_per_tensor(numbers(*SHAPE), 0.05, 120, torch.quint8)
    module = converted(Function(lambda x: x.relu().flatten(1, 2)), x, whole=True)
    assert torch.equal(module(x).int_repr(), x.relu().flatten(1, 2).int_repr())


@pytest.mark.parametrize(
    ("given", "function"),
    [
        ((0, 2, 1, 3, 7), lambda x: x.flatten(1)),
        ((0, 2, 1, 3, 7), lambda x: x.relu()),
        ((4, 0, 1, 0, 7), lambda x: x.flatten(1, -2) * 2),
        ((4, 0, 1, 3, 0), lambda x: x.relu() + x),
    ],
)
def test_open_sizes(given, function, nnapi_library):
    module = converted(Function(function), numbers(*SHAPE), torch.zeros(given))
    for more in (0, 3):
        x = numbers(*(size if at else size + more for size, at in zip(SHAPE, given, strict=True)))
        torch.testing.assert_close(module(x), function(x), rtol=1e-6, atol=1e-6)


def test_two_open_sizes_that_are_one_to_nnapi():
    with pytest.raises(InputSpecError, match=r"cannot be left open|first 2 dimensions"):
        converted(Function(torch.relu), numbers(*SHAPE), torch.zeros(0, 0, 1, 3, 7))


SCORES, HIDES = numbers(1, 2, 4, 8), numbers(4, 4) > 0
HIDES[1] = False
ADDED = torch.where(HIDES, numbers(4, 4), -math.inf)


class Attention(nn.Module):
    def forward(self, q, mask):
        return F.scaled_dot_product_attention(q, q, q, mask)


class Twice(nn.Module):
    """Two masks, one of which hides a row."""

    def forward(self, x, mask):
        masked = x @ x.transpose(-1, -2) + mask + torch.zeros(4)
        return torch.where((masked == -math.inf).all(-1, True), 0.0, masked.softmax(-1))


@pytest.mark.parametrize("level", [29, 30])
@pytest.mark.parametrize(
    ("module", "mask"), [(Attention(), HIDES), (Attention(), ADDED), (Twice(), ADDED)]
)
def test_attention_that_was_taken_apart(module, mask, level, nnapi_library):
    """Its masked scores are asked for rows of minus infinity; the mask can tell them."""
    with quiet_torch():
        exported = torch.export.export(module, (SCORES, mask)).run_decompositions()
    program = prepare(exported, (SCORES, mask), "apart")
    asked = [n for n in program.module.graph.nodes if n.target is aten.eq.Scalar]
    assert asked and all(node.args[0].target is not aten.add.Tensor for node in asked)
    (result,) = run_whole(program, (SCORES, mask), level)
    torch.testing.assert_close(result, module(SCORES, mask), rtol=1e-5, atol=1e-6)
