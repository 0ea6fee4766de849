"""Modules with open sizes in stock PyTorch on the emulator, against eager PyTorch."""

import io

import pytest
import torch

from nnapi_prof.bundle.stock_module import flexible_stock_module
from nnapi_prof.convert.dynamic_shapes import FlexibleModel, flexible_region
from nnapi_prof.frontend.inputs import parse_input_spec
from nnapi_prof.frontend.loader import model_structure
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.program import constant_outputs
from tests.convert.dynamic_shapes import networks
from tests.parts import again_but


def converted(folder, make, spec, traced=True):
    """The converted module, saved and loaded, and the original."""
    torch.manual_seed(4)
    specs = [parse_input_spec(word) for word in spec.split()]
    examples = tuple(torch.randn(reference.shape) for reference in specs)
    path = networks.saved(make(), folder / "model.pt", *(examples if traced else ()))
    flexible = FlexibleModel(path, specs)
    template = flexible_region(flexible, 30)
    program = flexible.program(flexible.examples)
    structure = model_structure(path, examples)
    file = io.BytesIO()
    with quiet_torch():
        module = flexible_stock_module(
            program.units, template, constant_outputs(program), structure=structure
        )
        torch.jit.save(module, file)
        file.seek(0)
        return torch.jit.load(file), torch.jit.load(str(path))


def agrees(module, original, *shapes):
    inputs = [torch.randn(shape) for shape in shapes]
    with torch.no_grad():
        actual, expected = module(*inputs), original(*inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


RUNS = {
    "mobile": (networks.mobile, "?x3x?=64x?=64", True, [(1, 3, 64, 64), (3, 3, 33, 50)]),
    "unet": (networks.unet, "1x3x?=32x?=48", True, [(1, 3, 40, 24), (1, 3, 32, 48), (1, 3, 4, 8)]),
    "ceiling pools": (
        networks.ceiling_pools,
        "1x3x?=64x?=64",
        True,
        [(1, 3, size, 90 - size) for size in range(40, 48)],
    ),
    "heads": (networks.Heads, "?x3x?=64x?=96", False, [(2, 3, 31, 44), (1, 3, 64, 96)]),
    "batch": (networks.flattened, "?=4x3x16x16", True, [(4, 3, 16, 16), (1, 3, 16, 16)]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", again_but(RUNS, "unet", "batch", "heads", why="the templates have tests of their own")
)
def test_it_runs_at_several_sizes(name, tmp_path, nnapi_library):
    make, spec, traced, shapes = RUNS[name]
    module, original = converted(tmp_path, make, spec, traced)
    for shape in [*shapes, shapes[0], shapes[0]]:  # back to the first, and again without a change
        agrees(module, original, shape)


def test_inputs_with_sizes_of_their_own(tmp_path, nnapi_library):
    module, original = converted(tmp_path, networks.Crossed, "1x3x?=20x?=24 1x2x?=9x10")
    agrees(module, original, (1, 3, 20, 24), (1, 2, 9, 10))
    agrees(module, original, (1, 3, 31, 24), (1, 2, 5, 10))


@pytest.fixture(scope="module")
def small_unet(tmp_path_factory, nnapi_library):
    """What ``converted`` gives, for all that is refused: none of it may do harm."""
    return converted(tmp_path_factory.mktemp("unet"), networks.unet, "1x3x?=32x?=48")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 30, 48), "dimension 2 of input 0 is 30, 4 to 1952 in steps of 4 are possible"),
        ((1, 3, 32, 4096), "dimension 3 of input 0 is 4096, 4 to 1968 in steps of 4 are possible"),
        ((2, 3, 32, 48), r"input 0 has the shape \[2, 3, 32, 48\], 1x3x\?x\? is required"),
        ((3, 32, 48), r"input 0 has the shape \[3, 32, 48\], 1x3x\?x\? is required"),
    ],
)
def test_other_sizes_are_refused_and_do_no_harm(shape, message, small_unet):
    module, original = small_unet
    agrees(module, original, (1, 3, 32, 48))
    with pytest.raises(torch.jit.Error, match=message):
        module(torch.zeros(shape))
    agrees(module, original, (1, 3, 32, 48))
