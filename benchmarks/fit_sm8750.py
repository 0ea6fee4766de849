"""Fits the described phone sm8750: the CPU of a Galaxy S25 Ultra (Snapdragon 8 Elite).

The source has whole networks (LiteRT 2.2.0 on the CPU, float32, litert_leaderboard of
google-ai-edge/litert-samples at 187fde03), without the number of threads. A roofline of six prices
is fitted to their relative error, each network is predicted from all others, and the description
states the error of that:

    python benchmarks/fit_sm8750.py litert_leaderboard.csv nnapi_prof/costs/data/sm8750.json

Needs torchvision and timm.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from qnn_networks import Built, image, timm_network, vision_network
from scipy.optimize import nnls

from nnapi_prof import frontend
from nnapi_prof.costs.estimate.model import NORMAL
from nnapi_prof.graph.unit import Work

NETWORKS = {
    "shufflenet_v2_x0_5": ("shufflenet_v2_x0_5", 224),
    "mobilenet_v3_small": ("mobilenet_v3_small", 224),
    "mobilenet_v3_large": ("mobilenet_v3_large", 224),
    "squeezenet1_1": ("squeezenet1_1", 224),
    "mobilenet_v2": ("mobilenet_v2", 224),
    "efficientnet_b0": ("efficientnet_b0", 224),
    "googlenet": ("googlenet", 224),
    "resnet18": ("resnet18", 224),
    "resnet50": ("resnet50", 224),
    "inception_v3": ("inception_v3", 299),
    "convnext_tiny": ("convnext_tiny", 224),
    "vit_base_patch16_224_fp32": ("timm:vit_base_patch16_224", 224),
}
"""File of the leaderboard -> network and image size."""
RATES = ("CONV_2D", "CONV_2D 1x1", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "default")
FREE = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


def build(name: str, size: int) -> Built:
    if name.startswith("timm:"):
        return timm_network(name.removeprefix("timm:")), image(size)
    auxiliary = name in ("googlenet", "inception_v3")
    options = {"aux_logits": False, "init_weights": False} if auxiliary else {}
    return vision_network(name, **options), image(size)


def works(name: str, size: int) -> list[Work]:
    """Returns the work of each unit."""
    model, examples = build(name, size)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.pt2"
        torch.export.save(torch.export.export(model.eval(), examples, strict=False), path)
        return [unit.work for unit in frontend.load(path).units.units if unit.work is not None]


def row(items: Sequence[Work]) -> np.ndarray:
    """Returns the factors of the prices: operations, bytes, then multiply-accumulates by rate."""
    paid = [work for work in items if work.kind not in FREE]
    macs = [
        sum(w.macs for w in paid if (w.rate if w.rate in RATES else "default") == rate)
        for rate in RATES
    ]
    return np.array([len(paid), sum(w.moved for w in paid), *macs], dtype=float)


def fit(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Returns non-negative prices, fitted by relative error with less weight for outliers; a small
    pull to one rate for all kinds regularises kinds with few networks."""
    scaled = x / t[:, None]
    common, _ = nnls(np.c_[scaled[:, :2], scaled[:, 2:].sum(1)], np.ones(len(t)))
    prior = np.r_[common[:2], np.repeat(common[2], len(RATES))]
    pull = 0.1 / np.maximum(prior, 1e-12)
    weights = np.ones(len(t))
    prices = prior
    for _ in range(10):
        left = np.r_[scaled * weights[:, None], np.diag(pull)]
        right = np.r_[weights, 0.1 * (prior > 0)]
        prices, _ = nnls(left, right)
        weights = 1 / np.sqrt(np.maximum(np.abs(scaled @ prices - 1), 0.05))
    return prices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("leaderboard", type=Path)
    parser.add_argument("output", type=Path)
    asked = parser.parse_args()
    with asked.leaderboard.open(newline="") as file:
        published = {
            r["file"].removesuffix(".tflite"): float(r["median_ms"]) * 1e6
            for r in csv.DictReader(file)
            if r["device"] == "Galaxy S25 Ultra" and r["accelerator"] == "cpu"
        }
    names = [name for name in NETWORKS if name in published]
    x = np.array([row(works(*NETWORKS[name])) for name in names])
    t = np.array([published[name] for name in names])
    errors = []
    for i in range(len(names)):
        others = np.arange(len(names)) != i
        errors.append(abs(float(x[i] @ fit(x[others], t[others])) / t[i] - 1))
        print(f"{names[i]:28} left out: {errors[-1]:.0%}")
    prices = fit(x, t)
    half, nine = float(np.median(errors)), float(np.quantile(errors, 0.9))
    print(f"{len(names)} networks: median {half:.1%}, nine of ten {nine:.1%}")
    # Error of whole networks; no source has single units, so theirs is assumed to be as large
    # again.
    spread = math.log1p(nine) / NORMAL
    bounds = {"own": spread, "kind": 0.0, "whole": spread, "factor": NORMAL, "focus": 0.0}
    bounds["strange"] = 2 * spread
    target = {
        "operation_ns": prices[0],
        "ns_per_byte": prices[1],
        "ns_per_gathered_byte": 0.0,
        "ns_per_mac": dict(zip(RATES, map(float, prices[2:]), strict=True)),
        "invocation_ns": 0.0,
        "ns_per_in_byte": 0.0,
        "ns_per_out_byte": 0.0,
        "refused": [],
        "errors": {"half": half, "nine_tenths": nine, **bounds},
        "rows": len(names),
        "correction": None,
        "forest": None,
    }
    words = (
        f"CPU of a Galaxy S25 Ultra, fitted to {len(names)} published networks, each predicted from"
        f" the others {half:.0%} off in the median, nine of ten within {nine:.0%}"
    )
    description = {
        "format": "nnapi-prof-static",
        "version": 3,
        "name": "sm8750",
        "description": words,
        "origin": "litert_leaderboard, google-ai-edge/litert-samples @187fde03, Apache-2.0",
        "simulated": False,
        "level": 30,
        "threads": 1,
        "targets": {"cpu": target},
    }
    asked.output.write_text(json.dumps(description, indent=1) + "\n")


if __name__ == "__main__":
    main()
