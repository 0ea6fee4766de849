"""Model files and inputs."""

from torch import nn

from tests.cli.common import trace
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, met_by, provoked

met_by(
    "profile {at.sim} {at.tmp}/absent.pt",
    2,
    "{tmp}/absent.pt does not exist: give the path of a .pt or .pt2 file",
)


@provoked(
    2, "{tmp}/cut.pt is truncated or damaged (File is not a zip file): save or copy the file again"
)
def a_truncated_model(at: Place) -> Arguments:
    cut = at.file("cut.pt", at.model.read_bytes()[:2000])
    return ["estimate", "--phone", "pixel4", *SHAPE, cut]


@provoked(
    1,
    "{tmp}/nothing.pt computes nothing: its outputs are constants or its inputs as they are; "
    "give a model with operations to measure and to place",
)
def a_model_that_computes_nothing(at: Place) -> Arguments:
    return ["profile", *SIM, *SHAPE, trace(nn.Identity(), at.tmp / "nothing.pt")]


# ---- inputs ------------------------------------------------------------------------------------

met_by(
    "profile {at.sim} --input 1,3,16,16 {at.model}",
    2,
    "input '1,3,16,16' is not a shape: write sizes joined by x, as in 1x3x224x224 or 1x128:int64; "
    "? or ?=256 leaves a size open, ?n or ?n=256 one that others have too, scalar is a tensor "
    "without dimensions",
)
met_by(
    "profile {at.sim} {at.shape} {at.shape} {at.model}",
    2,
    "tiny.pt takes 1 input, 2 were stated: give --input SHAPE once for each",
)
met_by(
    "profile {at.sim} --input 1x3x16 {at.model}",
    2,
    "tiny.pt does not run on the input 1x3x16: {*}: state the shapes it wants with --input, or"
    " values with --input @FILE.npz",
)
met_by(
    "profile {at.sim} {at.shape}:int64 {at.model}",
    2,
    facts=("tiny.pt", "1x3x16x16:int64", "--input"),
)
met_by(
    "convert --input 1x3x?x? --format json {at.model}",
    2,
    "--format json and cpp are for fixed sizes: state them instead of ?",
)
