"""One frame on two processors at once, measured: ``partition --parallel`` and the serial plan.

    python benchmarks/bench_branches.py [--models NAME ...] [--phones NAME ...] [--size 64]
    python benchmarks/bench_branches.py --models inception --phones like-phone --size 0
    python benchmarks/bench_branches.py --local

Networks of examples/models.py, and ``inception`` of examples/zoo.py, on simulated phones whose
processors slow each other down 1.0, 1.1 and 1.3 times (planned with that contention, all figures
simulated), or with ``--local`` on this machine at the models' own sizes. ``like-phone`` is
``gpu-phone`` with a CPU about as fast as its GPU, and a driver that starts in half a millisecond
and shares memory: with ``gpu-phone``'s own 3.6 ms per region no branch of these networks pays off.
Size 0 is the network's own.

"Promise" is the largest gain over the serial plan that the bound allows; below 1.15 nothing is
tried. Where a schedule is predicted to gain, making the bundle ran both ways whole, and it names
the faster; "serial" and "chosen" come from a further run of both. Fails where the chosen way takes
over 1.01 times the serial plan, or over 1.05 with ``--local``, whose clock is no better; or where
inception on ``like-phone`` at its own size is not 1.2 times as fast at contentions of 1.0 and 1.1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "examples")]

import models  # noqa: E402
import zoo  # noqa: E402
from bench_frames import CONTENTIONS, with_contention  # noqa: E402

import nnapi_prof as nnp  # noqa: E402
from nnapi_prof.api import SILENT  # noqa: E402
from nnapi_prof.device.find import list_phones  # noqa: E402
from nnapi_prof.execution.frames import SERIAL  # noqa: E402

INCEPTION, LIKE_PHONE = "inception", "like-phone"
CPU_FASTER = 3.0
"""Factor of ``like-phone``'s CPU speed: convolutions take it about as long as the GPU."""
SHARED_MEMORY = {"invocation": 250, "transfer_floor": 250, "transfer_bandwidth": 8}
"""Times of ``like-phone``'s GPU to start and to move values: us, us and GB/s."""
NEVER_SLOWER, NEVER_SLOWER_LOCALLY = 1.01, 1.05
LEAST_GAIN = 1.2
HEADS = ("device", "contention", "network", "promise", "predicted", "serial ms", "chosen",
         "chosen ms", "serial / chosen", "same")  # fmt: skip


def make_phone(name: str, contention: float, folder: Path) -> Path:
    """Returns the description of a simulated phone, ``like-phone`` among them."""
    if name != LIKE_PHONE:
        return with_contention(name, contention, folder)
    path = with_contention("gpu-phone", contention, folder)
    description = json.loads(path.read_text())
    description["name"] = LIKE_PHONE
    cpu = description["cpu"]
    for rate in (*cpu["peak"].values(), cpu["bandwidth"]):
        rate["value"] *= CPU_FASTER
    for key, value in SHARED_MEMORY.items():
        description["accelerators"][0][key]["value"] = value
    path = folder / f"{LIKE_PHONE}-{contention}.json"
    path.write_text(json.dumps(description))
    return path


def load(name: str, size: int, folder: Path) -> nnp.Model:
    """Returns a network with a given size of its input, 0 for its own."""
    path = folder / f"{name}-{size}.pt"
    if name == INCEPTION:
        zoo.save(name, path)
        shape = zoo.MODELS[name].shape
        return nnp.load(
            path, inputs=["x".join(map(str, (*shape[:2], size, size) if size else shape))]
        )
    shape = models.save(name, path, size=size or None)
    return nnp.load(path, inputs=["x".join(map(str, shape))])


def bench(
    model: nnp.Model, device: str, label: str, contention: float | None, table: Path
) -> tuple[bool, float]:
    """Prints a row; returns whether every frame was right, and serial / chosen latency."""
    costs = nnp.profile(
        model,
        device=device,
        costs=table,
        options=nnp.MeasureOptions(contention=True),
        listener=SILENT,
    )
    planned = nnp.partition(model, costs, nnp.Parallel(contention=contention), listener=SILENT)
    parallel = planned.parallel
    assert parallel is not None
    first = (label, "of costs" if contention is None else f"{contention:g}", model.name)
    if planned.frames is None:
        how = SERIAL if parallel.tried else "not tried"
        row = (*first, f"{parallel.promise:.2f}", "1.00", "–", how, "–", "1.00", "–")
        print(f"| {' | '.join(row)} |", flush=True)
        return True, 1.0
    frames = 40 if device == "local" else 3
    result = nnp.run(planned, frames=frames, runs=3, listener=SILENT)
    ms = {
        run.way.name: 1e3 / run.frames_per_second if run.frames_per_second else float("inf")
        for run in result.run.frames
    }
    chosen = result.run.frames[0].way.name
    n = sum(len(run.frames) for run in result.run.frames)
    same = int(result.frames().same.sum())
    ratio = ms[SERIAL] / ms[chosen]
    row = (
        *first,
        *(f"{parallel.promise:.2f}", f"{parallel.gain:.2f}", f"{ms[SERIAL]:.3f}"),
        *(chosen, f"{ms[chosen]:.3f}", f"{ratio:.2f}", f"{same}/{n}"),
    )
    print(f"| {' | '.join(row)} |", flush=True)
    return same == n, ratio


def main() -> int:
    names, phones = [*sorted(models.MODELS), INCEPTION], [*list_phones(), LIKE_PHONE]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=names, choices=names)
    parser.add_argument("--phones", nargs="+", default=phones, choices=phones)
    parser.add_argument("--size", type=int, default=64, help="of inputs, on simulated phones")
    parser.add_argument("--local", action="store_true", help="this machine instead of phones")
    args = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    good = True
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        for name in args.models:
            table = folder / "costs.sqlite"
            model = load(name, 0 if args.local else args.size, folder)
            if args.local:
                right, ratio = bench(model, "local", "local", None, table)
                good &= right and ratio * NEVER_SLOWER_LOCALLY >= 1
                continue
            for phone in args.phones:
                for contention in CONTENTIONS:
                    device = f"sim:{make_phone(phone, contention, folder)}"
                    right, ratio = bench(model, device, phone, contention, table)
                    pays = (name, phone, args.size) == (INCEPTION, LIKE_PHONE, 0)
                    pays &= contention < max(CONTENTIONS)
                    good &= right and ratio >= (LEAST_GAIN if pays else 1 / NEVER_SLOWER)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
