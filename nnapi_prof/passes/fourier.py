"""Discrete Fourier transforms as products with constant matrices.

A transform of n numbers is a product with an n x n matrix of cosines and sines. Real and imaginary
parts are joined, so each transform is one product of real numbers. The transform of a signal's
windows is a convolution with such rows as filters; its inverse is a transposed convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.graph.node import positive_dim, type_of
from nnapi_prof.passes import Site

aten = torch.ops.aten

MAX_LENGTH = 1024
"""Longest transform that becomes a product. Its matrix has up to 2 times 4 MB, and it takes n^2
steps, not n log n."""


@dataclass(frozen=True)
class ComplexPair:
    """Real and imaginary part: nodes, or Python numbers for a number. None is zero everywhere."""

    real: Any
    imag: Any


Transform = Callable[[Site, ComplexPair], ComplexPair | fx.Node | None]


def imag_of(site: Site, pair: ComplexPair) -> fx.Node:
    """Returns the imaginary part as a node; None becomes zeros."""
    if isinstance(pair.imag, fx.Node):
        return pair.imag
    return site.add_constant(torch.zeros(type_of(pair.real).shape), "zeros")


def _angles(n: int, frequencies: int) -> Tensor:
    """Returns ``2 pi j k / n`` of each index j and frequency k as [n, frequencies], exactly."""
    turns = torch.outer(torch.arange(n), torch.arange(frequencies)) % n
    return turns.double() * (2 * math.pi / n)


def _forward_matrix(n: int, frequencies: int, scale: float, real: bool, sign: int) -> Tensor:
    """Returns the matrix from numbers [re | im] (or [re]) to frequencies [re | im]; ``sign`` is -1
    for the transform, 1 for its inverse."""
    angles = _angles(n, frequencies)
    cos, sin = scale * angles.cos(), scale * sign * angles.sin()
    rows = [torch.cat([cos, sin], 1)]
    if not real:
        rows.append(torch.cat([-sin, cos], 1))
    return _with_zeros(torch.cat(rows)).float()


def _with_zeros(matrix: Tensor) -> Tensor:
    """Makes rounded zeros exact, because a real frequency's phase depends on their sign."""
    return torch.where(matrix.abs() < 1e-12, 0.0, matrix)


def _real_matrix(n: int, scale: float) -> Tensor:
    """Returns the matrix to n real numbers from their n // 2 + 1 frequencies [re | im]."""
    frequencies = n // 2 + 1
    twice = torch.full((frequencies, 1), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    angles = _angles(n, frequencies).T
    matrix = torch.cat([angles.cos() * twice, -angles.sin() * twice]).mul(scale)
    return _with_zeros(matrix).float()


def _norm_factor(norm: Any, n: int, inverse: bool) -> float:
    """Returns the scale of a transform of n numbers."""
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm in (None, "backward")) else 1.0


def _resized(site: Site, part: fx.Node, dim: int, size: int) -> fx.Node:
    """Returns the first ``size`` numbers along a dimension, padded with zeros."""
    shape = type_of(part).shape
    if shape[dim] > size:
        return site.call(aten.slice.Tensor, part, dim, 0, size, 1)
    if shape[dim] < size:
        pads = [0, 0] * (len(shape) - 1 - dim) + [0, size - shape[dim]]
        return site.call(aten.constant_pad_nd.default, part, pads, 0.0)
    return part


def _times_matrix(site: Site, parts: Sequence[fx.Node], dim: int, matrix: Tensor) -> fx.Node:
    """Multiplies parts, joined along ``dim``, by a matrix; the result is along the last one."""
    last = len(type_of(parts[0]).shape) - 1
    turned = [
        part if dim == last else site.call(aten.transpose.int, part, dim, last) for part in parts
    ]
    joined = turned[0] if len(turned) == 1 else site.call(aten.cat.default, turned, last)
    return site.call(aten.matmul.default, joined, site.add_constant(matrix, "fourier"))


def _turned_back(site: Site, part: fx.Node, dim: int) -> fx.Node:
    last = len(type_of(part).shape) - 1
    return part if dim == last else site.call(aten.transpose.int, part, dim, last)


def _forward(
    site: Site, pair: ComplexPair, dim: int, n: int, frequencies: int, scale: float, sign: int = -1
) -> ComplexPair:
    """Returns the first frequencies of a transform or its inverse, of n numbers along ``dim``."""
    parts = [_resized(site, part, dim, n) for part in (pair.real, pair.imag) if part is not None]
    matrix = _forward_matrix(n, frequencies, scale, pair.imag is None, sign)
    result = _times_matrix(site, parts, dim, matrix)
    last = len(type_of(result).shape) - 1
    halves = [
        site.call(aten.slice.Tensor, result, last, start, start + frequencies, 1)
        for start in (0, frequencies)
    ]
    return ComplexPair(*(_turned_back(site, half, dim) for half in halves))


def _to_real(site: Site, pair: ComplexPair, dim: int, n: int, scale: float) -> fx.Node:
    """Returns n real numbers from their first n // 2 + 1 frequencies along one dimension."""
    parts = [_resized(site, part, dim, n // 2 + 1) for part in (pair.real, imag_of(site, pair))]
    return _turned_back(site, _times_matrix(site, parts, dim, _real_matrix(n, scale)), dim)


@dataclass(frozen=True)
class _Kind:
    """Family of transforms: the direction, and which side is real."""

    inverse: bool = False
    real_input: bool = False
    real_output: bool = False
    dims: tuple[int, ...] | None = (-1,)
    """Default dimensions; None means all."""

    def __call__(self, site: Site, pair: ComplexPair) -> ComplexPair | fx.Node | None:
        """Returns the transform of a node ``fft_*`` along each of its dimensions. The last one is
        first, or last where the result is real."""
        shape = type_of(pair.real).shape
        if self.real_input and pair.imag is not None:
            return None
        dims, sizes = self._places(site, len(shape))
        if not dims:
            return None
        lengths = []
        for dim, size in zip(dims, sizes, strict=True):
            own = shape[dim]
            if size in (None, -1):
                size = 2 * (own - 1) if self.real_output and dim == dims[-1] else own
            lengths.append(size)
        if not all(1 <= n <= MAX_LENGTH for n in lengths):
            return None
        scales = [_norm_factor(site.args["norm"], n, self.inverse) for n in lengths]
        steps = list(zip(dims, lengths, scales, strict=True))
        sign = 1 if self.inverse else -1
        if self.real_output:
            for dim, n, scale in steps[:-1]:
                pair = _forward(site, pair, dim, n, n, scale, sign)
            return _to_real(site, pair, *steps[-1])
        for index, (dim, n, scale) in enumerate(reversed(steps)):
            half = self.real_input and index == 0
            pair = _forward(site, pair, dim, n, n // 2 + 1 if half else n, scale, sign)
        return pair

    def _places(self, site: Site, rank: int) -> tuple[list[int], list[int | None]]:
        """Returns the dimensions to transform, and the given lengths."""
        if "n" in site.args:
            return [positive_dim(site.args["dim"], rank)], [site.args["n"]]
        stated, dims = site.args["s"], site.args["dim"]
        if dims is None:
            dims = self.dims or range(rank)
            if stated is not None and self.dims is None:
                dims = range(rank - len(stated), rank)
        listed = [positive_dim(dim, rank) for dim in dims]
        return listed, list(stated) if stated is not None else [None] * len(listed)


# Transforms of a signal's windows


def _window(site: Site, n: int) -> Tensor | None:
    """Returns the window padded with zeros on both sides to n numbers; None if it is computed."""
    length = int(site.args["win_length"] or n)
    if site.args["window"] is None:
        window: Tensor | None = torch.ones(length, dtype=torch.float64)
    else:
        window = site.constant("window")
    if window is None or window.is_complex() or len(window) != length:
        return None
    before = (n - length) // 2
    return torch.nn.functional.pad(window.double(), (before, n - length - before))


def _short_time(site: Site, pair: ComplexPair) -> ComplexPair | fx.Node | None:
    """Writes out ``stft`` as a convolution of the signal with a window's cosines and sines."""
    arg, signal = site.args, pair.real
    n, window = int(arg["n_fft"]), _window(site, int(arg["n_fft"]))
    if n > MAX_LENGTH or window is None or pair.imag is not None or arg.get("align_to_window"):
        return None
    frequencies = n // 2 + 1 if arg["onesided"] in (None, True) else n
    hop = int(arg["hop_length"] or n // 4)
    shape = type_of(signal).shape
    signal = site.view(signal, [shape[0] if len(shape) == 2 else 1, 1, shape[-1]])
    if arg.get("center"):
        pads = {"reflect": aten.reflection_pad1d, "replicate": aten.replication_pad1d}
        if arg["pad_mode"] == "constant":
            signal = site.call(aten.constant_pad_nd.default, signal, [n // 2, n // 2], 0.0)
        elif arg["pad_mode"] in pads:
            signal = site.call(pads[arg["pad_mode"]].default, signal, [n // 2, n // 2])
        else:
            return None
    scale = 1 / math.sqrt(n) if arg["normalized"] else 1.0
    rows = _forward_matrix(n, frequencies, scale, True, -1).T * window
    filters = site.add_constant(rows[:, None, :].float().contiguous(), "fourier_windows")
    result = site.call(aten.conv1d.default, signal, filters, None, [hop], [0], [1], 1)
    if len(shape) == 1:
        result = site.view(result, list(type_of(result).shape[1:]))
    dim = len(type_of(result).shape) - 2
    parts = [
        site.call(aten.slice.Tensor, result, dim, start, start + frequencies, 1)
        for start in (0, frequencies)
    ]
    if site.type.dtype != "complex64":
        return site.call(aten.stack.default, parts, -1)
    return ComplexPair(*parts)


SMALLEST_ENVELOPE = 1e-11
"""Smallest sum of the overlapping windows' squares that PyTorch accepts."""


def _inverse_short_time(site: Site, pair: ComplexPair) -> fx.Node | None:
    """Writes out ``istft`` as a transposed convolution over the sum of the windows' squares."""
    arg = site.args
    n, window = int(arg["n_fft"]), _window(site, int(arg["n_fft"]))
    shape = type_of(pair.real).shape
    whole = arg["return_complex"] or arg["onesided"] is False or shape[-2] != n // 2 + 1
    if n > MAX_LENGTH or window is None or whole:
        return None
    hop, frames = int(arg["hop_length"] or n // 4), shape[-1]
    scale = 1 / math.sqrt(n) if arg["normalized"] else 1 / n
    filters = (_real_matrix(n, scale).double() * window)[:, None, :].float()
    joined = site.call(aten.cat.default, [pair.real, imag_of(site, pair)], len(shape) - 2)
    joined = site.reshape(joined, [shape[0] if len(shape) == 3 else 1, 2 * (n // 2 + 1), frames])
    constant = site.add_constant(filters.contiguous(), "fourier_windows")
    signal = site.call(aten.conv_transpose1d.default, joined, constant, None, [hop], [0], [0])
    squares = torch.zeros(n + hop * (frames - 1), dtype=torch.float64)
    for frame in range(frames):
        squares[frame * hop : frame * hop + n] += window**2
    start = n // 2 if arg["center"] else 0
    end = len(squares) - (n // 2 if arg["center"] else 0)
    if arg["length"] is not None:
        end = min(len(squares), start + int(arg["length"]))
    envelope = squares[start:end]
    if not len(envelope) or bool(envelope.abs().min() < SMALLEST_ENVELOPE):
        return None
    signal = site.call(aten.slice.Tensor, signal, 2, start, end, 1)
    inverse = site.add_constant((1 / envelope).float(), "window_envelope")
    signal = site.call(aten.mul.Tensor, signal, inverse)
    signal = _resized(site, signal, 2, site.type.shape[-1])
    return site.reshape(signal, list(site.type.shape))


_ALL = None
TRANSFORMS: dict[Any, Transform] = {
    aten.fft_fft.default: _Kind(),
    aten.fft_ifft.default: _Kind(inverse=True),
    aten.fft_rfft.default: _Kind(real_input=True),
    aten.fft_irfft.default: _Kind(inverse=True, real_output=True),
    aten.fft_fft2.default: _Kind(dims=(-2, -1)),
    aten.fft_ifft2.default: _Kind(inverse=True, dims=(-2, -1)),
    aten.fft_rfft2.default: _Kind(real_input=True, dims=(-2, -1)),
    aten.fft_irfft2.default: _Kind(inverse=True, real_output=True, dims=(-2, -1)),
    aten.fft_fftn.default: _Kind(dims=_ALL),
    aten.fft_ifftn.default: _Kind(inverse=True, dims=_ALL),
    aten.fft_rfftn.default: _Kind(real_input=True, dims=_ALL),
    aten.fft_irfftn.default: _Kind(inverse=True, real_output=True, dims=_ALL),
    aten.stft.default: _short_time,
    aten.stft.center: _short_time,
    aten.istft.default: _inverse_short_time,
}
"""Operator -> its transform as a product."""
