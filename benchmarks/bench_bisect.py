"""Faults planted in simulated drivers: does `nnapi-prof bisect` name each, and in how many runs?

    python benchmarks/bench_bisect.py                       # 72 faults in 9 networks
    python benchmarks/bench_bisect.py --networks bert int8  # some of them
    python benchmarks/bench_bisect.py --reproduce           # compiles and runs each reproducer, too
    python benchmarks/bench_bisect.py --clean               # healthy drivers: no alarm
    python benchmarks/bench_bisect.py --adb                 # time of the command over a real adbd

A fault spoils one operation where its output has a given shape. It counts as named where the unit
that bisect finds has such an operation. A run is a request to the device; 2 log2(units) + 4 are
allowed. A reproducer must end with 1 on the phone with the fault and with 0 on a healthy one. Ends
with 1 where a fault was missed, there were too many runs, a reproducer shows nothing or a healthy
driver was blamed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nnapi_prof as nnp
from nnapi_prof.bisection.diagnosis import Bisection
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs import Conditions
from nnapi_prof.device.build import build_host
from nnapi_prof.device.find import PHONES_DIR, open_device
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.graph.plan import AUTO, Preference
from nnapi_prof.toolchain import cache_dir, find_compiler

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bisect_networks import NETWORKS, Network, image, models, save, spec_of

ROOT = Path(__file__).resolve().parents[1]

FAULTS: tuple[dict[str, Any], ...] = (
    {"how": "scale", "amount": 1.05},
    {"how": "transpose"},
    {"how": "saturate"},
    {"how": "border", "amount": 0.5},
    {"how": "channels"},
    {"how": "race", "amount": 1.1},
    {"how": "offset"},
    {"how": "scale", "amount": 0.9, "when": "burst"},
    {"how": "scale", "amount": 1.2, "when": "shared"},
    {"how": "nan"},
    {"how": "shift"},
    {"how": "wrap"},
    {"how": "truncate"},
    {"how": "absolute"},
    {"how": "scale", "amount": 1.3, "when": "later"},
    {"how": "nan", "channel": 1},
    {"how": "offset", "channel": 0},
    {"how": "scale", "amount": 0.0, "channel": 2},
    {"how": "scale", "amount": -1.0},
    {"how": "scale", "amount": 1.1, "when": "relaxed"},
    {"how": "transpose", "when": "burst"},
    {"how": "race", "amount": 0.5, "when": "shared"},
    {"how": "scale", "amount": 1.1, "when": "negative"},
    {"how": "scale", "amount": 1.1, "from": 1},
    {"how": "tile"},
    {"how": "drift"},
    {"how": "zero"},
    {"how": "offset", "channel": 0, "when": "later"},
    {"how": "saturate", "when": "burst"},
    {"how": "shift", "when": "shared"},
    {"how": "scale", "amount": 1.01, "when": "relaxed"},
    {"how": "transpose", "when": "later"},
)
"""Kinds of faults, used in turn; ``amount`` is filled in where it depends on the values."""


@dataclass(frozen=True)
class Plant:
    """A fault, and the operation that has it."""

    error: dict[str, Any]
    operation: str
    dims: tuple[int, ...]

    def phone(self, network: Network, folder: Path) -> str:
        """Write the phone with this fault; return its ``--device`` argument."""
        described = json.loads((PHONES_DIR / f"{network.phone}.json").read_text())
        error = {**self.error, "operation": self.operation, "output": list(self.dims)}
        if "amount" in error:
            error["amount"] = {"value": error["amount"], "unit": "none", "origin": "planted"}
        for accelerator in described["accelerators"]:
            if accelerator["name"] == network.accelerator:
                accelerator["errors"] = [{**error, "origin": "planted"}]
        path = folder / "phone.json"
        path.write_text(json.dumps(described))
        return f"sim:{path}"

    def named(
        self, outcome: Bisection, operations: Sequence[set[tuple[str, tuple[int, ...]]]]
    ) -> bool:
        """Tell whether the first culprit has the operation."""
        return any(
            (self.operation, self.dims) in operations[unit]
            for culprit in outcome.culprits[:1]
            for unit in culprit.units
        )


def operations_of(model: nnp.Model) -> list[set[tuple[str, tuple[int, ...]]]]:
    """Return the NNAPI operations of each unit, with the dimensions of their first outputs."""
    listed = []
    for unit in model.graph.units:
        try:
            region = convert_region(model.program, (unit.index,), 30)
        except UnsupportedOp:
            listed.append(set())
            continue
        listed.append(
            {
                (each.code.name, tuple(region.model.operands[each.outputs[0]].dims))
                for each in region.model.operations
            }
        )
    return listed


SPOILT = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED ADD MUL AVERAGE_POOL_2D MAX_POOL_2D SOFTMAX LOGISTIC"
    " CONCATENATION BATCH_MATMUL TANH PRELU GROUPED_CONV_2D HARD_SWISH STRIDED_SLICE MAXIMUM SUB"
    " DIV INSTANCE_NORMALIZATION TRANSPOSE TRANSPOSE_CONV_2D REDUCE_SUM REDUCE_MAX SQRT"
    " RESIZE_BILINEAR".split()
)


def plants(
    model: nnp.Model,
    network: Network,
    operations: Sequence[set[tuple[str, tuple[int, ...]]]],
    n: int,
    seed: int,
) -> Iterator[Plant]:
    """Yield faults in operations that the accelerator runs, drawn at random."""
    from nnapi_prof.bisection.probe import RegionProbe, reference_values

    random = np.random.default_rng(seed)
    values = reference_values(model.program, model.program.example_inputs)
    with open_device(f"sim:{network.phone}") as device:
        specs = device_targets(device.client.info(), accelerators=[network.accelerator])
        probe = RegionProbe(
            model.program, device.client, specs[-1].target, specs[-1].level, [values], Conditions()
        )
        taken = probe.taken(range(len(model.graph.units)))
    units = [
        unit
        for unit in model.graph.units
        if unit.index in taken and any(o in SPOILT for o, _ in operations[unit.index])
    ]
    for number in range(n):
        error = dict(FAULTS[(seed + number) % len(FAULTS)])
        unit = units[int(random.integers(len(units)))]
        value = values[unit.outputs[0]].double()
        quant = model.graph.values[unit.outputs[0]].quant
        if quant is not None:
            value = value - quant.zero_point
            error["how"] = "offset" if error["how"] in ("nan", "saturate") else error["how"]
        if error["how"] in ("saturate", "wrap"):
            error["amount"] = float(value.abs().max()) / 2
        if error["how"] == "zero" and (quant is None or quant.zero_point == 0):
            error = {"how": "offset"}
        if error.get("when") == "negative" and value.min() >= 0:
            error = {"how": "scale", "amount": 1.05, "channel": 0}
        if "from" in error:  # the last tenth
            error["from"] = value.numel() * 9 // 10
        if error["how"] == "drift":
            error["amount"] = 1.0 if quant is not None else float(value.abs().max()) / 1e5
        if error["how"] == "offset":
            error["amount"] = 1.0 if quant is not None else float(value.abs().max()) / 50
        own = sorted(o for o in operations[unit.index] if o[0] in SPOILT)
        operation, dims = own[int(random.integers(len(own)))]
        smallest = {"border": 4, "transpose": 4, "shift": 4, "tile": 9}.get(error["how"], 0)
        if smallest and (len(dims) != 4 or min(dims[1:3]) < smallest):
            error = {"how": "scale", "amount": 1.05}
        if error["how"] == "absolute" and value.min() >= 0:
            error = {"how": "offset", "amount": max(1.0, float(value.max()) / 50)}
        if error.get("channel", 0) >= dims[-1]:
            error["channel"] = 0
        yield Plant(error, operation, dims)


def reproduces(case: Path, faulty: str, network: Network) -> bool:
    """Tell whether a reproducer, compiled by g++, shows the fault, and only on the faulty phone."""
    host = build_host().library.parent
    include = Path(nnp.__file__).resolve().parents[1] / "device_agent" / "include"
    (case / "android").mkdir(exist_ok=True)
    (case / "android" / "NeuralNetworks.h").write_text('#include "np_nnapi.h"\n')
    command = ["g++", "-std=c++14", "-I.", f"-I{include}", "main.cpp", "region.cpp", "-ldl"]
    subprocess.run([*command, "-o", "reproduce"], cwd=case, check=True)

    def code(phone: str) -> int:
        variables = {"LD_LIBRARY_PATH": str(host), "NNAPI_EMULATOR_PHONE": phone}
        return subprocess.run(
            ["./reproduce"], cwd=case, env={**os.environ, **variables}, check=False,
            stdout=subprocess.DEVNULL,
        ).returncode  # fmt: skip

    healthy = str(PHONES_DIR / f"{network.phone}.json")
    return code(faulty.removeprefix("sim:")) == 1 and code(healthy) == 0


def bench(names: Sequence[str], n_faults: int, *, reproduce: bool, first: int) -> int:
    missed = 0
    heads = f"{'named':<7}{'shown':<7}{'kind':<14}"
    print(f"{'network':<14}{'units':>6}  {'fault':<44}{heads}runs  allowed  CPU s")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for place, name in enumerate(names):
            network = NETWORKS[name]
            model = nnp.load(save(network, folder / f"{name}.pt"), inputs=[spec_of(network)])
            operations = operations_of(model)
            share = [*plants(model, network, operations, n_faults, first + 4 * place)]
            for number, plant in enumerate(share):
                began = time.process_time()
                phone = plant.phone(network, folder)
                case = folder / f"{name}{number}"
                outcome = nnp.bisect(
                    model,
                    phone,
                    target=f"nnapi:{network.accelerator}/fast",
                    conditions=nnp.ConditionOptions(relaxed=plant.error.get("when") == "relaxed"),
                    reproducer=case if reproduce else None,
                )
                n_units = outcome.n_units
                allowed = math.floor(2 * math.log2(n_units) + 4)
                named = plant.named(outcome, operations)
                shows = not reproduce or (named and reproduces(case, phone, network))
                missed += not named or outcome.runs > allowed or not shows
                words = f"{plant.error['how']} {plant.operation} {'x'.join(map(str, plant.dims))}"
                extra = [plant.error[k] for k in ("channel", "from", "when") if k in plant.error]
                words += f" ({', '.join(map(str, extra))})" if extra else ""
                shown = ("yes" if shows else "NO") if reproduce else "-"
                kind = outcome.culprits[0].kind.value if outcome.culprits else "-"
                print(
                    f"{name:<14}{n_units:>6}  {words:<44}{'yes' if named else 'NO':<7}"
                    f"{shown:<7}{kind:<14}"
                    f"{outcome.runs:>6}  {allowed:>7}  {time.process_time() - began:.1f}",
                    flush=True,
                )
    return missed


def clean(names: Sequence[str]) -> int:
    """Run bisect on healthy drivers of every shipped phone."""
    alarms = pairs = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            network = NETWORKS[name]
            path = save(network, Path(scratch) / f"{name}.pt")
            model = nnp.load(path, inputs=[spec_of(network)])
            for phone in sorted(path.stem for path in PHONES_DIR.glob("*.json")):
                with open_device(f"sim:{phone}") as device:
                    targets = [
                        each.target.key
                        for each in device_targets(device.client.info())
                        if each.target.preference in (None, Preference.FAST_SINGLE_ANSWER)
                        and each.target.accelerator != AUTO
                    ]
                    for target in targets:
                        for relaxed in (False, True):
                            outcome = nnp.bisect(
                                model,
                                device.client,
                                target=target,
                                conditions=nnp.ConditionOptions(relaxed=relaxed),
                            )
                            pairs += 1
                            alarms += not outcome.clean
                            if not outcome.clean:
                                print(f"ALARM {name} {phone} {target}: {outcome.culprits[0]}")
                print(f"{name} {phone}: {pairs} pairs so far, {alarms} alarms", flush=True)
    print(f"{pairs} healthy pairs of network and target, {alarms} alarms")
    return alarms


ADB_LIMIT_S = 30.0


def over_adb() -> int:
    """Time the command for MobileNetV2 at 224x224 on a phone behind a real adbd; 1 if too slow."""
    sys.path.insert(0, str(ROOT / "tests" / "adbd"))
    import daemon

    prefix = daemon.set_up(ROOT / "build" / "adbd")
    shim = daemon.build_shim(prefix, find_compiler(cache_dir()).path)
    network = Network(models.mobilenet_v2, image(224))
    plant = Plant({"how": "scale", "amount": 1.05}, "DEPTHWISE_CONV_2D", (1, 28, 28, 192))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = save(network, folder / "model.pt")
        phone = Path(plant.phone(network, folder).removeprefix("sim:"))
        device = daemon.start_daemon(
            prefix, shim, library_dir=build_host().library.parent, phone=phone
        )
        try:
            command = [
                sys.executable, "-m", "nnapi_prof", "bisect", "--json", "--device", device.serial,
                "--target", f"{network.accelerator}/fast", "--input", "1x3x224x224", str(model),
            ]  # fmt: skip
            variables = {**os.environ, **device.environment}
            before, began = os.times(), time.monotonic()
            done = subprocess.run(command, env=variables, check=False, stdout=subprocess.PIPE)
            took_s = time.monotonic() - began
            after = os.times()
        finally:
            device.stop()
    cpu_s = sum(after[2:4]) - sum(before[2:4])
    outcome = json.loads(done.stdout) if done.stdout else {"culprits": [], "runs": 0}
    named = [culprit["label"] for culprit in outcome["culprits"]]
    print(f"{outcome['runs']} runs, named {named}: {took_s:.1f} s, CPU of the host {cpu_s:.1f} s")
    return int(len(named) != 1 or took_s > ADB_LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--faults", type=int, default=8, help="of each network")
    parser.add_argument("--first", type=int, default=0, help="kind of fault to begin with")
    parser.add_argument("--reproduce", action="store_true", help="run each reproducer, too")
    parser.add_argument("--clean", action="store_true", help="healthy drivers instead")
    parser.add_argument("--adb", action="store_true", help="the command's time over a real adbd")
    options = parser.parse_args()
    if options.adb:
        failed = over_adb()
    elif options.clean:
        failed = clean(options.networks)
    else:
        failed = bench(
            options.networks, options.faults, reproduce=options.reproduce, first=options.first
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
