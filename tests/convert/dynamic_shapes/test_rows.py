"""Every operator of the coverage table with open images: filled in right, or refused."""

import random

import pytest
import torch

from nnapi_prof.convert.dynamic_shapes import FlexibleModel, flexible_region
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import InputSpecError, UnsupportedOp
from nnapi_prof.frontend.inputs import InputSpec
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.coverage import ALL_ROWS


def takes_an_image(row):
    if row.missing is not None:
        return False
    with quiet_torch():
        _, inputs = row.make()
    return len(inputs) == 1 and inputs[0].dim() == 4


IMAGES = [name for name, row in ALL_ROWS.items() if takes_an_image(row)]
REFUSED = {
    "view": "does not run: shape",  # the model states sizes
    "flip": "its operations have other arguments",  # one for each column
    "pad reflect": "its operations have other arguments",
    "upsample_bicubic2d / grid_sampler": "has another value",  # matrices of the sizes
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_row(name, tmp_path):
    row = ALL_ROWS[name]
    with quiet_torch():
        module, (x,) = row.make()
        torch.jit.save(torch.jit.trace(module, (x,), check_trace=False), str(tmp_path / "row.pt"))
    spec = InputSpec(tuple(x.shape), str(x.dtype).removeprefix("torch."), (0, 2, 3))
    model = FlexibleModel(tmp_path / "row.pt", [spec])
    if name in REFUSED:
        with pytest.raises((InputSpecError, UnsupportedOp), match=REFUSED[name]):
            flexible_region(model, row.level)
        return
    template = flexible_region(model, row.level)
    draw = random.Random(name)
    sizes = [
        draw.randrange(
            ranges.least + (ranges.example - ranges.least) % ranges.step,
            3 * ranges.example + 20,
            ranges.step,
        )
        for ranges in template.opens
    ]
    program = model.program(sizes)
    units = range(len(program.units.units))
    assert template.fill(sizes) == convert_region(program, units, row.level, for_stock=True)
