"""Partitions, bundles, runs, conversions, reports; options themselves."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from nnapi_prof.bundle.storage import VERSION
from tests.cli.common import TinyNet, shift_reference, trace
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, provoked


def partition(at: Place, *more: object) -> Arguments:
    ready = at.profiled
    return [
        *("partition", *SIM, *SHAPE, "--costs", ready.costs, "-o", at.tmp / "x.nnprof"),
        *(*more, ready.model),
    ]


# ---- plans -------------------------------------------------------------------------------------


@provoked(
    1,
    "5 of the model's 5 units were never measured on this device (the first is clone, "
    "to_channels_last 1x3x16x16); run nnapi-prof profile with the same model, inputs and device",
)
def a_model_that_was_never_profiled(at: Place) -> Arguments:
    return ["partition", *SIM, *SHAPE, "--costs", at.tmp / "new.sqlite", at.model]


@provoked(
    2,
    "--pin softmax*=cpu: no unit is called so: name some of the model's, which begins with "
    "to_channels_last, conv2d+relu, sigmoid",
)
def a_pattern_that_matches_nothing(at: Place) -> Arguments:
    return partition(at, "--pin", "softmax*=cpu")


@provoked(
    1,
    "the constraints leave conv2d+relu 3x3 3->8 16x16 (unit 1) nowhere to run (cpu and 3 more: "
    "pinned to nnapi:sim-npu/fast; nnapi:sim-npu/fast: forbidden): allow it on one of these "
    "targets",
)
def a_pin_that_is_forbidden(at: Place) -> Arguments:
    return partition(
        at, "--pin", "conv2d*=nnapi:sim-npu/fast", "--forbid", "conv2d*=nnapi:sim-npu/fast"
    )


@provoked(1, facts=("at most 0", "segments"))
def limits_that_nothing_keeps(at: Place) -> Arguments:
    return partition(at, "--pin", "conv2d*=nnapi:sim-npu/fast", "--max-regions", 0)


@provoked(1, facts=("compiles", "0.00100 ms"))
def compile_time_that_nothing_keeps(at: Place) -> Arguments:
    return partition(at, "--pin", "conv2d*=nnapi:sim-npu/fast", "--max-compile-ms", 0.001)


# ---- bundles -----------------------------------------------------------------------------------


@provoked(2, "bundle {tmp}/absent.nnprof does not exist: `nnapi-prof partition` makes one")
def a_bundle_that_is_missing(at: Place) -> Arguments:
    return ["run", *SIM, at.tmp / "absent.nnprof"]


def edited(at: Place, **changes: object) -> Path:
    manifest = at.profiled.bundle / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))
    return manifest.parent


def damaged(at: Place, pattern: str, change: Callable[[bytes], bytes]) -> Path:
    file = min(at.profiled.bundle.glob(pattern))
    file.write_bytes(change(file.read_bytes()))
    return at.profiled.bundle


@provoked(
    1,
    "{tmp}/profiled/tiny.nnprof: the bundle was made by a newer nnapi-prof (its version is 4, "
    "3 is read): update nnapi-prof, or make it again with `nnapi-prof partition`",
)
def a_bundle_of_a_newer_version(at: Place) -> Arguments:
    return ["run", *SIM, edited(at, version=VERSION + 1)]


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


@provoked(2, facts=("--format runtime", "bundles", "{model}"))
def a_format_for_bundles(at: Place) -> Arguments:
    return ["convert", *SHAPE, "--format", "runtime", at.model]


@provoked(2, facts=("/proc/absent/out.pt", "No such file", "--output"))
def a_conversion_that_cannot_be_written(at: Place) -> Arguments:
    return ["convert", *SHAPE, "-o", "/proc/absent/out.pt", at.model]


# ---- reports -----------------------------------------------------------------------------------


@provoked(2, facts=("/proc/absent.html", "No such file", "--output"), document="report")
def a_report_that_cannot_be_written(at: Place) -> Arguments:
    return ["report", "--costs", at.profiled.costs, "-o", "/proc/absent.html", at.profiled.bundle]


@provoked(
    2,
    "the ending of {tmp}/x.pdf names no format: there are .html, .md, .trace.json, "
    ".json, or say --format html|md|trace|json",
)
def a_report_with_an_unknown_ending(at: Place) -> Arguments:
    return ["report", "--costs", at.profiled.costs, "-o", at.tmp / "x.pdf", at.profiled.bundle]


# ---- comparisons of speed ------------------------------------------------------------------------


@provoked(2, "{tmp}/new.nnprof is not a bundle: `nnapi-prof partition` makes one")
def an_empty_file_compared_as_a_bundle(at: Place) -> Arguments:
    return ["compare", at.file("new.nnprof"), at.profiled.bundle]


@provoked(1, facts=("new.nnprof: the bundle is damaged", "nnapi-prof partition"))
def a_damaged_bundle_compared(at: Place) -> Arguments:
    (at.tmp / "new.nnprof").mkdir()
    at.file("new.nnprof/manifest.json", '{"format": "nnapi-prof bundle", "ver')
    return ["compare", at.tmp / "new.nnprof", at.profiled.bundle]
