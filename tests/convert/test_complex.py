"""Complex numbers and Fourier transforms, against eager PyTorch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.bundle.stock import make
from tests.convert.coverage.rows import Function, numbers
from tests.convert.harness import traced

as_complex = torch.view_as_complex
IMAGE, SIGNAL, PAIRS = numbers(1, 3, 12, 10), numbers(2, 256), numbers(2, 6, 4, 2)
FILTER, MATRIX = as_complex(numbers(3, 12, 6, 2)), as_complex(numbers(4, 5, 2))
TURNS = torch.polar(torch.ones(6, 4), numbers(6, 4))
HANN = torch.hann_window(64)


def spectrum(x: Tensor, **options: object) -> Tensor:
    return torch.stft(x, 64, 16, window=HANN, return_complex=True, **options)  # type: ignore[arg-type]


def positions(x: Tensor) -> Tensor:
    angles = x[..., 0].cumsum(1)
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(as_complex(x) * turns).flatten(2)


def spectral_layer(x: Tensor) -> Tensor:
    some = torch.fft.rfft(x)[..., :5]
    modes = torch.zeros(*x.shape[:-1], 6, dtype=torch.complex64)
    modes[..., :5] = (
        torch.einsum("bcix,xy->bciy", some, MATRIX[:, :1] @ MATRIX[:1] * 0.1 + 0j)
        if some.shape[-1] == 4
        else some * 0.5j
    )
    return torch.fft.irfft(modes, n=10)


def arithmetic(x: Tensor) -> Tensor:
    a, b = as_complex(x), as_complex(x).conj() + 2
    c = (a * b - b / (a * a.conj() + 1) + (1 - 2j) * a) / (0.5 + a.real**2)
    return torch.cat([c.real, c.imag, c.abs(), torch.exp(a * 0.1).imag, (a @ MATRIX).angle()], -1)


def moves(x: Tensor) -> Tensor:
    a = torch.cat([as_complex(x), x[..., 0] + 0j], 1).transpose(1, 2)
    low, high = a.split([1, 3], 1)
    picked = torch.stack([high[:, ::2], high.flip(1)[:, 1:]], 0).index_select(
        2, torch.tensor([1, 0])
    )
    return torch.view_as_real((picked.sum(0) - low).reshape(2, -1))


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "rotation": (lambda x: torch.view_as_real(as_complex(x) * TURNS), PAIRS),
    "positions": (positions, PAIRS),
    "arithmetic": (arithmetic, PAIRS),
    "moves": (moves, PAIRS),
    "filter": (
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * FILTER, s=(12, 10)),
        IMAGE,
    ),
    "mixing": (lambda x: torch.fft.fft2(x, dim=(1, 3)).real, IMAGE),
    "there and back": (
        lambda x: torch.fft.ifftn(torch.fft.fftn(x) * 1j, norm="forward").imag,
        IMAGE,
    ),
    "other lengths": (lambda x: torch.fft.fft(torch.fft.rfft(x, 15, 2), 7, 1).abs(), IMAGE),
    "odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x, 9), 9), IMAGE),
    "spectral layer": (spectral_layer, IMAGE),
    "magnitudes": (lambda x: spectrum(x).abs(), SIGNAL),
    "power": (lambda x: spectrum(x, center=False, normalized=True).abs().pow(2), SIGNAL[0]),
    "two-sided": (lambda x: torch.view_as_real(spectrum(x, onesided=False)), SIGNAL),
    "denoiser": (
        lambda x: torch.istft(spectrum(x) * torch.sigmoid(spectrum(x).abs()), 64, 16, window=HANN),
        SIGNAL,
    ),
    "of a length": (
        lambda x: torch.istft(spectrum(x), 64, 16, window=HANN, length=250, normalized=True),
        SIGNAL[0],
    ),
    "phases": (lambda x: torch.fft.fft2(x).angle(), IMAGE),
    "phases of real frequencies": (lambda x: spectrum(x).angle()[..., 0, :], SIGNAL),
    "1,024": (lambda x: torch.fft.rfft(x.flatten().tile(2)).abs(), SIGNAL),
}


@pytest.mark.parametrize("way", ["exported", "traced"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_runs_whole_on_nnapi(nnapi_library: object, name: str, way: str) -> None:
    function, x = FUNCTIONS[name]
    model = Function(function).eval()
    result = make(traced(model, (x,)) if way == "traced" else model, (x,))
    assert result.kinds == ["nnapi"]
    expected = function(x * 0.7)
    error = (result.module(x * 0.7) - expected).abs().max() / expected.abs().max()
    assert error < 5e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.irfft(torch.fft.rfft(x.flatten().tile(8)) * 0.5)[:8],
        lambda x: torch.view_as_real(torch.sin(torch.fft.rfft(x) * 0.01) * 2),
        lambda x: torch.fft.rfft(x) * 2,
        lambda x: torch.fft.rfft(x.double()).abs().float(),
        lambda x: torch.istft(
            spectrum(x), 64, 16, window=torch.where(x[0, :64] > 9, 0.0, HANN), length=256
        ),
    ],
    ids=["longer than 1,024", "a sine", "a complex output", "float64", "a computed window"],
)
def test_what_has_no_rule_stays(
    nnapi_library: object, function: Callable[[Tensor], Tensor]
) -> None:
    result = make(traced(Function(function).eval(), (SIGNAL,)), (SIGNAL,), keep=True)
    assert "cpu" in result.kinds
    torch.testing.assert_close(result.module(SIGNAL), function(SIGNAL), rtol=1e-5, atol=1e-4)
