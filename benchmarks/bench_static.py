"""The static cost model against tables measured on real phones, beside one constant rate.

    python benchmarks/bench_static.py FOLDER [--seeds 9] [--describe DIR]

FOLDER has the files that ``static_tables.py`` names. Every figure is for rows that the model was
not fitted to: it sees a fifth of them, drawn by the seed. Prints medians over the seeds, and the
worst seed. "configurations" keeps equal operations (same sizes) on one side of the split, since
networks repeat their layers. Fails where a median over the seeds misses the bars: an error of 10 %
on CPUs and 20 % on GPUs, and 60 % of whole models within 10 %. "measured sums" of whole models
include the fifth of operations used for the fit. ``--describe`` fits the descriptions of
``nnapi_prof/costs/data``.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: more threads wait

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from static_tables import GPUS, pixel1_blocks, tophub, usc_operations, usc_whole

from nnapi_prof.costs.estimate import Work, WorkSample, from_frame
from nnapi_prof.costs.estimate.calibration import fit_samples, fit_with_errors, single_rate
from nnapi_prof.costs.estimate.model import NORMAL, Roof, TargetModel
from nnapi_prof.costs.estimate.phones import Description
from nnapi_prof.graph.plan import CPU, Preference, Target

SHARE = 0.2
CPU_BAR, GPU_BAR, WHOLE_BAR = 0.1, 0.2, 0.6
NETWORK_FOLDS = 8
SISTER_ROWS = 30
COVERAGE_SEEDS = 3
CPU_COLUMNS = (
    *("pixel4|1large|float", "pixel4|1med|float", "s10|1large|float"),
    *("mi8se|1large|float", "a03s|1large|float"),
)
PHONES = {
    "pixel4": "Google Pixel 4",
    "s10": "Samsung Galaxy S10",
    "mi8se": "Xiaomi Mi 8 SE",
    "a03s": "Samsung Galaxy A03s",
}
SOURCE = "qed-usc/mobile-ml-benchmark @40ba833 (MIT)"

Errors = np.ndarray
Fit = Callable[[Sequence[WorkSample]], TargetModel]


def split(groups: np.ndarray, seed: int) -> tuple[list[int], list[int]]:
    """Returns rows to fit to and rows to test: a fifth of the groups, and the rest."""
    names = np.unique(groups)
    order = np.random.default_rng(seed).permutation(len(names))
    shown = set(names[order[: max(round(SHARE * len(names)), 1)]].tolist())
    inside = np.array([group in shown for group in groups.tolist()])
    return np.flatnonzero(inside).tolist(), np.flatnonzero(~inside).tolist()


def errors(samples: Sequence[WorkSample], rows: Sequence[int], model: TargetModel) -> Errors:
    return np.array([abs(model.sample_ns(samples[i]) / samples[i].ns - 1) for i in rows])


def compare(
    samples: list[WorkSample], groups: np.ndarray, seeds: int, head: str
) -> tuple[float, float]:
    """Prints our and a single rate's median error and share within 10 %; returns ours."""
    ratios: dict[str, list[tuple[float, float]]] = {"ours": [], "rate": []}
    fits: dict[str, Fit] = {"ours": fit_samples, "rate": single_rate}
    for seed in range(seeds):
        shown, held = split(groups, seed)
        for name, fit in fits.items():
            size = errors(samples, held, fit([samples[i] for i in shown]))
            ratios[name].append((float(np.median(size)), float((size <= 0.1).mean())))
    ours, rate = np.array(ratios["ours"]), np.array(ratios["rate"])
    covered = np.median([coverage(samples, groups, seed) for seed in range(COVERAGE_SEEDS)])
    middle, within = float(np.median(ours[:, 0])), float(np.median(ours[:, 1]))
    print(
        f"{head:34s} {len(samples):5d}  {middle:6.1%} (worst {ours[:, 0].max():6.1%})"
        f"  {np.median(rate[:, 0]):6.1%}   {within:5.0%} (worst {ours[:, 1].min():4.0%})"
        f"  {np.median(rate[:, 1]):5.0%}   {covered:5.0%}",
        flush=True,
    )
    return middle, within


def coverage(samples: list[WorkSample], groups: np.ndarray, seed: int) -> float:
    """Returns the share of held rows whose error is below their stated bound for nine of ten."""
    shown, held = split(groups, seed)
    model = fit_with_errors([samples[i] for i in shown]).model
    stated = {i: band for i in held if (band := model.uncertainty(samples[i].works)) is not None}
    if not stated:
        return float("nan")
    return float((errors(samples, list(stated), model) <= list(stated.values())).mean())


def configurations(samples: Sequence[WorkSample]) -> np.ndarray:
    """Returns a number for each set of equal operations."""
    numbers: dict[tuple[Work, ...], int] = {}
    return np.array([numbers.setdefault(sample.works, len(numbers)) for sample in samples])


def sums(table: pd.DataFrame, device: str, whole: pd.DataFrame, seeds: int) -> float:
    """Predicts whole models by a model of operations that was fitted to a fifth of all rows;
    returns the lesser of our two shares."""
    samples = from_frame(table.assign(latency_ns=table[device]))
    column = f"{device}|gpu|float"
    end = whole[column].reindex(sorted(table["model"].unique())).to_numpy()
    result = []
    for seed in range(seeds):
        shown, _ = split(np.arange(len(samples)), seed)
        line = []
        for fit in (fit_samples, single_rate):
            model = fit([samples[i] for i in shown])
            names = table.groupby("sample")["model"].first()
            truth = np.array([sample.ns for sample in samples])
            pair = pd.DataFrame({"p": model.samples_ns(samples), "y": truth, "m": names.to_numpy()})
            total = pair.groupby("m").sum()
            line.append(float((abs(total.p / total.y - 1) <= 0.1).mean()))
            few, rest = split(np.arange(len(total)), seed)
            design = np.column_stack([np.ones(len(total)), total.p])
            price = nnls(design[few] / end[few, None], np.ones(len(few)))[0]
            line.append(float((abs(design[rest] @ price / end[rest] - 1) <= 0.1).mean()))
        result.append(line)
    ours_sum, ours_end, rate_sum, rate_end = np.median(np.array(result), axis=0)
    print(
        f"{device + ' gpu':34s} {len(end):5d}  {ours_sum:5.0%} ({rate_sum:4.0%})"
        f"                {ours_end:5.0%} ({rate_end:4.0%})",
        flush=True,
    )
    return float(min(ours_sum, ours_end))


def whole_samples(table: pd.DataFrame, times: pd.Series, *, calls: float) -> list[WorkSample]:
    """Returns models as sums of their operations."""
    by_model = {
        str(name): tuple(w for s in from_frame(rows.assign(latency_ns=1.0)) for w in s.works)
        for name, rows in table.groupby("model")
    }
    latencies = [(name, ns) for name, ns in times.dropna().items() if name in by_model]
    return [WorkSample(by_model[str(name)], float(ns), calls) for name, ns in latencies]


def gpu_model(
    samples: Sequence[WorkSample],
    models: np.ndarray,
    times: pd.Series,
    names: Sequence[str],
    sister: TargetModel | None = None,
) -> TargetModel:
    """Returns a GPU's model by the operations of the networks ``names`` (of a ``sister``, where
    given); their whole latencies give the start of a call and one factor: operations timed by a
    profiler take another time than in a network that runs freely."""
    shown = [s for s, model in zip(samples, models.tolist(), strict=True) if model in set(names)]
    model = sister or fit_with_errors(shown).model
    whole = [WorkSample(works_of(samples, models, n), float(times[n]), 1.0) for n in names]
    bare = replace(model, invocation_ns=0.0)
    end = np.array([s.ns for s in whole])
    design = np.column_stack([np.ones(len(end)), bare.samples_ns(whole)])
    start, factor = nnls(design / end[:, None], np.ones(len(end)))[0]
    rates = {kind: rate * factor for kind, rate in model.roof.ns_per_mac.items()}
    roof = Roof(
        model.roof.operation_ns * factor,
        model.roof.ns_per_byte * factor,
        rates,
        model.roof.ns_per_gathered_byte * factor,
    )
    return replace(model, roof=roof, invocation_ns=float(start))


def works_of(samples: Sequence[WorkSample], models: np.ndarray, name: str) -> tuple[Work, ...]:
    """Returns all operations of a network."""
    return tuple(
        w for s, m in zip(samples, models.tolist(), strict=True) if m == name for w in s.works
    )


def folded(names: Sequence[str], folds: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Returns the names to fit to and the names held out, for each fold."""
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    parts = [order[fold::folds] for fold in range(folds)]
    return [([n for n in names if n not in part], part) for part in parts]


def gpu_table(
    operations: pd.DataFrame, whole: pd.DataFrame, device: str
) -> tuple[list[WorkSample], np.ndarray, pd.Series, list[str]]:
    """Returns samples, the network of each, whole latencies by network, and networks in both."""
    samples = from_frame(operations.assign(latency_ns=operations[device]))
    models = operations.groupby("sample")["model"].first().to_numpy()
    times = whole[f"{device}|gpu|float"].dropna()
    return samples, models, times, sorted(set(models.tolist()) & set(times.index))


def stated(samples: Sequence[WorkSample]) -> TargetModel:
    """Returns the model of some samples with its error band."""
    return fit_with_errors(samples).model


Judged = tuple[float, float | None]
"""Error predicted / measured - 1, and the stated error."""


def unseen_networks(samples: Sequence[WorkSample], seeds: int, fit: Fit) -> list[Judged]:
    """Judges whole networks of a CPU, each by a model of the others' sums."""
    judgements: list[Judged] = []
    for seed in range(seeds):
        for shown, held in folded([str(i) for i in range(len(samples))], NETWORK_FOLDS, seed):
            model = fit([samples[int(i)] for i in shown])
            judgements += [judge(model, samples[int(i)]) for i in held]
    return judgements


def unseen_gpu_networks(operations: pd.DataFrame, whole: pd.DataFrame, device: str) -> list[Judged]:
    """Judges whole networks of a GPU, by operations."""
    samples, models, times, names = gpu_table(operations, whole, device)
    judgements: list[Judged] = []
    spread = None
    for shown, held in folded(names, NETWORK_FOLDS, 0):
        model = gpu_model(samples, models, times, shown)
        if spread is None:  # of networks that the first fold's model has not seen
            spread = whole_spread(samples, models, times, shown)
        model = with_whole(model, spread)
        for n in held:
            judgements.append(
                judge(model, WorkSample(works_of(samples, models, n), float(times[n]), 1.0))
            )
    return judgements


def whole_spread(
    samples: Sequence[WorkSample], models: np.ndarray, times: pd.Series, names: Sequence[str]
) -> float:
    """Returns the error of whole networks beyond their operations' errors, out of fold: the
    standard deviation of a logarithm that puts nine of ten inside their band."""
    spreads = []
    for shown, held in folded(names, 4, 1):
        model = gpu_model(samples, models, times, shown)
        for n in held:
            sample = WorkSample(works_of(samples, models, n), float(times[n]), 1.0)
            off, band = judge(model, sample)
            if band is not None:
                spreads.append((abs(np.log1p(off)) / NORMAL) ** 2 - (np.log1p(band) / NORMAL) ** 2)
    return float(np.sqrt(max(np.quantile(spreads, 0.9), 0.0)))


def with_whole(model: TargetModel, spread: float) -> TargetModel:
    """Returns the model with an error common to all operations."""
    assert model.errors is not None
    return replace(model, errors=replace(model.errors, whole=spread))


def judge(model: TargetModel, sample: WorkSample) -> Judged:
    return model.sample_ns(sample) / sample.ns - 1, model.uncertainty(sample.works)


def show(head: str, found: Sequence[Judged]) -> tuple[float, float]:
    """Prints one line; returns the share within 10 % and the bands' coverage."""
    size = np.abs([error for error, _ in found])
    stated = [(abs(error), band) for error, band in found if band is not None]
    covered = float(np.mean([error <= band for error, band in stated])) if stated else float("nan")
    middle = float(np.median([band for _, band in stated])) if stated else float("nan")
    within = float((size <= 0.1).mean())
    print(
        f"{head:44s} {len(size):5d}  {np.median(size):6.1%}  {size.mean():6.1%}  {within:6.1%}"
        f"   {covered:6.1%}  ±{middle:6.1%}   {len(size) - len(stated):4d}",
        flush=True,
    )
    return within, covered


HEAD = f"{'':44s}     n  median    mean  within   covered     band  unknown"


def networks(operations: pd.DataFrame, whole: pd.DataFrame, seeds: int) -> list[str]:
    """Checks the bars of whole networks; returns the missed ones."""
    missed = []
    print(
        f"\nnetworks that the fit has not seen ({NETWORK_FOLDS} folds), phones whose others it has"
    )
    print(HEAD)
    sums = {c: whole_samples(operations, whole[c], calls=0.0) for c in CPU_COLUMNS}
    cpus = [unseen_networks(row, seeds, stated) for row in sums.values()]
    for column, row in zip(sums, cpus, strict=True):
        show(column, row)
    missed += bars("all CPUs", [one for row in cpus for one in row], 0.95)
    gpus = []
    for device in PHONES:
        gpus.append(unseen_gpu_networks(operations, whole, device))
        show(f"{device} gpu, by operations", gpus[-1])
    missed += bars("all GPUs", [one for row in gpus for one in row], 0.85)
    print(f"\nphones that the fit has not seen: {SISTER_ROWS} networks of their own and a sister")
    print("phone's model of the same networks; the others are asked for")
    print(HEAD)
    every: list[Judged] = []
    for column, samples in sums.items():
        of_one: list[Judged] = []
        for other in (c for c in CPU_COLUMNS if c.split("|")[0] != column.split("|")[0]):
            order = np.random.default_rng(0).permutation(len(samples)).tolist()
            shown, held = order[:SISTER_ROWS], order[SISTER_ROWS:]
            sister = fit_samples([sums[other][i] for i in shown])
            model = fit_with_errors([samples[i] for i in shown], sister).model
            of_one += [judge(model, samples[i]) for i in held]
        show(f"{column}, from each other phone", of_one)
        every += of_one
    missed += bars("all CPUs", every, 0.75)
    every = []
    for device in PHONES:
        of_one = []
        samples, models, times, names = gpu_table(operations, whole, device)
        for other in (d for d in PHONES if d != device):
            hers = gpu_table(operations, whole, other)
            order = [names[i] for i in np.random.default_rng(0).permutation(len(names))]
            shown, held = order[:SISTER_ROWS], order[SISTER_ROWS:]
            sister = gpu_model(*hers[:3], [n for n in shown if n in hers[2].index])
            rows = [WorkSample(works_of(samples, models, n), float(times[n]), 1.0) for n in shown]
            model = fit_with_errors(rows, sister).model
            for n in held:
                of_one.append(
                    judge(model, WorkSample(works_of(samples, models, n), float(times[n]), 1.0))
                )
        show(f"{device} gpu, from each other phone", of_one)
        every += of_one
    return missed + bars("all GPUs", every, 0.6)


def bars(head: str, found: Sequence[Judged], share: float) -> list[str]:
    """Returns the missed ones of two bars: a share within 10 %, and bands that hold 85 to 97 %."""
    within, covered = show(f"{head}: {share:.0%} within 10 % wanted", found)
    return [head] * (within < share) + [f"{head}, bands"] * (not 0.85 <= covered <= 0.97)


def describe(operations: pd.DataFrame, whole: pd.DataFrame, folder: Path) -> None:
    """Writes the description of each phone in :data:`PHONES`."""
    folder.mkdir(parents=True, exist_ok=True)
    for device, name in PHONES.items():
        on_cpu = whole_samples(operations, whole[f"{device}|1large|float"], calls=0.0)
        samples, models, times, names = gpu_table(operations, whole, device)
        gpu = gpu_model(samples, models, times, names)
        gpu = with_whole(gpu, whole_spread(samples, models, times, names))
        target = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)
        described = Description(
            name=device,
            description=f"{name}: one large core, and the GPU as TFLite's GPU delegate uses it",
            origin=f"fitted to {SOURCE}: whole models on {device}|1large|float, operations on its"
            " GPU, scaled to whole models on it",
            targets={CPU: fit_with_errors(on_cpu).model, target: gpu},
            rows={CPU: len(on_cpu), target: len(samples)},
        )
        (folder / f"{device}.json").write_text(described.to_json(), encoding="utf-8")
        print(f"{device}: GPU invocation {gpu.invocation_ns / 1e6:.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--describe", type=Path, metavar="DIR")
    parser.add_argument("--networks", action="store_true", help="nothing but whole networks")
    chosen = parser.parse_args()
    operations, whole = usc_operations(chosen.folder), usc_whole(chosen.folder)
    if chosen.describe:
        describe(operations, whole, chosen.describe)
        return
    print(f"{platform.machine()}, numpy {np.__version__}, seeds 0 to {chosen.seeds - 1}")
    if chosen.networks:
        ended(networks(operations, whole, chosen.seeds))
    print(
        f"fitted to {SHARE:.0%}, tested on the rest: median error, share within 10 %, share below"
    )
    print("the error that the model states for nine of ten")
    print(f"{'operations':34s}  rows    ours                 rate    ours          rate   covered")
    missed: list[str] = []

    def judged(samples: list[WorkSample], groups: np.ndarray, head: str, bar: float) -> None:
        if compare(samples, groups, chosen.seeds, head)[0] > bar:
            missed.append(head)

    for device, frame in tophub(chosen.folder).items():
        bar = CPU_BAR if " cpu " in device else GPU_BAR
        judged(from_frame(frame), np.arange(len(frame)), f"TopHub {device}", bar)
    blocks = from_frame(pixel1_blocks(chosen.folder))
    judged(blocks, np.arange(len(blocks)), "Pixel 1 cpu, blocks", CPU_BAR)
    for device in (d for d in GPUS if d in operations):
        samples = from_frame(operations.assign(latency_ns=operations[device]))
        judged(samples, np.arange(len(samples)), f"{device} gpu", GPU_BAR)
        judged(samples, configurations(samples), f"{device} gpu, configurations", GPU_BAR)
    print("\nwhole models fitted to a fifth of them as sums of their operations")
    for column in CPU_COLUMNS:
        whole_models = whole_samples(operations, whole[column], calls=0.0)
        if compare(whole_models, np.arange(len(whole_models)), chosen.seeds, column)[1] < WHOLE_BAR:
            missed.append(column)
    print("\nwhole models from operations: share within 10 %, in brackets of a single rate")
    print(f"{'':34s}  models  of measured sums          of end to end (a fifth sets two terms)")
    for device in (d for d in GPUS if d in operations):
        if sums(operations, device, whole, chosen.seeds) < WHOLE_BAR:
            missed.append(f"{device} gpu, whole models")
    ended(missed + networks(operations, whole, min(chosen.seeds, 3)))


def ended(missed: Sequence[str]) -> None:
    """Prints the last line, and exits."""
    print(f"missed: {', '.join(missed)}" if missed else "all bars are met")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
