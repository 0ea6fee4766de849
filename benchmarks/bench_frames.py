"""Frames per second, measured: plans of two processors at once, and what else one could do.

    python benchmarks/bench_frames.py [--models NAME ...] [--phones NAME ...] [--size 64]
    python benchmarks/bench_frames.py --local [--models NAME ...]

Each model of examples/models.py is profiled, planned with the objective ``throughput`` and run with
the bundle's number of frames at once: on simulated phones whose processors slow each other down
1.0, 1.1 and 1.3 times (their only interference; planned with that contention, all figures
simulated), or with ``--local`` on this machine, at the models' own sizes. The figures are of a run
after the bundle was made, not of the one that chose.

"Chosen" is the bundle's way. "Predicted" comes from costs that were measured one at a time; with
``--local`` it is the bundle's own figure, from the run of frames at once that chose. "Best single
device" and "frames in turn" ran beside it, and with ``--local`` the CPU engine on every core. Fails
where the chosen way does less than 1/1.01 of the best single device's frames per second, where a
prediction is off by more than 5 %, or where a frame differs in any bit from its plan alone; with
``--local`` where it does less than 1.5 times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

import nnapi_prof as nnp  # noqa: E402
from examples.models import MODELS, save  # noqa: E402
from nnapi_prof.api import SILENT  # noqa: E402
from nnapi_prof.device.find import list_phones, phone_file  # noqa: E402
from nnapi_prof.execution.frames import ALL_CORES, all_cores  # noqa: E402

CONTENTIONS = (1.0, 1.1, 1.3)
NEVER_SLOWER = 1.01
PREDICTED = 0.05
LEAST_RATIO = 1.5
"""Least ratio to the best single device with ``--local``."""
SINGLE, IN_TURN = "best single device", "frames in turn"
HEADS = ("device", "contention", "network", "chosen", "frames/s", "predicted", SINGLE, "ratio",
         IN_TURN, ALL_CORES, "latency ms", "95 %", "same")  # fmt: skip


def with_contention(name: str, factor: float, folder: Path) -> Path:
    """Returns a simulated phone's description with the given slowdown between processors."""
    description = json.loads(phone_file(name).read_text())
    description.pop("memory_bandwidth", None)
    for accelerator in description["accelerators"]:
        accelerator.pop("driver_share", None)
    description["contention"] = {"value": factor, "unit": "ratio", "origin": "bench_frames.py"}
    path = folder / f"{name}-{factor}.json"
    path.write_text(json.dumps(description))
    return path


def bench(
    model: nnp.Model, device: str, contention: float | None, table: Path, frames: int, label: str
) -> bool:
    """Prints a row of the table; returns whether it meets the bars."""
    is_local = device == "local"
    costs = nnp.profile(
        model,
        device=device,
        costs=table,
        options=nnp.MeasureOptions(contention=True),
        listener=SILENT,
    )
    planned = nnp.partition(model, costs, nnp.Throughput(contention=contention), listener=SILENT)
    assert planned.frames is not None
    ways = planned.frames
    rule = all_cores(planned.bundle, os.cpu_count() or 1) if is_local else None
    if rule is not None and not any(way.name == ALL_CORES for way in ways.ways):
        ways = replace(ways, ways=(*ways.ways, rule))
        planned = replace(planned, converted=replace(planned.bundle, frames=ways))
    result = nnp.run(planned, frames=frames, runs=3, listener=SILENT)
    runs = {run.way.name: run for run in result.run.frames}
    first = result.run.frames[0]
    rate, throughput = first.frames_per_second, planned.throughput
    same_way = throughput is not None and throughput.plan.rule.value == first.way.name
    predicted = throughput.frames_per_second if throughput is not None and same_way else None
    if is_local:
        predicted = ways.ways[0].predicted_per_second
    if rate is None:
        print(f"{label} {model.name}: {first.error}")
        return False
    rates = {name: run.frames_per_second or 0.0 for name, run in runs.items()}
    single = rates.get(SINGLE, rate)
    n = sum(len(run.frames) for run in result.run.frames)
    same = int(result.frames().same.sum())
    off = (predicted - rate) / rate if predicted else 0.0
    latency, most = ((first.latency_ns(share) or 0.0) / 1e6 for share in (0.5, 0.95))
    cells = (
        *(label, "of costs" if contention is None else f"{contention:g}", model.name),
        *(first.way.name, f"{rate:.4g}", f"{off:+.1%}" if predicted else "–"),
        *(f"{single:.4g}", f"{rate / single:.2f}"),
        *(f"{rates[name]:.4g}" if name in rates else "–" for name in (IN_TURN, ALL_CORES)),
        *(f"{latency:.3g}", f"{most:.3g}", f"{same}/{n}"),
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    least = LEAST_RATIO if is_local else 1 / NEVER_SLOWER
    return same == n and rate >= least * single and abs(off) <= PREDICTED


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=sorted(MODELS), choices=sorted(MODELS))
    parser.add_argument("--phones", nargs="+", default=list_phones(), choices=list_phones())
    parser.add_argument("--size", type=int, default=64, help="of inputs, on simulated phones")
    parser.add_argument("--frames", type=int, default=120, help="of each way")
    parser.add_argument("--local", action="store_true", help="this machine instead of phones")
    args = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    good = True
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        for name in args.models:
            path, table = folder / f"{name}.pt", folder / "costs.sqlite"
            size = None if args.local else args.size
            shape = save(name, path, size=size)
            model = nnp.load(path, inputs=["x".join(map(str, shape))])
            if args.local:
                good &= bench(model, "local", None, table, args.frames, "local")
                continue
            for phone in args.phones:
                for factor in CONTENTIONS:
                    device = f"sim:{with_contention(phone, factor, folder)}"
                    good &= bench(model, device, factor, table, args.frames, phone)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
