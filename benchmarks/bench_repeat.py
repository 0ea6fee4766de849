"""Do two profiles of the same model, minutes apart, say the same?

    python benchmarks/bench_repeat.py [--models A,B] [--size N] [--device D] [--pause-s N] [--all]

Each profile is a separate command with its own cost table; the models' profiles alternate, so the
two of a model are some minutes apart. For each pair: the relative difference of a unit's median (of
all its targets) between the two profiles, its median, 95th percentile and largest value; then the
same by target, for units that take more than 100 us, and without the shift that all units of a
profile share (another clock rate). Fails where the median is 3 % or more, or the 95th percentile 10
% or more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.store import CostStore

ROOT = Path(__file__).resolve().parent.parent
LONG_NS = 100_000
MEDIAN_BAR, P95_BAR = 0.03, 0.10


def profile(model: Path, costs: Path, device: str, size: int, more: Sequence[str]) -> float:
    """Profiles a model into a new cost table; returns the wall seconds."""
    shape = f"1x3x{size}x{size}"
    command = [sys.executable, "-m", "nnapi_prof", "profile", "--device", device, "--fresh"]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, "--input", shape, "--costs", str(costs), *more, str(model)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"profiling {model.name} failed:\n{done.stderr}")
    return time.perf_counter() - begin


def units(costs: Path) -> dict[tuple[str, str], Measurement]:
    """Returns (signature, target) -> the row of every unit that has a latency."""
    with CostStore(costs) as store:
        rows = [row for device in store.devices() for row in store.measurements(device.fingerprint)]
    return {
        (row.signature, row.target.key): row for row in rows if row.usable and row.kind is Kind.UNIT
    }


def compare(name: str, first: Path, second: Path) -> bool:
    """Prints how two cost tables differ; returns whether they are within the bars."""
    before, after = units(first), units(second)
    groups: dict[str, list[float]] = defaultdict(list)
    signed = []
    for key in before.keys() & after.keys():
        one, two = before[key].summary.median_ns, after[key].summary.median_ns
        signed.append((two - one) / ((one + two) / 2))
        difference = abs(signed[-1])
        groups["all"].append(difference)
        groups[key[1]].append(difference)
        if one > LONG_NS:
            groups["longer than 100 us"].append(difference)
    shift = float(np.median(signed))
    groups[f"less the shift of {shift:+.2%}"] = [abs(each - shift) for each in signed]
    for group, differences in groups.items():
        median, p95, most = np.percentile(differences, [50, 95, 100])
        print(
            f"| {name} | {group} | {len(differences)} | {median:.2%} | {p95:.2%} | {most:.2%} |",
            flush=True,
        )
    median, p95 = np.percentile(groups["all"], [50, 95])
    return bool(median < MEDIAN_BAR and p95 < P95_BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="mobilenet_v2,resnet18")
    parser.add_argument("--device", default="local")
    parser.add_argument("--size", type=int, default=128, help="side of the input")
    parser.add_argument("--pause-s", type=float, default=60.0, help="between the two, at least")
    parser.add_argument("--all", action="store_true", help="every preference and accelerator")
    parser.add_argument("--keep", type=Path, help="folder that keeps the cost tables")
    options = parser.parse_args()
    more = () if options.all else ("--preference", "fast", "--accelerator", "nnapi-fast")
    names = options.models.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            command = [sys.executable, "examples/models.py", name, str(folder / f"{name}.pt")]
            subprocess.run([*command, "--size", str(options.size)], cwd=ROOT, check=True)
        for turn in ("first", "second"):
            for name in names:
                costs = folder / f"{name}-{turn}.sqlite"
                costs.unlink(missing_ok=True)
                model = folder / f"{name}.pt"
                took = profile(model, costs, options.device, options.size, more)
                print(f"{name}, {turn} profile: {took:.1f} s", file=sys.stderr, flush=True)
            if turn == "first":
                time.sleep(options.pause_s)
        print("| model | what | rows | median difference | 95th percentile | largest |")
        print("|---" * 6 + "|")
        good = [
            compare(name, folder / f"{name}-first.sqlite", folder / f"{name}-second.sqlite")
            for name in names
        ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
