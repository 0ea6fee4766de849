"""The four example models through every file format, and by every route."""

import pytest
import torch

from nnapi_prof import frontend
from nnapi_prof.frontend import torchscript
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.interpreter import walked_graph
from tests.parts import again_but
from tests.precision.common import script

pytestmark = pytest.mark.slow

NAMES = ("mobilenet_v2", "resnet18", "squeezenet1_1", "unet")
MODELS = again_but(NAMES, "squeezenet1_1", "unet", why="larger networks of the same operations")


@pytest.mark.parametrize("name", MODELS)
def test_formats_give_the_same_units(tmp_path, name: str):
    """Costs measured for one format serve the others."""
    path, signatures = tmp_path / "model", []
    for form in ({}, {"scripted": True}, {"pt2": True}):
        script("models").save(name, path, size=64, **form)
        specs = () if "pt2" in form else (frontend.InputSpec((1, 3, 64, 64)),)
        units = frontend.load(path, specs).units.units
        signatures.append([unit.signature for unit in units])
    assert signatures[0] == signatures[1] == signatures[2]


def test_every_route_gives_the_same_units():
    """The later routes serve what the walker refuses; here they take what it takes, too."""
    model, x, signatures = script("models").unet(), torch.randn(1, 3, 16, 16), set()
    with quiet_torch(), torch.no_grad():
        traced = torch.jit.trace(model, x)
        for route in (walked_graph, torchscript._convert_by_export, torchscript._traced):
            graph = route(traced, [x], "unet")
            units = frontend.loader._finish(graph, (x,), "unet", (), model).units.units
            signatures.add(tuple(unit.signature for unit in units))
    assert len(signatures) == 1
