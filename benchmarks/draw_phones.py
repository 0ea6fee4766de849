"""Draw simulated phones and write their descriptions, one JSON file a phone.

    python benchmarks/draw_phones.py FOLDER [--phones 12] [--seed 1]
    nnapi-prof lab profile --phones 'FOLDER/*.json' model.pt

Each is an ordinary simulated phone, drawn from the four built-in ones. There are a fifth as many
SoCs as phones. A SoC is one of the four kinds, with a speed of its CPU, its GPU, its other
accelerators and their kinds of operations; phones of one SoC differ a little. The result depends
only on the seed, the numbers of SoC and phone, and the number of SoCs.

The spread of speeds was fitted to published tables by benchmarks/fit_fleet.py, which names them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

from nnapi_prof.device_agent import SOURCE_DIR

PHONES_A_SOC = 5
KINDS = {"npu-phone": 0.3, "gpu-phone": 0.3, "dsp-phone": 0.2, "slow-nnapi-phone": 0.2}
"""Built-in phones, with the share of SoCs of each kind. Assumed; of the eight phones with published
times of both (columns `nnapi` and `cpu` of tensorflow's measurement.md @12d3eaa7, and reports
beside it), float32 on NNAPI was slower than the CPU on four."""

CPU_SPREAD = 0.70
"""Standard deviation of the logarithm of a CPU's speed: 0.46 of 5 SoCs (Tencent/ncnn @a4d2ea1d, one
thread) and 0.93 of 4 (qed-usc/mobile-ml-benchmark @40ba833, one large core), pooled."""
GPU_SPREAD = 0.67
"""The same of a GPU: 0.37 of 3 and 0.81 of 4 of these."""
TOGETHER = 0.91
"""Correlation of the two, of 7."""
NPU_SPREAD = 0.52
"""The same of an NPU: 0.52 of 5 (quic/ai-hub-models @52c080d2, float32, TFLite)."""
KIND_SPREAD = 0.23
"""The same of a kind of operation on a GPU, relative to the speed of the GPU: 6 kinds on 4 phones
(qed-usc/mobile-ml-benchmark @40ba833). Assumed for the others."""
FIXED_SPREAD = 0.3
"""The same of the fixed cost of each invocation. Assumed."""
PHONE_SPREAD = 0.05
"""The same of phones of one SoC: clocks, memory, cooling. Assumed."""
FASTEST = 2.5
"""Largest number of standard deviations; values farther out are set to this."""


def draw_phone(n_phones: int, seed: int, index: int) -> dict[str, Any]:
    """Return the description of one of ``n_phones``, as the emulator reads it from JSON."""
    chance = random.Random(f"{seed}/phone/{index}")
    n_socs = math.ceil(n_phones / PHONES_A_SOC)
    number = chance.randrange(n_socs)
    soc = random.Random(f"{seed}/soc/{n_socs}/{number}")
    kind = soc.choices(list(KINDS), list(KINDS.values()))[0]
    text = (SOURCE_DIR / "emulator" / "phones" / f"{kind}.json").read_text(encoding="utf-8")
    phone: dict[str, Any] = json.loads(text)
    own = _factor(chance, PHONE_SPREAD)
    cpu = _normal(soc)
    gpu = TOGETHER * cpu + math.sqrt(1 - TOGETHER**2) * _normal(soc)
    _scale(phone["cpu"], soc, math.exp(CPU_SPREAD * cpu) * own)
    for accelerator in phone["accelerators"]:
        if accelerator["type"] == "CPU":
            speed = math.exp(CPU_SPREAD * cpu)
        elif accelerator["type"] == "GPU":
            speed = math.exp(GPU_SPREAD * gpu)
        else:
            speed = _factor(soc, NPU_SPREAD)
        _scale(accelerator, soc, speed * own)
        fixed = _factor(soc, FIXED_SPREAD)
        for name in ("invocation", "burst_invocation", "transfer_floor"):
            if name in accelerator:
                _times(accelerator[name], fixed)
    name = f"fleet-{seed}-{index}"
    properties = phone["properties"]
    release = properties["ro.build.version.release"]
    phone["name"] = name
    phone["description"] = f"Drawn from {kind}, SoC {number} of {n_socs}."
    properties |= {
        "ro.product.model": name,
        "ro.build.fingerprint": f"simulated/{name}/{name}:{release}/SIM1/1:user/release-keys",
        "ro.soc.model": f"sim-soc-{seed}-{number}",
        "ro.board.platform": f"simsoc{number}",
        "ro.hardware": f"simsoc{number}",
    }
    phone["noise"]["seed"]["value"] = soc.randrange(1 << 20) + index
    return phone


def write_phones(folder: Path, n_phones: int, seed: int) -> list[Path]:
    """Write the descriptions of ``n_phones`` into a folder; return their paths, by index."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"fleet-{seed}-{index:05}.json" for index in range(n_phones)]
    for index, path in enumerate(paths):
        text = json.dumps(draw_phone(n_phones, seed, index), indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    return paths


def _normal(chance: random.Random) -> float:
    return max(-FASTEST, min(FASTEST, chance.gauss(0.0, 1.0)))


def _factor(chance: random.Random, spread: float) -> float:
    return math.exp(spread * _normal(chance))


def _scale(unit: dict[str, Any], soc: random.Random, speed: float) -> None:
    """Scale rates of a processor by its speed, and each kind of operation by another factor."""
    constants = unit["peak"]
    for constant in [constants] if "value" in constants else constants.values():
        _times(constant, speed)
    _times(unit["bandwidth"], math.sqrt(speed))  # memory differs less than arithmetic
    _times(unit["operation_overhead"], 1 / math.sqrt(speed))
    for _, constant in sorted(unit["efficiency"].items()):
        most = 0.95 / constant["value"]
        _times(constant, min(most, _factor(soc, KIND_SPREAD)))


def _times(constant: dict[str, Any], factor: float) -> None:
    constant["value"] = float(f"{constant['value'] * factor:.4g}")
    constant["origin"] += f"; drawn: {factor:.3g} times that"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phones", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write_phones(options.folder, options.phones, options.seed)


if __name__ == "__main__":
    main()
