"""Models of the ExecuTorch benchmarks: the example models, an encoder, a CNN in int8."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import digits
import models

from nnapi_prof.frontend.torch_logging import quiet_torch

ENCODER, DIGITS = "encoder", "digits_int8"
NAMES = (*sorted(models.MODELS), ENCODER, DIGITS)


def module_of(name: str, size: int | None = None) -> tuple[nn.Module, torch.Tensor]:
    """Returns a model by name, as a module if float32, and an input of side ``size``."""
    torch.manual_seed(0)
    if name == ENCODER:
        torch.backends.mha.set_fastpath_enabled(False)  # the path that shows ATen's operators
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return encoder.eval(), torch.randn(1, 64, 128)
    make, shape = models.MODELS[name]
    if size is not None:
        shape = (*shape[:2], size, size)
    return models.initialise(make()), torch.rand(shape)


def program_of(
    name: str, size: int | None = None
) -> tuple[torch.export.ExportedProgram, torch.Tensor]:
    """Returns a model as exported by ``torch.export``, and an input."""
    if name == DIGITS:
        return _quantised_digits()
    module, x = module_of(name, size)
    return torch.export.export(module, (x,)), x


def _quantised_digits() -> tuple[torch.export.ExportedProgram, torch.Tensor]:
    """Returns a CNN trained on digits, in 8 bits by PT2E and XNNPACK's quantizer."""
    with quiet_torch():
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    data = digits.read_digits()
    module = digits.train("plain", data.train, epochs=2)
    x = data.held_out.images[:1]
    with quiet_torch():
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
        observed = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
        for (image,) in data.calibration.samples[:50]:
            observed(image)
        return torch.export.export(convert_pt2e(observed), (x,)), x
