"""Conversion after the front end: seconds and megabytes, beside the front end itself.

python benchmarks/bench_convert.py
"""

from __future__ import annotations

import resource
import runpy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5


class Long(nn.Module):
    """1,000 nodes: convolutions, activations and additions in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(334))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x)) + x
        return x


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    models = runpy.run_path(str(ROOT / "examples" / "models.py"))
    cases: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "1,000 nodes": (Long, (1, 8, 16, 16)),
        "mobilenet_v2": (models["mobilenet_v2"], (1, 3, 224, 224)),
        "resnet18": (models["resnet18"], (1, 3, 224, 224)),
    }
    prepare(torch.jit.trace(nn.ReLU(), torch.zeros(1)), (torch.zeros(1),), "imports what is lazy")
    print("| model | nodes | weights MB | front end s | convert s (median) | convert adds MB |")
    print("|---|---|---|---|---|---|")
    for name, (make, shape) in cases.items():
        x = torch.zeros(shape)
        module = make().eval()
        traced = torch.jit.trace(module, x)
        begin = time.perf_counter()
        program = prepare(traced, (x,), name)
        loaded = time.perf_counter() - begin
        weights = sum(p.numel() * p.element_size() for p in module.parameters()) / 1e6
        nodes = sum(node.op == "call_function" for node in program.module.graph.nodes)
        before, seconds = peak_mb(), []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            region = convert_region(program, range(len(program.units.units)), 30)
            seconds.append(time.perf_counter() - begin)
        assert region.operations
        print(
            f"| {name} | {nodes} | {weights:.1f} | {loaded:.2f} | {statistics.median(seconds):.3f} "
            f"| {peak_mb() - before:.0f} |"
        )


if __name__ == "__main__":
    main()
