"""`nnapi-prof go` beside the four commands that it stands for: wall time, first and second time.

    python benchmarks/bench_go.py [--models A,B] [--devices sim:npu-phone,local] [--json FILE]

For each example model at full size and each device, with separate cost tables: profile, partition,
run and report one after another, each in a process, then the same again; go, then go again. The
ratios are go's seconds divided by the sum of the commands'. The second times find everything
measured. Each process is timed from its start to its end, PyTorch's import included; agents and
emulator are built before. Exits with 1 where a second go takes 10 s or more.

Seconds are this machine's; on a shared machine, give it precedence:
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_pipeline import MODELS, ROOT

BAR_S = 10.0
"""Limit of a second go, in seconds."""


def seconds(*command: object) -> float:
    """Returns the wall time of a command of nnapi-prof, which must succeed."""
    arguments = [sys.executable, "-m", "nnapi_prof", *map(str, command)]
    began = time.perf_counter()
    process = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} failed:\n{process.stderr}")
    return time.perf_counter() - began


def row(name: str, device: str, model: Path, folder: Path) -> dict[str, Any]:
    stem = folder / f"{name}-{device}".replace(":", "-")
    bundle = stem.with_name(f"{stem.name}-one.nnprof")
    reach = ("--device", device, "--input", MODELS[name])
    costs = ("--costs", f"{stem}-one.sqlite")
    commands = (
        ("profile", *reach, *costs, model),
        ("partition", *reach, *costs, "-o", bundle, model),
        ("run", "--device", device, bundle),
        ("report", *costs, bundle),
    )
    all_in_one = ("go", *reach, "--costs", f"{stem}-all.sqlite", "-o", f"{stem}-all.html", model)
    one = [{command[0]: seconds(*command) for command in commands} for _ in range(2)]
    both = [seconds(*all_in_one) for _ in range(2)]
    return {"model": name, "device": device, "commands_s": one, "go_s": both}


def show(row: dict[str, Any]) -> None:
    cells = [row["model"], row["device"]]
    for commands, go in zip(row["commands_s"], row["go_s"], strict=True):
        total = sum(commands.values())
        cells += [f"{total:.1f}", f"{go:.1f}", f"{go / total:.2f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--devices", default="sim:npu-phone,local")
    parser.add_argument("--json", type=Path, help="Write the rows to this file, too.")
    options = parser.parse_args()
    devices = options.devices.split(",")
    for device in devices:
        seconds("agent", "info", "--device", device)  # builds missing parts
    print("| model | device | commands s | go s | ratio | commands again s | go again s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model = Path(folder) / f"{name}.pt"
            size = MODELS[name].rpartition("x")[2]
            saved = (ROOT / "examples" / "models.py", name, model, "--size", size)
            subprocess.run([sys.executable, *map(str, saved)], check=True, capture_output=True)
            for device in devices:
                rows.append(row(name, device, model, Path(folder)))
                show(rows[-1])
                if options.json is not None:
                    document = {"load": os.getloadavg(), "rows": rows}
                    options.json.write_text(json.dumps(document, indent=1))
    slowest = max(row["go_s"][1] for row in rows)
    print(
        f"\nslowest second go: {slowest:.1f} s, wanted below {BAR_S:g} s; load average of this"
        f" machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}"
    )
    sys.exit(int(slowest >= BAR_S))


if __name__ == "__main__":
    main()
