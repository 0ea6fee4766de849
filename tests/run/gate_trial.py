"""How often the gate fails a build: on pairs of recorded runs, without a change and with one.

    python -m tests.run.gate_trial [--pairs 1000]
    python -m tests.run.gate_trial --record local

The recordings (tests/data/gate_samples.npz, ns) are 64 runs of two convolutions on the CPU of a
machine that others used at the same time, 300 samples each, one run after the other. A change is
one recording of a pair with its samples made longer.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nnapi_prof.reports.comparison import Compared, Side

FILE = Path(__file__).resolve().parents[1] / "data" / "gate_samples.npz"
LIMIT = 0.05


def recordings() -> NDArray[np.uint32]:
    """[runs, samples] in ns."""
    with np.load(FILE) as data:
        samples: NDArray[np.uint32] = data["ns"]
    return samples


def fails(base: NDArray[np.uint32], new: NDArray[np.uint32], factor: float) -> bool:
    """Whether ``--fail-if-slower 5%`` fails, where the new run takes so many times as long."""
    one, two = (
        Side("run", "model", "device", False, samples_ns=tuple(ns))
        for ns in (base.tolist(), (new * factor).astype(int).tolist())
    )
    return bool(Compared(one, two, LIMIT).failed)


def count(pairs: int, factor: float, seed: int = 0) -> int:
    """Of so many pairs of different recordings, how many fail."""
    samples, chance = recordings(), random.Random(seed)
    chosen = (chance.sample(range(len(samples)), 2) for _ in range(pairs))
    return sum(fails(samples[one], samples[other], factor) for one, other in chosen)


def record(device: str, runs: int = 64, samples: int = 300) -> None:
    """Writes :data:`FILE` anew."""
    import nnapi_prof as np_
    from nnapi_prof.device.find import open_device
    from tests.cli.common import trace

    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 3, padding=1)
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder, open_device(device) as opened:
        model = np_.load(trace(layers, Path(folder) / "model.pt", (1, 8, 24, 24)))
        table = Path(folder) / "costs.sqlite"
        costs = np_.profile(
            model,
            opened.client,
            costs=table,
            options=np_.MeasureOptions(preferences=["fast"], refine=False),
        )
        plan = np_.partition(model, costs, device=opened.client, verify=False)
        for _ in range(runs):
            ran = np_.run(plan, opened.client, runs=samples, baselines=False).run.runs[0]
            rows.append(ran.total_ns[:samples])
    np.savez_compressed(FILE, ns=np.array(rows, dtype=np.uint32))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--record", metavar="DEVICE")
    options = parser.parse_args()
    if options.record:
        record(options.record)
    for factor in (1.0, 1.025, 1.05):
        words = "without a change" if factor == 1 else f"{factor - 1:.1%} slower"
        print(f"{words}: {count(options.pairs, factor)} of {options.pairs} fail")


if __name__ == "__main__":
    main()
