"""Fits the parameters of simulated fleets to published tables of latencies.

    python benchmarks/fit_fleet.py FOLDER

FOLDER has, as CSV, the tables named below with their sources. benchmarks/draw_phones.py has the
printed results: standard deviations of the logarithm of speed between phones, and the correlation
of the speeds of CPU and GPU.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

NCNN = "ncnn_benchmark.csv"
"""Tencent/ncnn @a4d2ea1d, benchmark: whole networks, CPU by threads and Vulkan."""
USC = "usc_tflite_cnn_e2e.csv"
"""qed-usc/mobile-ml-benchmark @40ba833: whole networks, by cores and on the GPU."""
USC_OPS = "usc_tflite_cnn_ops_gpu.csv"
"""Single operations on the GPU, from the same repository."""
AI_HUB = "aihub_perf.csv"
"""quic/ai-hub-models @52c080d2: whole networks on NPUs."""
PHONES = ("pixel4", "s10", "mi8se", "a03s")
NPUS = ("Galaxy S24", "Galaxy S25", "8 Elite Gen 5", "QCS8550", "QCS8450", "7 Gen 4")
SOCS = {"cpu": ("410", "660", "675", "810", "835"), "gpu": ("660", "810", "835")}
Speeds = Mapping[str, Mapping[str, float]]
"""Phone -> network or operation -> latency."""


def read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def log_speeds(latencies: Speeds) -> dict[str, float]:
    """Returns for each phone minus the mean logarithm of its latencies over those of all phones,
    for the networks that all of them ran."""
    common = set.intersection(*(set(each) for each in latencies.values()))
    logs = {p: [math.log(each[n]) for n in sorted(common)] for p, each in latencies.items()}
    middle = np.mean(list(logs.values()), axis=0)
    return {phone: -float(np.mean(values - middle)) for phone, values in logs.items()}


def spread(speeds: Iterable[float]) -> float:
    return statistics.stdev(speeds)


def main() -> None:
    folder = Path(sys.argv[1])
    ncnn: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in read(folder, NCNN):
        for unit, socs in SOCS.items():
            for soc in socs:
                if f"Snapdragon {soc}" in row["soc"] and row["num_threads"] == "1":
                    if row["unit"] == unit and "int8" not in row["model"]:
                        ncnn[unit, soc][row["model"]] = float(row["avg_ms"])
    usc: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in read(folder, USC):
        for phone in PHONES:
            cpu = next((c for c in row if c.startswith(f"{phone}|1large|float")), None)
            cpu = cpu or f"{phone}|1med|float"
            for unit, column in (("cpu", cpu), ("gpu", f"{phone}|gpu|float")):
                if row.get(column):
                    usc[unit, phone][row["model"]] = float(row[column])
    by_table = {}
    for unit in ("cpu", "gpu"):
        for name, table in (("ncnn", ncnn), ("usc", usc)):
            speeds = log_speeds({p: each for (u, p), each in table.items() if u == unit})
            by_table[unit, name] = speeds
            words = ", ".join(f"{phone} {speed:+.2f}" for phone, speed in speeds.items())
            print(f"{unit} {name}: sd {spread(speeds.values()):.2f} of {len(speeds)} ({words})")
    pairs = []
    for name in ("ncnn", "usc"):
        cpu, gpu = by_table["cpu", name], by_table["gpu", name]
        middle = float(np.mean([cpu[phone] for phone in gpu]))
        pairs += [(cpu[phone] - middle, gpu[phone]) for phone in gpu]
    print(f"cpu and gpu: correlation {np.corrcoef(np.array(pairs).T)[0, 1]:.2f} of {len(pairs)}")
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read(folder, USC_OPS):
        for phone in PHONES:
            if row.get(f"{phone}_us") and row["FLOPS"] not in ("", "-", "0"):
                speed = math.log(float(row["FLOPS"]) / float(row[f"{phone}_us"]))
                rates[row["op"], phone].append(speed)
    kinds = sorted({kind for kind, _ in rates if all(len(rates[kind, p]) > 20 for p in PHONES)})
    table = np.array([[np.median(rates[kind, phone]) for phone in PHONES] for kind in kinds])
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    free = (len(kinds) - 1) * (len(PHONES) - 1)
    print(f"gpu by kind ({', '.join(kinds)}): sd {math.sqrt((rest**2).sum() / free):.2f} of {free}")
    npus: dict[str, dict[str, float]] = defaultdict(dict)
    for row in read(folder, AI_HUB):
        if (
            any(word in row["device"] for word in NPUS)
            and row["runtime"] == "tflite"
            and row["precision"] == "float"
        ):
            if row["primary_unit"] == "NPU":
                npus[row["device"]][f"{row['model']} {row['component']}"] = float(
                    row["inference_ms"]
                )
    npus = {phone: each for phone, each in npus.items() if len(each) > 50}
    speeds = log_speeds(npus)
    words = ", ".join(f"{phone} {speed:+.2f}" for phone, speed in speeds.items())
    print(f"npu: sd {spread(speeds.values()):.2f} of {len(speeds)} ({words})")


if __name__ == "__main__":
    main()
