"""How far Qualcomm's simulator is off, after fitting, over rebuilt networks of AI Hub.

Networks of benchmarks/qnn_networks.py are exported with random weights and compiled for both
simulated generations; ratios to published times go into the package's data, and every chip's error
is printed, each network predicted from all others.  No absolute simulated times are written.

    python benchmarks/bench_qnn.py                               # errors by the package's data
    python benchmarks/bench_qnn.py --compile                     # compile all networks again first
    python benchmarks/bench_qnn.py --compile --published *.csv   # with other tables of AI Hub's
    python benchmarks/bench_qnn.py --regions mobilenet_v2 resnet18 efficientnet_b0 vit

``--compile`` writes the package's data anew; a network that fails keeps its row.  ``--int8``
compiles all in 8 bits, too; without it, those rows stay.  ``--only`` names the networks.

Needs torchvision, timm and transformers.  Times of compiling are seconds of a core.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from qnn_networks import NETWORKS, SMALLEST, export

from nnapi_prof.api.chips import estimate_chips
from nnapi_prof.errors import CostError, NnapiProfError
from nnapi_prof.qnn import (
    CHIPS,
    NpuGeneration,
    QnnPrecision,
    calibration,
    qairt_version,
    require_compiler,
)
from nnapi_prof.qnn.calibration import calibrate, leave_one_out, rows, smallest_network

DATA = Path("nnapi_prof/qnn/data/published.json")
REFERENCE = "Snapdragon 8 Elite Gen 5 QRD"
SOURCE = (
    "Qualcomm AI Hub Models v0.47.0, qai_hub_models/models/*/perf.yaml at"
    " b61a009028de5420032377d9e6bd7280aae24c74 (BSD-3-Clause), runtime qnn_dlc, rows that ran on"
    " the NPU alone; convnext_tiny, mobilenet_v3_large, regnet, resnext50 and smallest_ms are of an"
    " earlier file, measured with QAIRT 2.42"
)
PRECISIONS = {"float": QnnPrecision.FP16, "w8a8": QnnPrecision.INT8}


def model_file(name: str, work: Path) -> Path:
    """Returns the network as a file, exported once."""
    path = work / f"{name}.pt2"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        torch.export.save(export(name), path)
    return path


LONG_NAMES = {
    "inference_ms": "ms",
    "primary_unit": "unit",
    "layers_gpu": "gpu",
    "layers_cpu": "cpu",
}
"""Columns of the other table of the same rows."""


def published(files: Sequence[Path]) -> dict[tuple[str, QnnPrecision], dict[str, float]]:
    """Returns network and precision -> device -> ms; the first table's for networks in several."""
    devices = {chip.calibrated_on for chip in CHIPS.values()} - {None}
    result: dict[tuple[str, QnnPrecision], dict[str, float]] = {}
    for file in files:
        of_file: dict[tuple[str, QnnPrecision], dict[str, float]] = {}
        with file.open(newline="") as stream:
            for row in csv.DictReader(stream):
                one = {LONG_NAMES.get(name, name): value for name, value in row.items()}
                precision = PRECISIONS.get(one["precision"])
                alone = one["unit"] == "NPU" and one["gpu"] == one["cpu"] == "0"
                if precision is None or one["runtime"] != "qnn_dlc" or not alone or not one["ms"]:
                    continue
                if one["device"] in devices:
                    name = SMALLEST if one["component"] == SMALLEST else one["model"]
                    times = of_file.setdefault((name, precision), {})
                    times.setdefault(one["device"], float(one["ms"]))
        result = of_file | result
    return result


def stored(data: dict[str, Any]) -> dict[tuple[str, QnnPrecision], dict[str, float]]:
    """Returns the published times that the package carries, in the form of :func:`published`."""
    networks = {
        (name, QnnPrecision(precision)): row["published_ms"]
        for name, by_precision in data["networks"].items()
        for precision, row in by_precision.items()
    }
    smallest = {(SMALLEST, QnnPrecision(p)): ms for p, ms in data["smallest_ms"].items()}
    return networks | smallest


def simulate(name: str, precision: QnnPrecision, work: Path) -> dict[str, float] | None:
    """Returns simulated ms by generation; None where the NPU does not take all of it."""
    kept = work / f"{name}.{precision.value}.{qairt_version()}.json"
    if not kept.exists():
        device = f"qnn:SM8850/{precision.value}"
        (one,) = estimate_chips(model_file(name, work), device).chips
        whole = one.whole_ns is not None
        kept.write_text(json.dumps(one.simulated_ns if whole else None))
    times = json.loads(kept.read_text())
    return times and {generation: ns / 1e6 for generation, ns in times.items()}


def collect(
    times: dict[tuple[str, QnnPrecision], dict[str, float]],
    work: Path,
    precision: QnnPrecision,
    data: dict[str, Any],
    names: Sequence[str],
) -> None:
    """Adds the rows of every network that was published and can be rebuilt."""
    for name in names:
        ms = times.get((name, precision), {})
        if REFERENCE not in ms:
            continue
        try:
            simulated = simulate(name, precision, work)
        except NnapiProfError as error:
            print(f"{name:32} {precision.value}: {error}")
            continue
        if simulated is None:
            print(f"{name:32} {precision.value}: not whole on the NPU")
            data["networks"].get(name, {}).pop(precision.value, None)
            continue
        in_order = dict(sorted(ms.items()))
        ratios = {s.value: round(simulated[s.value] / ms[REFERENCE], 5) for s in NpuGeneration}
        if name == SMALLEST:
            data["smallest_ms"][precision.value] = in_order
            data["smallest_to_reference"][precision.value] = ratios
        else:
            data["networks"].setdefault(name, {})[precision.value] = {
                "published_ms": in_order,
                "simulated_to_reference": ratios,
            }


def show_errors() -> None:
    """Prints leave-one-out errors of each chip, and how often the printed band holds."""
    print(f"{'chip':8} {'':5} networks  median  nine of ten  within 25 %  band holds")
    for precision in QnnPrecision:
        for chip in CHIPS.values():
            if chip.calibrated_on is None:
                continue
            try:
                fit = calibrate(chip, precision, qairt_version())
            except CostError as error:
                print(f"{chip.name:8} {precision.value:5} {error}")
                continue
            _, x, t = rows(chip, precision)
            logs = leave_one_out(x, t, smallest_network(chip, precision))
            nine = sorted(abs(e) for e in logs)[int(0.9 * len(logs))]
            holds = statistics.mean(float(abs(e) <= fit.spread) for e in logs)
            print(
                f"{chip.name:8} {precision.value:5} {fit.networks:8d} {fit.median_error:7.1%}"
                f" {nine:12.1%} {fit.within_quarter:12.0%} {holds:11.0%}"
            )


def show_regions(names: list[str], work: Path) -> None:
    """Prints the errors of sums of units for regions compiled whole."""
    from nnapi_prof.api.chips import profile_on_chip
    from nnapi_prof.api.model import load

    for name in names:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = profile_on_chip(load(model_file(name, work)), "qnn:SM8750")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        errors = sorted(abs(error) for error in result.profile.errors)
        print(
            f"{name:32} {len(errors)} regions held out: median {statistics.median(errors):.1%},"
            f" worst {errors[-1]:.1%}; {result.profile.n_compiled} graphs in {seconds:.0f} s of a"
            f" core; plan stands: {result.profile.stable}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--compile", action="store_true", help=f"compile anew, and write {DATA}")
    parser.add_argument("--published", type=Path, nargs="+", help="default: those of the data")
    parser.add_argument("--work", type=Path, default=Path("build/qnn"))
    parser.add_argument("--int8", action="store_true", help="compile int8, too")
    parser.add_argument("--only", nargs="+", default=list(NETWORKS), help="networks to compile")
    parser.add_argument("--regions", nargs="*", default=[], help="networks to profile by units")
    asked = parser.parse_args()
    require_compiler()
    if asked.compile:
        data: dict[str, Any] = json.loads(DATA.read_text())
        times = stored(data)
        if asked.published:
            times = published(asked.published)
            data |= {"source": SOURCE, "measured_with": "2.43"}
        data["simulated_with"] = qairt_version()
        for precision in QnnPrecision:
            if precision is QnnPrecision.FP16 or asked.int8:
                collect(times, asked.work, precision, data, asked.only)
        DATA.write_text(json.dumps(data, indent=1) + "\n")
        calibration.published.cache_clear()
        calibration.calibrate.cache_clear()
    show_errors()
    show_regions(asked.regions, asked.work)


if __name__ == "__main__":
    main()
