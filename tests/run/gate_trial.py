"""How often the gate fails a build: on pairs of recorded runs, without a change and with one.

    python -m tests.run.gate_trial [--pairs 1000]

The recordings (tests/data/gate_samples.npz, ns) are 64 runs of two convolutions on the CPU of a
machine that others used at the same time, 300 samples each, one run after the other. A change is
one recording of a pair with its samples made longer.
"""

import argparse
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    options = parser.parse_args()
    for factor in (1.0, 1.025, 1.05):
        words = "without a change" if factor == 1 else f"{factor - 1:.1%} slower"
        print(f"{words}: {count(options.pairs, factor)} of {options.pairs} fail")


if __name__ == "__main__":
    main()
