"""The four example models through every file format."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

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
