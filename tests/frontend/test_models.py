"""The four example models through every file format."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from nnapi_prof import frontend
from nnapi_prof.graph.program import Program
from tests.parts import again_but

pytestmark = pytest.mark.slow

NAMES = ("mobilenet_v2", "resnet18", "squeezenet1_1", "unet")
MODELS = again_but(NAMES, "squeezenet1_1", "unet", why="larger networks of the same operations")
SPEC = (frontend.InputSpec((1, 3, 64, 64)),)
FORMATS = {"traced": {}, "scripted": {"scripted": True}, "pt2": {"pt2": True}}


@pytest.fixture(scope="module")
def loaded(examples, tmp_path_factory) -> Callable[[str, str], tuple[Path, Program]]:
    """(model, format) -> file and program, at 64x64."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def load(name: str, kind: str) -> tuple[Path, Program]:
        path = folder / f"{name}_{kind}.{'pt2' if kind == 'pt2' else 'pt'}"
        examples.save(name, path, size=64, **FORMATS[kind])
        return path, frontend.load(path, () if kind == "pt2" else SPEC)

    return load


@pytest.fixture(scope="module")
def eager(examples) -> dict[str, torch.nn.Module]:
    return {name: examples.MODELS[name][0]() for name in NAMES}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_eager(loaded, eager, name: str, kind: str):
    path, program = loaded(name, kind)
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        expected_values = eager[name](x)
    (expected,) = program.module(x)
    scale = expected_values.abs().max()
    assert (expected - expected_values).abs().max() <= 1e-4 * scale
    (again,) = frontend.reference(path)(x)
    assert (again - expected_values).abs().max() <= 1e-5 * scale


@pytest.mark.parametrize("name", MODELS)
def test_formats_give_the_same_units(loaded, name: str):
    """Costs measured for one format serve the others."""
    signatures = [
        [unit.signature for unit in loaded(name, kind)[1].units.units] for kind in FORMATS
    ]
    assert signatures[0] == signatures[1] == signatures[2]


@pytest.mark.parametrize(
    ("name", "clones"),
    [("mobilenet_v2", 1), ("resnet18", 1), ("squeezenet1_1", 1), ("unet", 2)],
)
def test_dim_order_changes_at_the_ends_only(loaded, name: str, clones: int):
    """The U-Net's output is an image, so it is turned back at the end; nothing turns inside."""
    units = loaded(name, "traced")[1].units.units
    turning = [unit.index for unit in units if unit.label.startswith("to_")]
    assert turning == [0, len(units) - 1][:clones]


def test_mobilenet_units(loaded):
    """52 convolutions, 10 additions, pool, view, linear, and the clone."""
    program = loaded("mobilenet_v2", "traced")[1]
    units = program.units.units
    assert len(units) == 66
    assert units[1].label == "conv2d+relu6 3x3/2 3->32 32x32"
    assert units[2].label == "depthwise_conv2d+relu6 3x3 32->32 32x32"
    assert units[-1].label == "linear 1280->1000"
    assert units[1].macs == 32 * 32 * 32 * 27
    assert units[-1].constant_bytes == 4 * (1280 * 1000 + 1000)
    assert not list(
        program.module.graph.find_nodes(
            op="call_function", target=torch.ops.aten.batch_norm.default
        )
    )


def test_program_carries_what_was_asked(loaded):
    program = loaded("unet", "traced")[1]
    assert program.name == "unet_traced"
    assert [tuple(t.shape) for t in program.example_inputs] == [(1, 3, 64, 64)]
    assert program.notes == ()
