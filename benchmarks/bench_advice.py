"""Does advice name what stands in the way, and is what it predicts what trying it saves?

    python benchmarks/bench_advice.py [--devices sim:npu-phone,sim:gpu-phone] [--seeds 2]

Networks with one planted hindrance each (an activation, a resize, permutes, 64 bits, an error bar,
a tiny gate that splits a region) in two sizes, on simulated phones: profiled, planned, advised, and
the first piece of advice tried. For each: its subject, the predicted and the measured saving, each
with its 95 % interval (latencies simulated), and the error of the prediction. Where a phone runs
the planted operation, or removing it saves less than advice reports, there is nothing to name, and
the row says so. A seed is another draw of the phone's noise.

Fails where a planted hindrance is not first, or the prediction is off by more than 10 % of the
measurement and by more than both intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nnapi_prof as nnp
from nnapi_prof.advice import Advice
from nnapi_prof.api.advise import NONE_SAVES
from nnapi_prof.device_agent import SOURCE_DIR

DEVICES = ("sim:npu-phone", "sim:gpu-phone", "sim:dsp-phone")
SIZES = {"small": (32, 64), "large": (64, 192)}
"""Channels, and the height and width of the image."""
BAR = 0.10


class Net(nn.Module):
    """Five convolutions, and a hindrance between them."""

    def __init__(self, n: int, middle: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front = nn.Sequential(
            *(nn.Conv2d(3, n, 3, 2, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 1, 1), nn.ReLU())
        )
        self.middle = middle
        self.back = nn.Sequential(
            *(nn.Conv2d(n, n, 3, 1, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 1, 1), nn.ReLU()),
            nn.Conv2d(n, 8, 3, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.back(self.middle(self.front(x)))
        return result


class Resize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)


class LinearInLastPlace(nn.Module):
    """A product over channels that needs another order of dimensions."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return result


class Gate(nn.Module):
    """A tiny gate that splits a region."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.gate = nn.Conv2d(n, n, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(F.avg_pool2d(x, x.shape[2:])))


class Double(nn.Module):
    """A product in 64 bits, which NNAPI does not support."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.double() * 0.5).float()


class LargeValues(nn.Module):
    """Values that lose digits in 16 bits."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x * 3e5 + 1e5) * 1e-5


@dataclass(frozen=True)
class Planted:
    """A hindrance, and the operations that identify it."""

    middle: Callable[[int], nn.Module]
    operations: tuple[str, ...]
    max_error: float | None = None


PLANTED = {
    "activation": Planted(lambda _: nn.SiLU(), ("silu",)),
    "resize": Planted(lambda _: Resize(), ("upsample",)),
    "layout": Planted(LinearInLastPlace, ("permute", "linear", "to_contiguous")),
    "64 bits": Planted(lambda _: Double(), ("_to_copy", "mul")),
    "error bar": Planted(lambda _: LargeValues(), ("mul", "add", "relu"), 0.002),
    "tiny gate": Planted(Gate, ("sigmoid", "avg_pool2d", "conv2d", "mul")),
}


def phone(device: str, seed: int, folder: Path, planted: Planted) -> str:
    """Returns the simulated phone with other noise; itself for seed 0. For an error bar its CPU has
    no float16, so that it keeps to the bar."""
    if not seed and planted.max_error is None:
        return device
    source = SOURCE_DIR / "emulator/phones" / f"{device.removeprefix('sim:')}.json"
    description = json.loads(source.read_text())
    description["noise"]["seed"]["value"] += seed
    if planted.max_error is not None:
        description["cpu"]["peak"].pop("relaxed", None)
    path = folder / f"{source.stem}-{seed}-{planted.max_error}.json"
    path.write_text(json.dumps(description))
    return f"sim:{path}"


def advised(name: str, size: str, device: str, table: Path) -> tuple[Advice, ...]:
    """Returns the advice, largest saving first; the first one was tried."""
    planted = PLANTED[name]
    channels, side = SIZES[size]
    net = Net(channels, planted.middle(channels))
    model = nnp.load(net, inputs=[(1, 3, side, side)], name=f"{name}, {size}")
    relaxed = planted.max_error is not None
    costs = nnp.profile(
        model,
        device,
        costs=table,
        options=nnp.MeasureOptions(preferences=["fast"]),
        conditions=nnp.ConditionOptions(relaxed=relaxed),
    )
    plan = nnp.partition(
        model, costs, nnp.Latency(max_error=planted.max_error), verify=None if relaxed else False
    )
    return nnp.advise(plan, tries=1).advice


def interval(ns: float, margin_ns: float) -> str:
    return f"{ns / 1e6:.3f} ± {margin_ns / 1e6:.3f}"


def row(name: str, advice: tuple[Advice, ...]) -> tuple[list[str], bool]:
    """Returns the cells of the table, and whether they meet the bar."""
    if not advice:
        return ["nothing to gain", *[""] * 5], True
    first = advice[0]
    is_first = any(label.startswith(PLANTED[name].operations) for label in first.labels)
    cells = [first.cause.partition(":")[0], first.remedy, f"{first.before_ns / 1e6:.3f}"]
    cells.append(interval(first.saves_ns, first.margin_ns))
    verified = first.verified
    if verified is None or verified.failure:
        failure = "not tried" if verified is None else verified.failure
        return [*cells, failure, ""], is_first and failure == NONE_SAVES
    apart = first.saves_ns - verified.saves_ns
    off = apart / verified.saves_ns if verified.saves_ns else math.inf
    within = abs(off) <= BAR or abs(apart) <= math.hypot(first.margin_ns, verified.margin_ns)
    cells.append(interval(verified.saves_ns, verified.margin_ns))
    return [*cells, f"{off:+.1%}"], is_first and within


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--planted", default=",".join(PLANTED))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    heads = ["planted", "size", "device", "first advice", "rewrite", "plan, ms"]
    print("|", " | ".join([*heads, "predicted saving, ms", "measured, ms", "off"]), "|")
    print("|---" * 9 + "|")
    failed = []
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        cases = itertools.product(
            options.devices.split(","), options.planted.split(","), SIZES, range(options.seeds)
        )
        for number, (device, name, size, seed) in enumerate(cases):
            table = folder / f"{number}.sqlite"
            advice = advised(name, size, phone(device, seed, folder, PLANTED[name]), table)
            cells, keeps = row(name, advice)
            print(
                f"| {' | '.join([name, size, device.removeprefix('sim:'), *cells])} |", flush=True
            )
            if not keeps:
                failed.append(f"{name}, {size}, on {device}, seed {seed}")
    for each in failed:
        print(f"misses the bar: {each}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
