"""Modules with open sizes in stock PyTorch on the emulator, against eager PyTorch; and names of
open sizes: equal ones across dimensions and inputs."""

import io
from functools import cache

import pytest
import torch
from torch import nn

from nnapi_prof.bundle.stock_module import flexible_stock_module
from nnapi_prof.convert.dynamic_shapes import flexible_region
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.inputs import parse_input_specs
from nnapi_prof.frontend.loader import model_structure
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.program import constant_outputs
from tests.convert.coverage.rows import Function
from tests.convert.dynamic_shapes import networks
from tests.convert.harness import whole


def converted(folder, make, spec, traced=True):
    """The converted module, saved and loaded, and the original."""
    model = networks.flexible(folder, make, spec, traced)
    template = flexible_region(model, 30)
    program = model.program(model.examples)
    path = folder / "model.pt"
    structure = model_structure(path, [torch.zeros(each.shape) for each in model.specs])
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
    "unet": (networks.unet, "1x3x?=32x?=48", True, [(1, 3, 40, 24), (1, 3, 32, 48), (1, 3, 4, 8)]),
    "heads": (networks.Heads, "?x3x?=64x?=96", False, [(2, 3, 31, 44), (1, 3, 64, 96)]),
    "batch": (networks.flattened, "?=4x3x16x16", True, [(4, 3, 16, 16), (1, 3, 16, 16)]),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, nnapi_library):
    """Converts a network by name, once."""
    return cache(lambda name: converted(tmp_path_factory.mktemp("model"), *RUNS[name][:-1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_at_several_sizes(name, loaded):
    shapes, (module, original) = RUNS[name][-1], loaded(name)
    for shape in [*shapes, shapes[0], shapes[0]]:  # back to the first, and again without a change
        agrees(module, original, shape)


def test_inputs_with_sizes_of_their_own(tmp_path, nnapi_library):
    module, original = converted(tmp_path, networks.Crossed, "1x3x?=20x?=24 1x2x?=9x10")
    agrees(module, original, (1, 3, 20, 24), (1, 2, 9, 10))
    agrees(module, original, (1, 3, 31, 24), (1, 2, 5, 10))


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
def test_other_sizes_are_refused_and_do_no_harm(shape, message, loaded):
    module, original = loaded("unet")
    agrees(module, original, (1, 3, 32, 48))
    with pytest.raises(torch.jit.Error, match=message):
        module(torch.zeros(shape))
    agrees(module, original, (1, 3, 32, 48))


class Squares(nn.Module):
    """Rows against columns: runs on squares alone."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)

    def forward(self, x):
        y = self.conv(x)
        return y + y.transpose(2, 3)


class Pair(nn.Module):
    """Two sequences of one length."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, y):
        return self.linear(x) * y


@pytest.mark.parametrize(
    ("texts", "shapes", "names"),
    [
        (["1x3x?nx?n"], [(1, 3, 224, 224)], [("n", "n")]),
        (["1x3x?n=64x?n"], [(1, 3, 64, 64)], [("n", "n")]),
        (["?b=2x?nx8", "?bx8x?n=5:int64"], [(2, 5, 8), (2, 8, 5)], [("b", "n"), ("b", "n")]),
        (["?x?Len"], [(1, 224)], [("", "Len")]),
        (["?x?=5"], [(1, 5)], [()]),
    ],
)
def test_specs(texts, shapes, names):
    specs = parse_input_specs(texts)
    assert [spec.shape for spec in specs] == shapes
    assert [spec.names for spec in specs] == names
    assert parse_input_specs(list(map(str, specs))) == specs


def test_sizes_of_one_name_are_equal():
    with pytest.raises(InputSpecError, match="the size n is 5 here and 4 elsewhere: sizes of one"):
        parse_input_specs(["1x?n=4", "1x?n=5"])


def test_equal_sizes_are_one(tmp_path):
    model = networks.flexible(tmp_path, Squares, "1x3x?n=32x?n")
    template = flexible_region(model, 30)
    (ranges,) = template.opens
    assert (ranges.input, ranges.dim, ranges.equal) == (0, 2, ((0, 3),))
    for size in (8, 33, 60):
        assert template.fill([size]) == whole(model.program([size]))


def test_unnamed_they_do_not_run(tmp_path):
    model = networks.flexible(tmp_path, Squares, "1x3x?=32x?=32")
    with pytest.raises(InputSpecError, match="cannot be left open"):
        flexible_region(model, 30)


def test_a_square_in_stock_pytorch(tmp_path, nnapi_library):
    module, original = converted(tmp_path, Squares, "1x3x?n=32x?n=32")
    for size in (32, 9, 50, 32):
        agrees(module, original, (1, 3, size, size))
    expected = "dimension 3 of input 0 is 16, dimension 2 of input 0 is 8: equal ones are required"
    with pytest.raises(torch.jit.Error, match=expected):
        module(torch.zeros(1, 3, 8, 16))
    agrees(module, original, (1, 3, 9, 9))


def test_two_inputs_in_stock_pytorch(tmp_path, nnapi_library):
    module, original = converted(tmp_path, Pair, "?b=2x?n=5x6 ?b=2x?n=5x4")
    for batch, length in ((2, 5), (1, 9), (3, 4)):
        agrees(module, original, (batch, length, 6), (batch, length, 4))
    with pytest.raises(torch.jit.Error, match="dimension 1 of input 1 is 7, dimension 1 of input"):
        module(torch.zeros(2, 5, 6), torch.zeros(2, 7, 4))


def joined():
    return Function(lambda a, b: (torch.cat([a, b], 1), (a + b[:, :1]).relu()))


def test_free_sizes_of_two_inputs_that_must_be_equal(tmp_path, nnapi_library):
    """PyTorch's converter takes ``zeros(0, 0, 0, 0)`` for both inputs of a concatenation."""
    spec = "?=2x?=5x?=6x?=7"
    module, original = converted(tmp_path, joined, f"{spec} {spec}")
    agrees(module, original, (1, 2, 3, 4), (1, 4, 3, 4))
    agrees(module, original, (2, 5, 9, 7), (2, 2, 9, 7))
    expected = "dimension 3 of input 1 is 5, dimension 3 of input 0 is 4: equal ones are required"
    with pytest.raises(torch.jit.Error, match=expected):
        module(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 5))
