"""The number of threads that a trial chooses, against every fixed number.

    python benchmarks/bench_threads.py MODEL... [--device local] [--input 1x3x224x224] [--rounds 15]
    python benchmarks/bench_threads.py --size 64 --device sim:npu-phone --device sim:gpu-phone

A model is a file or a name of executorch_models.py; the default is MobileNetV2, ResNet-18, a U-Net,
an encoder of transformers and a CNN in 8 bits, with images of side `--size`. On `local` and on
phones the whole model runs on the CPU with each number, in turns: the excess of the chosen number
over the fastest, and the trial's share of a profile's time. On a simulated phone the model is
profiled with each number as well, and the plans' latencies, which are simulated, are compared:
whether a fixed number of threads has a faster plan. There the share is that of measurements,
without those of the trial that the profile reuses: its time is that of this machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from executorch_models import DIGITS, ENCODER, NAMES, program_of

import nnapi_prof as np_
from nnapi_prof.api import open_client
from nnapi_prof.api.model import Model
from nnapi_prof.costs import BY_TRIAL, Conditions
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, Job, TargetSpec
from nnapi_prof.execution.profile.measurer import Measurer
from nnapi_prof.execution.profile.threads import thread_counts
from nnapi_prof.graph.plan import CPU

FIVE = ("mobilenet_v2", "resnet18", "unet", ENCODER, DIGITS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=FIVE)
    parser.add_argument("--device", action="append")
    parser.add_argument("--size", type=int, help="Side of the images of models by name.")
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="Write the rows to this file, too.")
    options = parser.parse_args()
    for name in options.models:
        if name not in NAMES and not Path(name).is_file():
            parser.error(f"{name} is neither a file nor one of {', '.join(NAMES)}")
    print("| model | device | chosen | ms by threads | chosen / fastest | trial's share |")
    print("|---" * 6 + "|")
    rows = []
    for name, device in product(options.models, options.device or ["local"]):
        with open_client(device) as client, tempfile.TemporaryDirectory() as folder:
            model = load(name, options.input, options.size, Path(folder))
            row = compare(model, client, Path(folder), options.rounds)
        rows.append({"model": model.name, "device": device, **row})
        times = ", ".join(f"{n}: {ms:.3f}" for n, ms in row["ms"].items())
        print(
            f"| {model.name} | {device} | {row['chosen']} | {times} | {row['excess']:.3f} |"
            f" {row['share']:.1%} |",
            flush=True,
        )
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1))


def load(name: str, inputs: list[str], size: int | None, folder: Path) -> Model:
    """Returns a model by its name, or of a file. A model by name is in ``folder``, which must
    remain: the program is read when it is first converted."""
    if name not in NAMES:
        return np_.load(name, inputs)
    path = folder / f"{name}.pt2"
    torch.export.save(program_of(name, size)[0], path)
    return np_.load(path, name=name)


def compare(model: Model, client: AgentClient, folder: Path, rounds: int) -> dict[str, Any]:
    """Profile with a trial; the latency with each number of threads, and with the chosen one."""
    info = client.info()
    costs = np_.profile(
        model,
        client,
        costs=folder / "auto.sqlite",
        conditions=np_.ConditionOptions(threads=BY_TRIAL),
    )
    outcome, trial = costs.outcome, costs.thread_trial
    assert outcome is not None
    spent = (0.0, outcome.seconds)
    if trial is not None and info.simulated:
        spent = (trial.n_measured - trial.n_kept, outcome.n_measured)
    elif trial is not None:
        spent = (trial.seconds, outcome.seconds)
    counts = thread_counts(info)
    chosen = costs.conditions.threads
    ms: Mapping[int, float]
    if info.simulated:
        ms = {n: plan_ms(model, client, folder / f"{n}.sqlite", n) for n in counts}
        assert outcome.plan is not None
        own = outcome.plan.predicted_ns / 1e6
    else:
        ms = whole_ms(model, client, folder / "whole.sqlite", counts, rounds)
        own = ms[chosen]
    return {
        "chosen": chosen,
        "ms": ms,
        "excess": own / min(ms.values()),
        "share": spent[0] / sum(spent),
    }


def plan_ms(model: Model, client: AgentClient, table: Path, threads: int) -> float:
    """Returns the plan's latency in simulated ms with a fixed number of threads."""
    outcome = np_.profile(
        model, client, costs=table, conditions=np_.ConditionOptions(threads=threads)
    ).outcome
    assert outcome is not None and outcome.plan is not None
    return outcome.plan.predicted_ns / 1e6


def whole_ms(
    model: Model, client: AgentClient, table: Path, counts: tuple[int, ...], rounds: int
) -> dict[int, float]:
    """Returns the median ms of the whole model on the CPU with each number of threads, in turns."""
    graph, version = model.graph, client.info().cost_version
    region = tuple(range(len(graph.units)))
    spec, matcher = TargetSpec(CPU, NEWEST_LEVEL), RegionMatcher(graph)
    settings = ProfileOptions(rounds=rounds, min_runs=2 * rounds, budget_ms=2000.0)
    with CostStore(table) as store:
        measurer = Measurer(model.unit_cache, client, store, settings, None)
        jobs = [
            Job.of(matcher, region, Kind.REGION, spec, Conditions(threads=n), version)
            for n in counts
        ]
        measurer.measure("whole", jobs)
        usual = replace(Conditions(), threads=1)
        return {
            n: store.measurements(measurer.fingerprint, conditions=replace(usual, threads=n))[
                -1
            ].latency_ns
            / 1e6
            for n in counts
        }


if __name__ == "__main__":
    main()
