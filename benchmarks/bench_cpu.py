"""The agent's CPU engine beside XNNPACK driven directly and beside eager PyTorch, interleaved.

    python benchmarks/bench_cpu.py [--models NAME ...] [--threads N ...] [--rounds N] [--json FILE]

MobileNetV2 and ResNet-18 of examples/models.py (float32, 1 x 3 x 224 x 224), and MobileNetV2
quantised. ``engine`` is the converted model, run by the agent's own code; ``direct`` is the same
layers, batch norms folded, given to XNNPACK by hand; ``torch`` is the unchanged module,
channels_last, in inference_mode. One process; each round runs every alternative once unrecorded and
then --runs times recorded, in an order that rotates from round to round, with a pause in between so
that spinning threads go to sleep. The ratio of a round is that of medians within it, and the median
over rounds counts.

The engine takes the input as the converted model does: NCHW; its transposition is part of the model
and of the time. ``direct`` and ``torch`` get theirs with the channels last. ``direct+nchw`` begins
with the same transposition. XNNPACK's workers sleep between runs in ``direct`` as in the engine; in
``direct-spin`` they spin, the default of its API.

On a shared machine, --realtime (as root) gives the process's threads precedence during measurement:
any other load slows two threads that wait for each other many times.

Exits with 1 where a bar is missed: the engine within 5 % of `direct`, and faster than PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cpu_networks import Direct, float_layers, quantised_layers
from torch import nn
from torch.ao.quantization import (
    QConfig,
    QConfigMapping,
    default_histogram_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
    quantize_fx,
)

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.device import xnnpack
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.frontend import prepare
from nnapi_prof.toolchain import cache_dir, find_compiler, python_tool

ROOT = Path(__file__).resolve().parent.parent
MOST_OVER_DIRECT = 1.05
LEVEL = 30
SHAPE = (1, 3, 224, 224)
PAUSE_S = 0.02
YIELD_WORKERS = 0x10


def build(folder: Path) -> ctypes.CDLL:
    """Builds bench_cpu.c with the agent's sources and XNNPACK as a library."""
    prefix = xnnpack.built_prefix() or xnnpack.build_xnnpack(progress=print)
    compiler = find_compiler(cache_dir())
    cmake = python_tool("cmake", "CMAKE_BIN_DIR")
    configure = [
        *(cmake, "-S", SOURCE_DIR, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
        *(f"-DCMAKE_C_COMPILER={compiler.path}", "-DNP_WERROR=OFF", f"-DNP_XNNPACK={prefix}"),
        *compiler.cmake_options,
    ]
    library = folder / "bench_cpu.so"
    include = [f"-I{folder}" for folder in (SOURCE_DIR / "include", SOURCE_DIR / "src")]
    include += [f"-I{SOURCE_DIR / 'runtime'}", f"-I{prefix / 'include'}"]
    archives = [folder / "libnp_agent.a", folder / "libnp_runtime.a"]
    archives += [prefix / "lib" / f"lib{name}.a" for name in xnnpack.LIBRARIES]
    link = [compiler.path, "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", *include]
    link += [Path(__file__).with_suffix(".c"), "-o", library, *archives, "-lm", "-ldl", "-lpthread"]
    for command in (configure, [cmake, "--build", folder, "--target", "np_agent"], link):
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE)
    return ctypes.CDLL(str(library))


class Engine:
    """The agent's CPU engine with a compiled model."""

    def __init__(self, lib: ctypes.CDLL, region: Region, threads: int) -> None:
        class Bytes(ctypes.Structure):
            _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))

        self._lib = lib
        # Aligned as the agent's mapped blobs are.
        self._references = [_aligned(part) for part in (region.serialized, *region.buffers)]
        model, *buffers = [(part.ctypes.data, part.nbytes) for part in self._references]
        lib.engine_open.restype = ctypes.c_void_p
        lib.engine_data.restype = ctypes.c_void_p
        listed = (Bytes * len(buffers))(*buffers)
        self._handle = ctypes.c_void_p(
            lib.engine_open(
                ctypes.c_void_p(model[0]),
                ctypes.c_size_t(model[1]),
                listed,
                len(buffers),
                threads,
            )
        )
        counts = (ctypes.c_uint32 * 2)()
        lib.engine_counts(self._handle, counts)
        self.counts = {"xnnpack": counts[0], "portable": counts[1]}

    def data(self, which: int, dtype: Any) -> np.ndarray:
        """Returns the input (0) or output (1) in the engine's own memory."""
        size = ctypes.c_size_t()
        address = self._lib.engine_data(self._handle, which, ctypes.byref(size))
        raw = (ctypes.c_uint8 * size.value).from_address(address)
        return np.frombuffer(raw, dtype)

    def run(self, runs: int) -> list[float]:
        times = (ctypes.c_double * runs)()
        self._lib.engine_run(self._handle, runs, times)
        return list(times)

    def close(self) -> None:
        self._lib.engine_close(self._handle)


def _aligned(data: bytes) -> np.ndarray:
    raw = np.zeros(len(data) + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    part = raw[start : start + len(data)]
    part[:] = np.frombuffer(data, np.uint8)
    return part


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def quantised(model: nn.Module, weights: Any) -> nn.Module:
    """Returns the model with quantised weights and activations, calibrated on noise."""
    torch.backends.quantized.engine = "x86"
    torch.manual_seed(3)
    example = torch.randn(SHAPE)
    qconfig = QConfig(activation=default_histogram_observer, weight=weights)
    mapping = QConfigMapping().set_global(qconfig)
    prepared = quantize_fx.prepare_fx(model, mapping, (example,))
    for _ in range(2):
        prepared(torch.randn(SHAPE))
    return quantize_fx.convert_fx(prepared)


def bench(
    lib: ctypes.CDLL, name: str, module: nn.Module, layers: Any, threads: int, how: Any
) -> dict[str, Any]:
    """Returns the times of every alternative, and the differences of their outputs."""
    torch.set_num_threads(threads)
    image = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    last = image.contiguous(memory_format=torch.channels_last)
    program = prepare(torch.jit.trace(module, image), (image,), name)
    region = convert_region(program, range(len(program.units.units)), LEVEL)
    before = resident_mb()
    engine = Engine(lib, region, threads)
    grown = resident_mb() - before
    planar = region.input_types[0].memory_shape == SHAPE
    engine.data(0, np.float32)[:] = (image if planar else last.permute(0, 2, 3, 1)).numpy().ravel()
    directs = {
        "direct": Direct(lib, layers, False, threads, YIELD_WORKERS),
        "direct+nchw": Direct(lib, layers, True, threads, YIELD_WORKERS),
        "direct-spin": Direct(lib, layers, False, threads, 0),
    }
    if threads == 1:
        del directs["direct-spin"]
    for direct in directs.values():
        direct.set_input(image)
    eager = module.to(memory_format=torch.channels_last)

    def run_torch(runs: int) -> list[float]:
        times = []
        with torch.inference_mode():
            for _ in range(runs):
                begin = time.perf_counter()
                eager(last)
                times.append((time.perf_counter() - begin) * 1e6)
        return times

    turns: dict[str, Callable[[int], list[float]]] = {"engine": engine.run, "torch": run_torch}
    turns |= {key: direct.run for key, direct in directs.items()}
    samples: dict[str, list[float]] = {key: [] for key in turns}
    for turn in turns.values():
        turn(2)  # now every thread exists
    with precedence() if how.realtime else contextlib.nullcontext():
        rounds = interleave(turns, how.rounds, how.runs, samples)
    with torch.inference_mode():
        reference = eager(last).numpy().ravel()
    scale = np.abs(reference).max()
    outputs = {key: direct.output() for key, direct in directs.items()}
    outputs["engine"] = engine.data(1, np.float32)
    apart = {key: float(np.abs(value - reference).max() / scale) for key, value in outputs.items()}
    counts = engine.counts
    for one in (engine, *directs.values()):
        one.close()
    ratios = {
        key: statistics.median(r["engine"] / r[key] for r in rounds)
        for key in turns
        if key != "engine"
    }
    return {
        "model": name,
        "threads": threads,
        "kernels": counts,
        "operations": list(region.operations),
        "weights_mb": sum(map(len, region.buffers)) / 1e6,
        "resident_mb": grown,
        "median_us": {key: statistics.median(values) for key, values in samples.items()},
        "least_us": {key: min(values) for key, values in samples.items()},
        "engine_over": ratios,
        "apart_from_torch": apart,
        "input": "NCHW" if planar else "NHWC",
        "rounds": rounds,
    }


@contextlib.contextmanager
def precedence() -> Iterator[None]:
    """Gives all present threads precedence, except over real-time kernel threads."""
    threads = [int(name) for name in os.listdir("/proc/self/task")]
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def interleave(
    turns: dict[str, Callable[[int], list[float]]],
    rounds: int,
    runs: int,
    samples: dict[str, list[float]],
) -> list[dict[str, float]]:
    """Returns the median of each alternative in each round."""
    found = []
    keys = list(turns)
    for index in range(-2, rounds):  # two to warm up
        medians = {}
        for key in keys[index % len(keys) :] + keys[: index % len(keys)]:
            time.sleep(PAUSE_S)
            turns[key](1)
            times = turns[key](runs)
            medians[key] = statistics.median(times)
            if index >= 0:
                samples[key] += times
        if index >= 0:
            found.append(medians)
    return found


def networks() -> dict[str, Callable[[], tuple[nn.Module, Any]]]:
    """Returns name -> module and its layers for XNNPACK."""
    models = runpy.run_path(str(ROOT / "examples" / "models.py"))

    def as_floats(make: Callable[[], nn.Module]) -> tuple[nn.Module, Any]:
        module = make().eval()
        return module, float_layers(make().eval(), SHAPE)

    def as_integers(weights: Any) -> tuple[nn.Module, Any]:
        module = quantised(models["mobilenet_v2"]().eval(), weights)
        return module, quantised_layers(module, SHAPE)

    return {
        "mobilenet_v2": lambda: as_floats(models["mobilenet_v2"]),
        "resnet18": lambda: as_floats(models["resnet18"]),
        "mobilenet_v2 quant8": lambda: as_integers(default_weight_observer),
        "mobilenet_v2 per channel": lambda: as_integers(default_per_channel_weight_observer),
    }


def met(row: dict[str, Any]) -> bool:
    """Tells whether a row meets the bars, which are those of float32."""
    if "quant8" in row["model"] or "channel" in row["model"]:
        return True
    over = row["engine_over"]
    return bool(over["direct"] <= MOST_OVER_DIRECT and over["torch"] < 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(networks()), default=list(networks()))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--realtime", action="store_true", help="precedence over other processes")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    how = parser.parse_args()
    rows = []
    print("| model | threads | engine ms | direct ms | torch ms | engine / direct | +nchw | spin "
          "| / torch | least / least | operations xnnpack + portable | apart |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        lib = build(Path(folder))
        for name in how.models:
            module, layers = networks()[name]()
            for threads in how.threads:
                row = bench(lib, name, module, layers, threads, how)
                rows.append(row)
                ms = {key: us / 1000 for key, us in row["median_us"].items()}
                over = {key: f"{ratio:.3f}" for key, ratio in row["engine_over"].items()}
                least = row["least_us"]["engine"] / row["least_us"]["direct"]
                counts = f"{row['kernels']['xnnpack']} + {row['kernels']['portable']}"
                print(
                    f"| {name} | {threads} | {ms['engine']:.2f} | {ms['direct']:.2f} "
                    f"| {ms['torch']:.2f} | {over['direct']} | {over['direct+nchw']} "
                    f"| {over.get('direct-spin', '')} | {over['torch']} | {least:.3f} "
                    f"| {counts} "
                    f"| {row['apart_from_torch']['engine']:.1g} |",
                    flush=True,
                )
    if how.json is not None:
        how.json.write_text(json.dumps(rows, indent=1) + "\n")
    if not all(met(row) for row in rows):
        sys.exit("a bar is missed")


if __name__ == "__main__":
    main()
