"""Nets trained on the digits of scikit-learn, and what NNAPI on this host makes of them."""

import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import Program
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.sensitivity import Data
from nnapi_prof.precision.simulation import PrecisionSimulation
from nnapi_prof.toolchain import cache_dir, locked
from tests.parts import need
from tests.precision import common


def script() -> ModuleType:
    """The module examples/digits.py."""
    need("sklearn", "dev")
    return common.script("digits")


SIZE = 16
"""Of the images here: small ones are learnt in less time."""


def images(part: str, seed: int = 0) -> Any:
    """Those of ``train``, ``calibration`` or ``held_out``."""
    large = getattr(script().read_digits(seed), part)
    return script().Images(nn.functional.adaptive_avg_pool2d(large.images, SIZE), large.labels)


@cache
def net() -> nn.Module:
    """A net with residual blocks, after some epochs: trained by the first process that asks."""
    sources = (Path(script().__file__), Path(__file__))
    content = b"".join(path.read_bytes() for path in sources) + torch.__version__.encode()
    key = hashlib.sha256(content).hexdigest()
    file = cache_dir() / f"test-digits-{key[:16]}.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_suffix(".lock")):
        if not file.exists():
            partial = file.with_suffix(".partial")
            torch.save(script().train("residual", images("train"), epochs=5).state_dict(), partial)
            partial.replace(file)
    model: nn.Module = script().NETS["residual"]()
    model.load_state_dict(torch.load(file))
    return model.eval()


@cache
def program() -> Program:
    return prepare(net(), images("calibration").samples[0], "digits")


@cache
def simulation() -> PrecisionSimulation:
    """The net in any precision."""
    recipe = calibrate(program(), images("calibration").samples, 30)
    return PrecisionSimulation(program(), HostNnapi(build_host().library), recipe)


def data(part: str, count: int, seed: int = 0) -> Data:
    """Some images of ``calibration`` or ``held_out``, with their labels."""
    some = images(part, seed)
    return Data(some.samples[:count], some.targets[:count])
