"""Partitions, bundles, runs, conversions, reports; options themselves."""

import json

import torch

from nnapi_prof.bundle.storage import VERSION
from tests.cli.common import TinyNet, shift_reference, trace
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, met_by, provoked

PARTITION = (
    "partition {at.sim} {at.shape} --costs {at.profiled.costs} -o {at.tmp}/x.nnprof {at.model} "
)

# ---- plans -------------------------------------------------------------------------------------

met_by(
    "partition {at.sim} {at.shape} --costs {at.tmp}/new.sqlite {at.model}",
    1,
    "5 of the model's 5 units were never measured on this device (the first is clone, "
    "to_channels_last 1x3x16x16); run nnapi-prof profile with the same model, inputs and device",
)
met_by(
    PARTITION + "--pin softmax*=cpu",
    2,
    "--pin softmax*=cpu: no unit is called so: name some of the model's, which begins with "
    "to_channels_last, conv2d+relu, sigmoid",
)
met_by(
    PARTITION + "--pin conv2d*=nnapi:sim-npu/fast --forbid conv2d*=nnapi:sim-npu/fast",
    1,
    "the constraints leave conv2d+relu 3x3 3->8 16x16 (unit 1) nowhere to run (cpu and 3 more: "
    "pinned to nnapi:sim-npu/fast; nnapi:sim-npu/fast: forbidden): allow it on one of these "
    "targets",
)
met_by(
    PARTITION + "--pin conv2d*=nnapi:sim-npu/fast --max-regions 0",
    1,
    facts=("at most 0", "segments"),
)
met_by(
    PARTITION + "--pin conv2d*=nnapi:sim-npu/fast --max-compile-ms 0.001",
    1,
    facts=("compiles", "0.00100 ms"),
)

# ---- bundles -----------------------------------------------------------------------------------

met_by(
    "run {at.sim} {at.tmp}/absent.nnprof",
    2,
    "bundle {tmp}/absent.nnprof does not exist: `nnapi-prof partition` makes one",
)


@provoked(
    1,
    "{tmp}/profiled/tiny.nnprof: the bundle was made by a newer nnapi-prof (its version is 4, "
    "3 is read): update nnapi-prof, or make it again with `nnapi-prof partition`",
)
def a_bundle_of_a_newer_version(at: Place) -> Arguments:
    manifest = at.profiled.bundle / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": VERSION + 1}))
    return ["run", *SIM, at.profiled.bundle]


@provoked(
    1,
    "output clone_1 differs from eager PyTorch by {*} of its largest value, 1e-04 is allowed: "
    "`nnapi-prof bisect` finds the operation at fault; give a larger --tolerance if that is "
    "accurate enough",
    prints=True,
)
def outputs_that_differ(at: Place) -> Arguments:
    shift_reference(at.env)
    return ["run", *SIM, "--runs", 2, at.profiled.bundle]


@provoked(
    1,
    "{tmp}/profiled/tiny.nnprof/run.json: this is not a run report (Expecting property name "
    "enclosed in double quotes: line 1 column 2 (char 1)); `nnapi-prof run` makes it again",
)
def a_run_that_cannot_be_read(at: Place) -> Arguments:
    (at.profiled.bundle / "run.json").write_text("{")
    return ["report", "--costs", at.profiled.costs, at.profiled.bundle]


# ---- conversions -------------------------------------------------------------------------------


@provoked(
    1,
    "lgamma: aten.lgamma.default cannot run on NNAPI: NNAPI has no such operation and nothing "
    "here rewrites it into others; without --whole the rest stays on the CPU",
    prints=True,
)
def a_model_that_nnapi_cannot_run_whole(at: Place) -> Arguments:
    odd = trace(TinyNet(lambda x: torch.lgamma(x.abs() + 1)), at.tmp / "odd.pt")
    return ["convert", *SHAPE, "--whole", "-o", at.tmp / "out.pt", odd]


met_by(
    "convert {at.shape} --format runtime {at.model}",
    2,
    facts=("--format runtime", "bundles", "{model}"),
)
met_by(
    "convert {at.shape} -o /proc/absent/out.pt {at.model}",
    2,
    facts=("/proc/absent/out.pt", "No such file", "--output"),
)

# ---- reports and comparisons -------------------------------------------------------------------

met_by(
    "report --costs {at.profiled.costs} -o /proc/absent.html {at.profiled.bundle}",
    2,
    facts=("/proc/absent.html", "No such file", "--output"),
    document="report",
)
met_by(
    "report --costs {at.profiled.costs} -o {at.tmp}/x.pdf {at.profiled.bundle}",
    2,
    "the ending of {tmp}/x.pdf names no format: there are .html, .md, .trace.json, "
    ".json, or say --format html|md|trace|json",
)


@provoked(2, "{tmp}/new.nnprof is not a bundle: `nnapi-prof partition` makes one")
def an_empty_file_compared_as_a_bundle(at: Place) -> Arguments:
    return ["compare", at.file("new.nnprof"), at.profiled.bundle]


@provoked(1, facts=("new.nnprof: the bundle is damaged", "nnapi-prof partition"))
def a_damaged_bundle_compared(at: Place) -> Arguments:
    (at.tmp / "new.nnprof").mkdir()
    at.file("new.nnprof/manifest.json", '{"format": "nnapi-prof bundle", "ver')
    return ["compare", at.tmp / "new.nnprof", at.profiled.bundle]
