"""The back ends on MobileNetV2 (float32, 224 x 224, one thread), in one interleaved run.

    python benchmarks/bench_backends.py [--rounds N] [--json FILE]

XNNPACK driven directly, then the emulator's devices nnapi-fast and nnapi-reference through the
NNAPI C API; every round runs all three. Needs XNNPACK (``python -m nnapi_prof.device.xnnpack``)
and a C compiler. Exits with 1 where a bar is missed: fast within 10 % of XNNPACK, reference within
30 times fast, no allocation and no lock in executions of a warm fast device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import build_host
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import cache_dir, find_compiler

HERE = Path(__file__).resolve().parent
SOURCES = tuple(HERE / f"{name}.c" for name in ("bench_backends", "bench_network", "count_calls"))
MOST_FAST_OVER_DIRECT = 1.10
MOST_REFERENCE_OVER_FAST = 30.0


def measure(rounds: int) -> dict[str, Any]:
    """Builds and runs bench_backends.c; returns its output."""
    prefix = xnnpack.built_prefix() or xnnpack.build_xnnpack(progress=print)
    library = build_host(progress=print).library
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "bench_backends"
        archives = [prefix / "lib" / f"lib{name}.a" for name in xnnpack.LIBRARIES]
        command = [
            *(find_compiler(cache_dir()).path, "-O2", "-rdynamic"),
            *(f"-I{SOURCE_DIR / 'include'}", f"-I{prefix / 'include'}"),
            *(*SOURCES, "-o", program, *archives, "-lm", "-ldl", "-lpthread"),
        ]
        subprocess.run([str(part) for part in command], check=True)
        process = subprocess.run(
            [str(program), str(library), str(rounds)], check=True, stdout=subprocess.PIPE, text=True
        )
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the ratios of the medians, and whether the bars are met."""
    direct, fast, reference = (found[f"{name}_us"] for name in ("direct", "fast", "reference"))
    over_direct = statistics.median(fast) / statistics.median(direct)
    over_fast = statistics.median(reference) / statistics.median(fast)
    calls = {name: found[name] for name in ("allocations", "frees", "locks")}
    return {
        "fast_over_direct": over_direct,
        "reference_over_fast": over_fast,
        "calls_in_warm_executions": calls,
        "met": over_direct <= MOST_FAST_OVER_DIRECT
        and over_fast <= MOST_REFERENCE_OVER_FAST
        and not any(calls.values())
        and found["control_allocations"] > 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--json", type=Path, help="also write samples and summary here")
    options = parser.parse_args()
    figures = measure(options.rounds)
    result = summary(figures)
    print("| MobileNetV2 float32, 1 thread | median ms | least | most |")
    print("|---|---|---|---|")
    for name in ("direct", "fast", "reference"):
        times = [us / 1000 for us in figures[f"{name}_us"]]
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |")
    print(f"fast / direct: {result['fast_over_direct']:.3f} (bar: {MOST_FAST_OVER_DIRECT})")
    print(
        f"reference / fast: {result['reference_over_fast']:.2f} (bar: {MOST_REFERENCE_OVER_FAST})"
    )
    print(
        f"in {figures['counted_runs']} warm executions on fast: "
        f"{figures['allocations']} allocations, "
        f"{figures['frees']} frees, {figures['locks']} locks"
    )
    print(
        f"largest output difference from direct XNNPACK: fast {figures['fast_difference']:.1g}, "
        f"reference {figures['reference_difference']:.1g} of the largest output"
    )
    if options.json is not None:
        options.json.write_text(json.dumps({**figures, **result}, indent=2) + "\n")
    if not result["met"]:
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
