"""What torchao's quantisers make of exported programs, end to end."""

import importlib
import logging
import warnings
from functools import cache, partial

import pytest
import torch
from torch import nn

from nnapi_prof import convert_model
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.quantised_models import checked_regions
from tests.parts import need

need("torchao", "dev")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.ReLU())
        self.narrow = nn.Conv2d(8, 8, 1)
        self.classify = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.narrow(self.depth(x))
        x = torch.cat([x, nn.functional.max_pool2d(x, 3, 1, 1)], 1)
        return self.classify(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def quantiser(kind, **options):
    module, name, config = {
        "xnnpack": ("testing.pt2e._xnnpack_quantizer", "XNNPACK", "symmetric"),
        "x86": (f"{INDUCTOR}.x86_inductor_quantizer", "X86Inductor", "default_x86_inductor"),
        "arm": (f"{INDUCTOR}.arm_inductor_quantizer", "ArmInductor", "default_arm_inductor"),
    }[kind]
    module = importlib.import_module(f"torchao.{module}")
    config = getattr(module, f"get_{config}_quantization_config")
    return getattr(module, f"{name}Quantizer")().set_global(config(**options))


INDUCTOR = "quantization.pt2e.quantizer"
QUANTISERS = {
    "xnnpack": partial(quantiser, "xnnpack"),
    "xnnpack channels": partial(quantiser, "xnnpack", is_per_channel=True),
    "xnnpack part of int8": partial(quantiser, "xnnpack", act_qmin=-127),
    "xnnpack dynamic": partial(quantiser, "xnnpack", is_dynamic=True, is_per_channel=True),
    "x86 part of uint8": partial(quantiser, "x86", reduce_range=True),
    "arm": partial(quantiser, "arm"),
}
N_QUANTISED = {"xnnpack dynamic": 0, "arm": 2, "x86 part of uint8": 2}
"""Units at least, where a quantiser leaves most results floats."""


@cache
def exported(name, fold=True):
    """A program that a quantiser made of the network, and an input."""
    with warnings.catch_warnings(), quiet_torch(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        logging.getLogger("torchao").setLevel(logging.ERROR)
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        torch.manual_seed(0)
        net, x = Net().eval(), torch.randn(1, 3, 16, 16)
        observed = prepare_pt2e(torch.export.export(net, (x,)).module(), QUANTISERS[name]())
        for _ in range(2):
            observed(torch.randn(1, 3, 16, 16))
        converted = convert_pt2e(observed, fold_quantize=fold)
        return torch.export.export(converted, (x,)), x


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISERS)
def test_every_unit_is_right_within_a_step(name, nnapi_library):
    program, x = exported(name)
    program = prepare(program, (x,), name)
    quantised = [unit for unit in program.units.units if unit.label.startswith("quantised ")]
    assert len(quantised) >= N_QUANTISED.get(name, 6)
    for level in (28, 29, 30):
        for region in checked_regions(program, x, level):
            rules = region.in_floats.values()  # a mean to a scale of its own
            assert all("NNAPI gives QUANT8_ASYMM of scale" in rule for rule in rules)


@pytest.mark.parametrize("name", QUANTISERS)
def test_stock_pytorch_runs_all_of_it_on_nnapi(name, nnapi_library):
    program, x = exported(name)
    with quiet_torch():
        actual, expected = convert_model(program, x, whole=True)(x), program.module()(x)
    step = (expected.max() - expected.min()) / 100  # more than the scale of any result here
    assert (actual - expected).abs().max() <= step


def test_constants_that_are_quantised_when_the_model_runs_are_constants():
    items = []
    for fold in (True, False):
        program, x = exported("xnnpack channels", fold)
        items.append(prepare(program, (x,), "net").units)
    assert [unit.label for unit in items[0].units] == [unit.label for unit in items[1].units]
    assert sum(unit.label.startswith("quantised ") for unit in items[1].units) >= 4
