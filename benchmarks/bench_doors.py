"""Do the example models give the same through every door to NNAPI?

    python benchmarks/bench_doors.py [--models A,B] [--size N] [--device sim:NAME]

Each model is profiled, partitioned and run on a simulated phone through libneuralnetworks.so, a
support library and NeuronAdapter: the emulator behind three doors. For each: whether the plan's
outputs differ from eager PyTorch's by exactly as much as through the first door, and the predicted
latency of the plan, which is simulated. Fails where they do not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from nnapi_prof.device.build import build_host
from nnapi_prof.execution.report import RunReport

ROOT = Path(__file__).resolve().parent.parent
MODELS = "mobilenet_v2,resnet18,squeezenet1_1,unet"


def command(*arguments: object) -> None:
    """Runs a command of nnapi-prof; ends the benchmark if it fails."""
    words = [str(argument) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "nnapi_prof", *words], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"nnapi-prof {' '.join(words)}: {done.stderr}")


def through(library: Path, model: Path, device: str, shape: str, folder: Path) -> RunReport:
    """Returns the run of the plan found through a library."""
    reached = ("--device", device, "--nnapi-library", library)
    named = (*reached, "--input", shape, "--costs", folder / "costs.sqlite")
    bundle = folder / f"{model.stem}-{library.stem}.nnprof"
    command("profile", *named, "--preference", "fast", model)
    command("partition", *named, "--output", bundle, model)
    command("run", *reached, "--no-baselines", bundle)
    return RunReport.from_json((bundle / "run.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--device", default="sim:npu-phone")
    options = parser.parse_args()
    built = build_host()
    libraries = (built.library, built.support_library, built.neuron_adapter)
    same = True
    with tempfile.TemporaryDirectory() as work:
        for name in options.models.split(","):
            model = Path(work) / f"{name}.pt"
            script = ROOT / "examples" / "models.py"
            size = ("--size", str(options.size))
            subprocess.run([sys.executable, script, name, model, *size], check=True)
            shape = f"1x3x{options.size}x{options.size}"
            first = None
            for library in libraries:
                report = through(library, model, options.device, shape, Path(work))
                errors = [check.max_abs for check in report.checks]
                first = errors if first is None else first
                equal = errors == first and all(check.ok for check in report.checks)
                same &= equal
                plan = report.runs[0]
                print(
                    f"{name:16} {library.name:24} {'same' if equal else 'OTHER'} outputs, "
                    f"{len(plan.plan.segments)} segments, {(plan.median_ns or 0) / 1e6:.3f} ms "
                    "(simulated)",
                    flush=True,
                )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
