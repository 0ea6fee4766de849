"""Frames per second with two processors at once, on this machine.

    python benchmarks/bench_lanes.py [--models NAME ...] [--rounds N] [--seconds S]

Networks of examples/models.py through the runtime library (bench_lanes.c): whole on the CPU engine
with one thread, on its own core; whole on the host's NNAPI (nnapi-fast), on another core; on the
CPU engine with two threads on both cores; through a queue with one lane; and through a queue with
two lanes, frames in turn by a mixture with shares by the lanes' speeds. All in one process, in
turns; a round's ratio is of its own rates, and the median over rounds counts. Every frame is
compared with its own plan run alone, bit by bit.

Both cores must be free: on a shared machine, prefix `chrt -f 1` (as root).

Exits with 1 where two lanes have less than 1.5 times the frames per second of the better one, or a
frame differs.
"""

from __future__ import annotations

import argparse
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from nnapi_prof.bundle import Bundle, needed_regions
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.device import xnnpack
from nnapi_prof.device.find import open_local
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Plan, Preference, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.toolchain import cache_dir, find_compiler, locked, python_tool

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = runpy.run_path(str(ROOT / "examples" / "models.py"))["MODELS"]
FAST = Target.nnapi("nnapi-fast", Preference.SUSTAINED_SPEED)
LEVEL = 30
LEAST_RATIO = 1.5
WAYS = ("CPU", "NNAPI", "CPU, 2 threads", "queue, 1 lane", "queue, 2 lanes")


def build(folder: Path) -> Path:
    """Builds the runtime library with XNNPACK, and the program that uses it."""
    prefix = xnnpack.built_prefix() or xnnpack.build_xnnpack(progress=print)
    compiler = find_compiler(cache_dir())
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    configure = [
        *(cmake, "-S", SOURCE_DIR, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
        *(f"-DCMAKE_C_COMPILER={compiler.path}", "-DNP_WERROR=OFF", f"-DNP_XNNPACK={prefix}"),
        *("-DNP_LIBRARY=ON", *compiler.cmake_options),
    ]
    library, program = folder / "library", folder / "bench_lanes"
    link = [compiler.path, "-std=c11", "-O2", f"-I{SOURCE_DIR / 'library'}"]
    link += [
        Path(__file__).with_suffix(".c"),
        "-o",
        program,
        f"-L{library}",
        "-lnnapi_prof_runtime",
    ]
    link += [f"-Wl,-rpath,{library}"]
    for command in (configure, [cmake, "--build", folder, "--target", "nnapi_prof_runtime"], link):
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE)
    return program


def mixture(program: Program, shape: tuple[int, ...], share: float) -> Bundle:
    """Returns a bundle of whole frames in turn: ``share`` of them on the CPU, the rest on NNAPI."""
    units = tuple(range(len(program.units.units)))
    plans = tuple(
        Plan(name, (Segment(units, target, 1e6, "a benchmark"),), False)
        for name, target in (("cpu", CPU), ("nnapi", FAST))
    )
    levels = {target.key: LEVEL for target in (CPU, FAST)}
    return Bundle(
        model="benchmark",
        model_file="model.pt",
        inputs=(f"{'x'.join(map(str, shape))}:float32",),
        device="local",
        fingerprint="",
        simulated=False,
        graph=program.units,
        plans=plans,
        levels=levels,
        regions={key: convert_region(program, *key) for key in needed_regions(plans, levels)},
        plan_set=PlanSet(
            SelectionRule.MIXTURE, (PlanChoice(0, share=share), PlanChoice(1, share=1 - share))
        ),
    )


def bench(
    program: Path, bundle: bytes, library: str, cpus: tuple[int, int], rounds: int, seconds: float
) -> tuple[list[list[float]], float, int]:
    """Returns frames per second of each way in each round; latency of a frame in flight, s; number
    of frames that differ."""
    with tempfile.NamedTemporaryFile(suffix=".nnprt") as file:
        file.write(bundle)
        file.flush()
        command = [str(program), file.name, library, *map(str, cpus), str(rounds), str(seconds)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )
    latency, differing = lines[rounds].split()
    rates = [[float(rate) for rate in line.split()] for line in lines[:rounds]]
    return rates, int(latency) / 1e9, int(differing)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=sorted(NETWORKS), choices=sorted(NETWORKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn, about")
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        sys.exit("two lanes need two cores")
    folder = cache_dir() / "bench-lanes"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        program = build(folder)
    with open_local(progress=print) as client:
        library = client.installed.nnapi_library
    if library is None:
        sys.exit("this machine has an NNAPI of its own; the bar is the emulator's")
    print(
        f"load average {os.getloadavg()[0]:.1f}; frames per second, median of {args.rounds} rounds"
    )
    print(f"| network | {' | '.join(WAYS)} | 2 lanes / best lane | / CPU, 2 threads | latency ms |")
    print("|---" * (len(WAYS) + 4) + "|")
    good = True
    for name in args.models:
        factory, shape = NETWORKS[name]
        prepared = prepare(factory(), (torch.zeros(shape),), name)
        how = (library, (cpus[0], cpus[1]))
        rates, _, _ = bench(program, runtime_bundle(mixture(prepared, shape, 0.5)), *how, 3, 0.2)
        cpu, nnapi = (statistics.median(row[way] for row in rates) for way in (0, 1))
        content = runtime_bundle(mixture(prepared, shape, cpu / (cpu + nnapi)))
        rates, latency, differing = bench(program, content, *how, args.rounds, args.seconds)
        medians = [statistics.median(row[way] for row in rates) for way in range(len(WAYS))]
        ratio = statistics.median(row[4] / max(row[0], row[1]) for row in rates)
        over = statistics.median(row[4] / row[2] for row in rates)
        cells = " | ".join(f"{rate:.1f}" for rate in medians)
        print(f"| {name} | {cells} | {ratio:.2f} | {over:.2f} | {latency * 1e3:.1f} |", flush=True)
        if differing:
            print(f"{name}: {differing} frames differ from their plan run alone")
        good = good and ratio >= LEAST_RATIO and not differing
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
