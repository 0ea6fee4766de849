"""Model files and inputs."""

from pathlib import Path

import torch
from torch import nn

from tests.cli.common import INPUT, TinyNet, trace
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, provoked

PIXEL = ("--phone", "pixel4")

# ---- the file ----------------------------------------------------------------------------------


@provoked(2, "{tmp}/absent.pt does not exist: give the path of a .pt or .pt2 file")
def a_model_that_is_missing(at: Place) -> Arguments:
    return ["profile", *SIM, at.tmp / "absent.pt"]


@provoked(
    2,
    "{tmp}/weights.pt holds pickled Python objects (a state_dict or a whole module), not "
    "TorchScript: save torch.jit.trace(model.eval(), example) with torch.jit.save, or "
    "torch.export.export(...) with torch.export.save",
)
def a_state_dict(at: Place) -> Arguments:
    torch.save(TinyNet().state_dict(), at.tmp / "weights.pt")
    return ["convert", at.tmp / "weights.pt"]


@provoked(
    2,
    "{tmp}/cut.pt is truncated or damaged (File is not a zip file): save or copy the file again",
)
def a_truncated_model(at: Place) -> Arguments:
    return ["estimate", *PIXEL, *SHAPE, at.file("cut.pt", at.model.read_bytes()[:2000])]


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@provoked(
    1,
    "{tmp}/nothing.pt computes nothing: its outputs are constants or its inputs as they are; "
    "give a model with operations to measure and to place",
)
def a_model_that_computes_nothing(at: Place) -> Arguments:
    return ["profile", *SIM, *SHAPE, trace(Nothing(), at.tmp / "nothing.pt")]


# ---- inputs ------------------------------------------------------------------------------------


@provoked(
    2,
    "input '1,3,16,16' is not a shape: write sizes joined by x, as in 1x3x224x224 or 1x128:int64; "
    "? or ?=256 leaves a size open, ?n or ?n=256 one that others have too, scalar is a tensor "
    "without dimensions",
)
def an_input_that_is_no_shape(at: Place) -> Arguments:
    return ["profile", *SIM, "--input", "1,3,16,16", at.model]


@provoked(2, "tiny.pt takes 1 input, 2 were stated: give --input SHAPE once for each")
def too_many_inputs(at: Place) -> Arguments:
    return ["profile", *SIM, *SHAPE, *SHAPE, at.model]


class Both(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def both(folder: Path) -> Path:
    return trace(Both(), folder / "both.pt", (1, 4), (1, 4))


@provoked(2, facts=("both.pt", "2 inputs, 1 was stated", "--input"))
def too_few_inputs(at: Place) -> Arguments:
    return ["profile", *SIM, "--input", "1x4", both(at.tmp)]


@provoked(
    2,
    "tiny.pt does not run on the input 1x3x16: {*}: state the shapes it wants with --input, or"
    " values with --input @FILE.npz",
)
def an_input_of_another_rank(at: Place) -> Arguments:
    return ["profile", *SIM, "--input", "1x3x16", at.model]


@provoked(2, facts=("tiny.pt", "1x3x16x16:int64", "--input"))
def an_input_of_another_type(at: Place) -> Arguments:
    return ["profile", *SIM, "--input", f"{INPUT}:int64", at.model]


@provoked(2, "--format json and cpp are for fixed sizes: state them instead of ?")
def open_sizes_where_they_must_be_stated(at: Place) -> Arguments:
    return ["convert", "--input", "1x3x?x?", "--format", "json", at.model]
