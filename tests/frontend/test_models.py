"""The four example models through every file format, and by every route."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from nnapi_prof import frontend
from nnapi_prof.frontend import torchscript
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.interpreter import walked_graph
from nnapi_prof.graph.program import Program
from tests.parts import again_but
from tests.precision.common import script

pytestmark = pytest.mark.slow

NAMES = ("mobilenet_v2", "resnet18", "squeezenet1_1", "unet")
MODELS = again_but(NAMES, "squeezenet1_1", "unet", why="larger networks of the same operations")
SPEC = (frontend.InputSpec((1, 3, 64, 64)),)
FORMATS = {"traced": {}, "scripted": {"scripted": True}, "pt2": {"pt2": True}}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> Callable[[str, str], tuple[Path, Program]]:
    """(model, format) -> file and program, at 64x64."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def load(name: str, kind: str) -> tuple[Path, Program]:
        path = folder / f"{name}_{kind}.{'pt2' if kind == 'pt2' else 'pt'}"
        script("models").save(name, path, size=64, **FORMATS[kind])
        return path, frontend.load(path, () if kind == "pt2" else SPEC)

    return load


@pytest.mark.parametrize("name", MODELS)
def test_formats_give_the_same_units(loaded, name: str):
    """Costs measured for one format serve the others."""
    signatures = [
        [unit.signature for unit in loaded(name, kind)[1].units.units] for kind in FORMATS
    ]
    assert signatures[0] == signatures[1] == signatures[2]


@pytest.mark.parametrize(
    ("name", "clones"), [("mobilenet_v2", 1), ("resnet18", 1), ("squeezenet1_1", 1), ("unet", 2)]
)
def test_dim_order_changes_at_the_ends_only(loaded, name: str, clones: int):
    """The U-Net's output is an image, so it is turned back at the end; nothing turns inside."""
    units = loaded(name, "traced")[1].units.units
    turning = [unit.index for unit in units if unit.label.startswith("to_")]
    assert turning == [0, len(units) - 1][:clones]


@pytest.mark.parametrize("route", ["_convert_by_export", "_traced"])
def test_every_route_gives_the_same_units(route: str):
    """The later routes serve what the walker refuses; here they take what it takes, too."""
    model, x = script("models").unet(), torch.randn(1, 3, 16, 16)
    with quiet_torch(), torch.no_grad():
        traced = torch.jit.trace(model, x)
        graphs = [each(traced, [x], "unet") for each in (walked_graph, getattr(torchscript, route))]
    first, second = (
        [
            unit.signature
            for unit in frontend.loader._finish(graph, (x,), "unet", (), model).units.units
        ]
        for graph in graphs
    )
    assert first == second
