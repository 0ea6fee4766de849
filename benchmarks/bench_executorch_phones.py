"""Plans as ExecuTorch's files, on every simulated phone and this host: right, and the fastest?

    python benchmarks/bench_executorch_phones.py [--models A,B] [--devices D,E] [--size N]

Each model is profiled and planned on each device, and the plan and the rules of its baselines run
there: the CPU alone, the whole model on the best accelerator, list order (one accelerator gets all
that it supports, the CPU the rest). Prints the plan's median latency, simulated on phones, its
ratio to the best of these, and the result of ``nnapi-prof run`` on the plan's files, in calls and
as one. Fails where an output differs from eager PyTorch's, a segment falls back, or a plan takes
more than 1.02 times the best rule. On ``local`` times are those of our own runtime;
bench_executorch.py has those of ExecuTorch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from executorch_models import NAMES, program_of

import nnapi_prof
from nnapi_prof.graph.plan import Rule

ROOT = Path(__file__).resolve().parent.parent
DEVICES = "sim:npu-phone,sim:gpu-phone,sim:dsp-phone,sim:slow-nnapi-phone,local"
RULES = {Rule.ALL_CPU: "cpu", Rule.BEST_SINGLE: "nnapi", Rule.LARGEST_SUPPORTED: "list"}
BAR = 1.02


def run_file(pte: Path, device: str, model: Path) -> str:
    """Returns the verdict of ``nnapi-prof run`` on a file; a process has only one NNAPI."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nnapi_prof", "run", "--json", "--runs", "2"),
            *("--device", device, "--against", str(model), str(pte)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        return f"FAILED: {done.stderr.strip()[-300:]}"
    document = json.loads(done.stdout)
    if not document["agrees"] or not document["outputs"]:
        return "DIFFERS"
    return "FELL BACK" if any("fell back" in part["name"] for part in document["parts"]) else "same"


def measure(name: str, device: str, path: Path, folder: Path) -> bool:
    """Prints one row; returns whether it meets the bar."""
    model = nnapi_prof.load(path, name=name)
    costs = nnapi_prof.profile(model, device=device, costs=folder / "costs.db")
    planned = nnapi_prof.partition(model, costs)
    report = nnapi_prof.run(planned, device).run
    plan, *others = report.runs
    best: dict[str, float] = {}
    for other in others:
        baseline = other.plan.baseline
        if baseline is not None and baseline.rule in RULES and other.median_ns is not None:
            word = RULES[baseline.rule]
            best[word] = min(best.get(word, other.median_ns), other.median_ns)
    assert plan.median_ns is not None and best
    ratio = plan.median_ns / min(best.values())
    from nnapi_prof.executorch import lower

    said = []
    for whole in (False, True):
        pte = lower(planned, whole=whole).save(folder / f"{name}.pte")
        said.append(run_file(pte, device, path))
    rivals = ", ".join(f"{word} {ns / 1e6:.3f}" for word, ns in best.items())
    print(
        f"| {name} | {device} | {plan.median_ns / 1e6:.3f} | {len(plan.plan.segments)} | {rivals}"
        f" | {ratio:.3f} | {' | '.join(said)} |",
        flush=True,
    )
    return ratio <= BAR and said == ["same", "same"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--devices", default=DEVICES)
    parser.add_argument("--size", type=int, help="side of images; default: the models' own")
    options = parser.parse_args()
    print("| model | device | plan ms | segments | rules ms | plan / best | in calls | as one |")
    print("|---" * 8 + "|", flush=True)
    holds = []
    with tempfile.TemporaryDirectory() as work:
        for name in options.models.split(","):
            path = Path(work) / f"{name}.pt2"
            torch.export.save(program_of(name, options.size)[0], path)
            for device in options.devices.split(","):
                holds.append(measure(name, device, path, Path(work)))
    print(f"{sum(holds)} of {len(holds)} hold")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
