"""Rules of the passes at their limits: what each function becomes, or that it stays as it is."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.convert.harness import image
from tests.graph.test_composites import operators

aten, tensor = torch.ops.aten, torch.tensor
C, R, WIDE, NARROW = torch.view_as_complex, torch.view_as_real, torch.complex128, torch.complex64
PAIRS, IMAGE, V, SIGNAL = image(2, 6, 4, 2), image(2, 4, 6, 6), image(3, 5), image(2, 256)
MATRIX, HANN, VOLUME = C(image(4, 5, 2)), torch.hann_window(64), image(1, 2, 4, 4, 4)
WHOLE, ONE, BAG = tensor([[-7, -4, -3, -1], [1, 2, 5, 8]]), tensor([1]), tensor([1, 2, 3, 4])
PLACES, TABLE, STACK = tensor([[0, 1], [2, 3], [4, 0]]), image(9, 4), IMAGE.view(2, 2, 2, 6, 6)
PART, JOIN, SIZE = "slice slice complex", "real imag cat", "mul mul add sqrt"
KERNELS = (image(6, 4, 3) * 20).to(torch.int8)
SCALES = torch.full((6,), 0.05), torch.zeros(6, dtype=torch.int64), 0
Q, LIMITS, TWELVE = "quantized_decomposed", (-128, 127, torch.int8), image(3, 12)
QQ = f"{Q} {Q}"
RESIZED = "slice linear slice slice constant_pad_nd constant_pad_nd cat linear slice slice"
WIDENED = f"slice slice {PART} _to_copy complex add mul div abs _to_copy abs _to_copy abs _to_copy"
SHAPE, HALF, TURNS = STACK.shape, IMAGE[:, :2], image(3, 2, 3)
split_sizes, adaptive = aten.unsafe_split_with_sizes, F.adaptive_max_pool2d
fake = torch.fake_quantize_per_tensor_affine


def wide(x):
    y, z = C(x), C(x).to(WIDE)
    return [part.abs().float() for part in (z + y, z * y, z / y)]


def near(x):
    return DEQUANTIZE(QUANTIZE(x, 0.05, 0, *LIMITS), 0.05, 0, *LIMITS)


def weights():
    return DEQUANTIZE_CHANNELS(KERNELS, *SCALES, *LIMITS)


def stft(x, mode, whole=True, window=HANN):
    return aten.stft.center(x, 64, 16, None, window, True, mode, False, False, whole)


def bags(i, weights):
    return F.embedding_bag(i, TABLE, tensor([0, 2]), mode="sum", per_sample_weights=weights)


CASES: list[tuple[Any, ...]] = [
    ("slice expand cat", lambda x: R(torch.complex(x, x[:, :1])), V),
    ("abs slice cos sin mul mul cat", lambda x: R(torch.polar(x.abs(), x[:, :1])), V),
    ("abs exp add", lambda x: x.to(NARROW).abs() + x.to(NARROW).exp().real, V),
    (f"add {JOIN}", lambda x: R(x + (1 + 2j)), V),
    (
        "slice slice linear linear sub",
        lambda x: torch.einsum("bij,jk->bik", C(x), MATRIX).real,
        PAIRS,
    ),
    ("slice slice cat", lambda x: R(torch.einsum("bij->bji", C(x))), PAIRS),
    (
        f"{PART} matmul linear real",
        lambda x: torch.einsum("ij,jk,j->ik", C(x), MATRIX, MATRIX[:, 0]).real,
        PAIRS[0],
    ),
    ("slice slice mul mul sub mul mul add cat", lambda x: R(C(x) ** 2), PAIRS),
    ("slice slice mul mul sub", lambda x: C(x).square().real, PAIRS),
    (f"{PART} pow {JOIN}", lambda x: R(C(x) ** 3), PAIRS),
    ("slice slice gt masked_fill", lambda x: C(x).masked_fill(x[..., 0] > 0, 1 + 2j).real, PAIRS),
    (f"{PART} sum {JOIN}", lambda x: R(C(x).sum(1, dtype=NARROW)), PAIRS),
    (
        "slice slice complex _to_copy cat real",
        lambda x, i: torch.cat([C(x), i]).real,
        PAIRS[0, :2],
        WHOLE,
    ),
    (WIDENED, wide, PAIRS),
    (f"{PART} div {JOIN}", lambda x: R(C(x) / (1 + 2j)), PAIRS),
    (f"complex sin {JOIN}", lambda x: R(torch.sin(x.to(NARROW))), V),
    (f"{RESIZED} {SIZE}", lambda x: torch.fft.fftn(x, s=(4, 3)).abs(), V),
    (f"fft_fftn real imag {SIZE}", lambda x: torch.fft.fftn(x, dim=()).abs(), V),
    ("constant_pad_nd convolution slice slice cat", lambda x: R(stft(x, "constant")), SIGNAL),
    (
        "replication_pad1d convolution slice slice cat",
        lambda x: stft(x, "replicate", False),
        SIGNAL,
    ),
    ("stft real imag cat", lambda x: R(stft(x, "circular")), SIGNAL),
    ("stft real imag cat", lambda x: R(stft(x, "reflect", window=HANN * 1j)), SIGNAL),
    # places
    ("slice index_add", lambda a, p: a.index_add(0, p, a[:1]), WHOLE, ONE),
    ("sum mul index_copy", lambda x, p, y: x.sum().index_copy(0, p * 0, y), V, ONE, V[0, :1]),
    ("slice slice mul index_fill", lambda x, p: x[0, 0].index_fill(0, p * 0, 1.0), V, ONE),
    ("eq eq logical_or where", lambda x, p: x.index_fill(1, p, tensor(2.5)), V, ONE),
    ("sum index_fill", lambda x, p: x.index_fill(1, p, x.sum()), V, ONE),
    ("where", lambda x: x.index_fill(1, tensor([1]), tensor(2.5)), V),
    ("sum index_fill", lambda x: x.index_fill(1, tensor([1]), x.sum()), V),
    ("slice mul eq eq logical_or where", lambda x, p: x.index_put((p,), x[0] * 2), V, ONE[0]),
    ("slice scatter", lambda x, i: x.scatter(1, i[:2], 1.5), V, PLACES),
    ("scatter_add", lambda a, i: a.scatter_add(1, i, a), WHOLE, WHOLE % 4),
    ("slice mul index_put", lambda a: a.index_put((ONE,), a[:1] * 2, accumulate=True), WHOLE),
    ("trace", lambda a: a.trace() * 1, WHOLE),
    ("slice sort bucketize", lambda x: torch.bucketize(x, x[0].sort()[0]), V),
    ("bucketize", lambda a: torch.bucketize(a, tensor([1.0, 2.0])), WHOLE),
    ("bucketize", lambda x: torch.bucketize(x, tensor([0, 1])), V),
    ("sum unfold", lambda x: x.sum().unfold(0, 1, 1), V),
    ("im2col", lambda x: F.unfold(x, 3), IMAGE[0]),
    ("col2im", lambda x: F.fold(x, (6, 6), 2, stride=2), image(8, 9)),
    # moves
    ("add", lambda x: torch.rot90(x, 4) + 1, V),
    ("add", lambda x: aten.adjoint.default(x) + 1, V),
    ("add", lambda x: torch.ravel(x) + 1, V),
    ("channel_shuffle add", lambda x: aten.native_channel_shuffle.default(x, 2) + 1, IMAGE),
    ("lt add where gather", torch.take_along_dim, V, tensor([3, 14])),
    ("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), V, tensor([[3, 1]])),
    ("argsort gather", lambda x: torch.take_along_dim(x, x.argsort(1), 1), V),
    ("tensor_split add add add", lambda x: [y + 1 for y in x.tensor_split([3, 1], 1)], V),
    ("slice slice add add", lambda x: [y + 1 for y in aten.unsafe_chunk(x, 2, 1)], V),
    ("slice slice add add", lambda x: [y + 1 for y in split_sizes(x, [2, 3], 1)], V),
    ("adaptive_max_pool2d", lambda x: adaptive(x, 2, return_indices=True), IMAGE),
    ("slice mul slice cat", lambda x: x.select_scatter(x[0] * 2, 0, -1), V),
    ("add", lambda x: x.slice_scatter(x[:, :0], 1, 2, 2) + 1, V),
    ("diff", lambda x: x.diff(n=2), V),
    ("gt diff", lambda x: (x > 0).diff(), V),
    ("add", lambda x: aten.fill.Scalar(x, 2.0) + x, V),
    # sums of stacks, norms and distances
    ("sum", lambda x: x.view(2, 4, 3, 2, 6).sum(1), IMAGE),
    ("relu sum", lambda x: x.view(SHAPE).relu().sum(1), IMAGE),
    ("slice slice mul slice slice mul add", lambda x, y: (x.view(SHAPE) * y).sum(1), IMAGE, STACK),
    ("slice mul slice mul add", lambda x, y: (x.view(SHAPE) * y.unsqueeze(1)).sum(1), IMAGE, HALF),
    ("mul sum", lambda x, y: (x * y).sum(1), STACK, STACK),
    ("mul sum", lambda x, y: (x * y).sum(1), STACK, IMAGE[0, :2]),
    ("mean var batch_norm", lambda x: F.batch_norm(x, x.mean((0, 2, 3)), x.var((0, 2, 3))), IMAGE),
    ("embedding mul sum", bags, BAG, image(4)),
    ("embedding_bag", lambda i: F.embedding_bag(i, TABLE, tensor([0, 3]), mode="sum"), BAG),
    ("_to_copy affine_grid_generator", lambda m: F.affine_grid(m.double(), [3, 1, 4, 5]), TURNS),
    ("_to_copy _to_copy cdist _to_copy", lambda x: torch.cdist(x.double(), x.double()).float(), V),
    # moves of weights in 8 bits
    (f"{QQ} {Q} linear {QQ}", lambda x: near(F.linear(near(x), weights().view(6, 12))), TWELVE),
    (f"{QQ} linear {QQ}", lambda x: near(F.linear(near(x), weights().view(9, 8))), image(3, 8)),
    (f"{QQ} {Q} convolution {QQ}", lambda x: near(F.conv1d(near(x), weights())), image(2, 4, 9)),
    ("_to_copy fake_quantize_per_tensor_affine", lambda x: fake(x.double(), 0.1, 0, 0, 99), V),
    # images of depth
    ("max_pool2d max_pool2d", lambda x: F.max_pool3d(x, 2, return_indices=True)[0], VOLUME),
    ("max_pool3d_with_indices", lambda x: F.max_pool3d(x, 2, return_indices=True), VOLUME),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_pass_rewrites_or_leaves(case: tuple[Any, ...]) -> None:
    left, function, *inputs = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of indices out of order, and of stft in real numbers
        assert operators(function, *inputs) == left
