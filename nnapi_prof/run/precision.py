"""What float16 costs in accuracy: a region in halves, run on this host against float32."""

from __future__ import annotations

import ctypes

import torch

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.float16 import to_float16
from nnapi_prof.convert.region import ConvertedRegion
from nnapi_prof.device.build import build_host
from nnapi_prof.frontend.quiet import quiet_torch
from nnapi_prof.graph.program import Program
from nnapi_prof.run.compare import compare
from nnapi_prof.run.host import constant_outputs
from nnapi_prof.run.result import OutputCheck


def float16_checks(program: Program, region: ConvertedRegion) -> tuple[OutputCheck, ...]:
    """Each output of ``region`` (all of ``program``) in float16, against float32 in eager PyTorch.

    It runs on the program's example inputs, in stock PyTorch on the emulator, whose float16
    rounds after every operation: a driver may be better, and hardly worse. Raises ConversionError
    where float16 cannot hold the region, NnapiProfError where stock PyTorch cannot carry it, and
    BuildError where the emulator cannot be built.
    """
    halved = to_float16(region)
    module = stock_module(program.units, halved, constant_outputs(program))
    ctypes.CDLL(str(build_host().library), mode=ctypes.RTLD_GLOBAL)
    with torch.inference_mode(), quiet_torch():
        found = module(*program.example_inputs)
        wanted = program.module(*program.example_inputs)
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    return compare(
        program.units.outputs,
        [value.detach().numpy() for value in found],
        [value.detach().numpy() for value in wanted],
    )
