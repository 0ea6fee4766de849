"""The partitioner on families of large graphs: plans, proofs, time and memory.

    python benchmarks/bench_partition.py [--family heads] [--seeds 20] [--no-former] [--cpu-clock]

Families are those of partition_networks.py, wide graphs (all costs simulated) and the graphs of a
device-placement paper (tests/partition/placement_graphs.py). Each case runs in its own process
(plan_one.py) with the time limit of its bar; the smaller of wall and CPU seconds counts, since
others use this machine too. "Gap" is the plan above the proven bound, 0 where it is optimal. Each
is compared with the search of commit 8967612, up to 60 CPU seconds or 2 GB; its tree is extracted
once into build/former, with its figures for the next run. Fails where a bar is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from partition_networks import cells_problem, decoder_problem, heads_problem  # noqa: E402
from plan_one import write_problem  # noqa: E402

from nnapi_prof.partition.problem import Problem  # noqa: E402
from tests.partition.networks import wide_problem  # noqa: E402
from tests.partition.placement_graphs import names, placement_problem  # noqa: E402

FORMER = "8967612"
FORMER_TREE = REPO / "build" / "former"
FORMER_FIGURES = FORMER_TREE / "figures.json"
FORMER_SECONDS = 60.0
FORMER_MB = 2_000.0
SLACK = 1.05
"""Factor by which a time may exceed its limit."""
PROVEN = 1e-6
"""Largest gap that counts as proven."""


@dataclass(frozen=True)
class Bar:
    """Bars of a family."""

    median_gap: float
    seconds: float = 10.0
    """Bar of the time, and the partitioner's time limit."""
    worst_gap: float | None = None
    megabytes: float | None = None


@dataclass(frozen=True)
class Family:
    group: str
    name: str
    draw: Callable[[int], Problem]
    """Function from a seed to a problem."""
    n_seeds: int
    bar: Bar
    max_regions: int | None = None
    """Largest number of regions in plans; None for any number."""


def families() -> Iterator[Family]:
    # The median bars come from the study that defines the graphs, whose prototypes took 1 to 18 s.
    for structure, n, n_targets, gap in (
        ("stem", 200, 2, 5e-5),
        ("stem", 1000, 2, 5e-5),
        ("stem", 5000, 2, 5e-5),
        ("chains", 400, 2, 4e-4),
        ("blocks", 400, 2, 0.0038),
        ("blocks", 400, 3, 0.0174),
        ("blocks", 400, 4, 0.0408),
        ("random", 400, 2, 0.0115),
        ("random", 400, 3, 0.0241),
        ("random", 400, 4, 0.0413),
        ("random", 1000, 2, 0.0149),
    ):
        draw = partial(wide_problem, structure, n, n_targets)
        yield Family("wide", f"{structure} {n} x {n_targets}", draw, 20, Bar(gap))
    for structure, n, n_targets, gap in (("random", 5_000, 3, 0.04), ("stem", 20_000, 2, 1e-3)):
        draw = partial(wide_problem, structure, n, n_targets)
        bar = Bar(gap, worst_gap=gap, megabytes=1_000.0)
        yield Family("large", f"{structure} {n} x {n_targets}", draw, 3, bar)
    for n_targets in (2, 3):
        draw = partial(wide_problem, "blocks", 200, n_targets)
        bar = Bar(PROVEN, seconds=5.0, worst_gap=PROVEN)
        name = f"blocks 200 x {n_targets}, 4 regions"
        yield Family("limited", name, draw, 5, bar, max_regions=4)
    draw = partial(wide_problem, "random", 30, 4)
    yield Family("small", "random 30 x 4", draw, 10, Bar(PROVEN))
    for n in (2_000, 10_000):
        bar = Bar(1e-3, seconds=5.0, worst_gap=1e-3)
        yield Family("wide", f"skips {n} x 4", partial(wide_problem, "skips", n, 4), 20, bar)
    for name in names():
        bar = Bar(PROVEN, seconds=1.0, worst_gap=PROVEN)
        label = name.removesuffix(".json").replace("Graphs/", " ")
        yield Family("placement", label, partial(_placement, name), 1, bar)
    for n_taps in range(1, 9):
        bar = Bar(0.01, seconds=2.0, worst_gap=0.01, megabytes=300.0)
        yield Family("heads", f"heads on {n_taps} taps", partial(heads_problem, n_taps), 3, bar)
    for style in ("nasnet", "pnasnet"):
        bar = Bar(0.0025, worst_gap=0.05)
        yield Family("cells", style, partial(cells_problem, style), 10, bar)
    yield Family("decoder", "decoder", decoder_problem, 10, Bar(PROVEN, worst_gap=PROVEN))


def _placement(name: str, seed: int) -> Problem:
    return placement_problem(name)


@dataclass(frozen=True)
class Figures:
    """Figures of one problem; ``end`` is empty where the solver found a plan."""

    end: str = ""
    """Reason why there is no plan: ``60 s``, ``2,000 MB``, or an error."""
    ns: float = 0.0
    bound_ns: float = 0.0
    kind: str = ""
    segments: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    found_by: str = ""
    bounded_by: str = ""
    default_segments: int = 0
    default_ns: float = 0.0

    @property
    def gap(self) -> float:
        if self.kind == "exact" or self.ns <= self.bound_ns:
            return 0.0
        return self.ns / self.bound_ns - 1 if self.bound_ns > 0 else float("inf")

    @property
    def seconds(self) -> float:
        return min(self.wall_s, self.cpu_s)


def plan(command: Sequence[str], seconds: float, megabytes: float) -> Figures:
    """Runs plan_one.py, and stops it at too many CPU seconds or too much memory."""
    worker = [sys.executable, str(REPO / "benchmarks" / "plan_one.py"), *command]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(worker, stdout=subprocess.PIPE, stderr=errors, text=True)
        end = ""
        while not end and process.poll() is None:
            time.sleep(0.02)
            cpu_s, resident_mb = usage(process.pid)
            if cpu_s > seconds:
                end = f"{seconds:,.0f} s"
            elif resident_mb > megabytes:
                end = f"{megabytes:,.0f} MB"
        if end:
            process.kill()
        output = process.communicate()[0]
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    if end or process.returncode:
        return Figures(end or (lines or [f"exit code {process.returncode}"])[-1])
    return Figures(**json.loads(output))


def usage(pid: int) -> tuple[float, float]:
    """Returns CPU seconds and resident megabytes of a process; 0 where it has just ended."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0, 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), pages * resource.getpagesize() / 1e6


def extract_former() -> None:
    """Extracts the tree of the former commit, once."""
    if (FORMER_TREE / "partition").exists():
        return
    archive = subprocess.run(
        ["git", "-C", str(REPO), "archive", FORMER], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tree:
        tree.extractall(FORMER_TREE, filter="tar")


def plan_formerly(file: Path) -> Figures:
    """Returns the former search's figures, from the last run if that had this problem."""
    figures = json.loads(FORMER_FIGURES.read_text()) if FORMER_FIGURES.exists() else {}
    key = hashlib.sha256(file.read_bytes()).hexdigest()
    if key not in figures:
        command = ["former", str(file), "--tree", str(FORMER_TREE)]
        figures[key] = vars(plan(command, FORMER_SECONDS, FORMER_MB))
        FORMER_FIGURES.write_text(json.dumps(figures, indent=1))
    return Figures(**figures[key])


@dataclass
class Row:
    """Figures of a family, one for each seed; the former search's for the first seeds."""

    family: Family
    n: int
    n_targets: int
    present: list[Figures]
    former: list[Figures]

    @property
    def plans(self) -> list[Figures]:
        return [figures for figures in self.present if not figures.end]

    def misses(self) -> Iterator[str]:
        """Yields the missed bars, as text."""
        bar = self.family.bar
        yield from sorted({f"no plan: {figures.end}" for figures in self.present if figures.end})
        if not self.plans:
            return
        gaps = [figures.gap for figures in self.plans]
        seconds = max(figures.seconds for figures in self.plans)
        megabytes = max(figures.peak_mb for figures in self.plans)
        if statistics.median(gaps) > bar.median_gap:
            yield f"median gap, {percent(bar.median_gap)} wanted"
        if bar.worst_gap is not None and max(gaps) > bar.worst_gap:
            yield f"worst gap, {percent(bar.worst_gap)} wanted"
        if seconds > bar.seconds * SLACK:
            yield f"{seconds:.1f} s, {bar.seconds:g} wanted"
        if bar.megabytes is not None and megabytes > bar.megabytes:
            yield f"{megabytes:,.0f} MB, {bar.megabytes:,.0f} wanted"

    def cells(self) -> Iterator[str]:
        yield self.family.name
        yield f"{self.n:,}"
        yield f"{len(self.present)}"
        if self.plans:
            gaps = [figures.gap for figures in self.plans]
            wall = [figures.wall_s for figures in self.plans]
            yield f"{percent(statistics.median(gaps))}, {percent(max(gaps))}"
            yield counts(figures.kind for figures in self.plans)
            yield counts(figures.found_by for figures in self.plans)
            yield f"{statistics.median(wall):.2f}, {max(wall):.2f}"
            yield f"{statistics.median(figures.cpu_s for figures in self.plans):.2f}"
            yield f"{max(figures.peak_mb for figures in self.plans):,.0f}"
        else:
            yield from [""] * 6
        yield self.bar_words() if self.present else ""
        yield from self.former_cells()

    def bar_words(self) -> str:
        bar, words = self.family.bar, []
        words.append(percent(bar.median_gap))
        if bar.worst_gap is not None and bar.worst_gap != bar.median_gap:
            words.append(f"worst {percent(bar.worst_gap)}")
        words.append(f"{bar.seconds:g} s")
        if bar.megabytes is not None:
            words.append(f"{bar.megabytes:,.0f} MB")
        missed = list(self.misses())
        return ", ".join(words) + (f": **missed** ({'; '.join(missed)})" if missed else ": met")

    def former_cells(self) -> Iterator[str]:
        """Yields the former search's gap, time, memory, and latency over the present plan's."""
        solved = [figures for figures in self.former if not figures.end]
        endless = counts(figures.end for figures in self.former if figures.end)
        never = f"no end: {endless}" if endless else ""
        if not solved:
            yield from (never, "", "", "")
            return
        gap = percent(statistics.median(figures.gap for figures in solved))
        yield f"{gap}; {never}" if never else gap
        yield f"{statistics.median(figures.seconds for figures in solved):.2f}"
        yield f"{max(figures.peak_mb for figures in solved):,.0f}"
        ratios = [
            former.ns / present.ns
            for former, present in zip(self.former, self.present, strict=False)
            if not former.end and present.ns > 0
        ]
        yield f"{statistics.median(ratios):.4f}" if ratios else ""


HEADER = (
    *("graphs", "units", "seeds", "gap median, worst", "proof", "found by"),
    *("wall s median, worst", "CPU s", "peak MB", "bar", "former gap", "former s", "former MB"),
    "former / present latency",
)


def percent(gap: float) -> str:
    return f"{gap:.4%}" if 0 < gap < 1e-4 else f"{gap:.2%}"


def counts(words: Iterable[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).most_common())


def measure(family: Family, options: argparse.Namespace, folder: Path) -> Row:
    """Measures every seed of a family."""
    row = Row(family, 0, 0, [], [])
    for seed in range(min(family.n_seeds, options.seeds)):
        problem = family.draw(seed)
        row.n, row.n_targets = max(row.n, problem.n), len(problem.targets)
        file = folder / "problem.json"
        write_problem(problem, file)
        if options.present:
            limit = min(options.seconds, family.bar.seconds)
            command = ["present", str(file), "--seconds", str(limit)]
            command += ["--cpu-clock"] * options.cpu_clock
            if family.max_regions is not None:
                command += ["--max-regions", str(family.max_regions)]
            row.present.append(plan(command, 4 * limit + 30, 8_000.0))
        if options.former and family.max_regions is None and seed < options.former_seeds:
            row.former.append(plan_formerly(file))
    return row


def first_call(folder: Path) -> Figures:
    """Runs a small problem first, to trigger one-time compilation."""
    file = folder / "first.json"
    write_problem(wide_problem("random", 40, 3, 0), file)
    return plan(["present", str(file)], 600.0, 8_000.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the partitioner finds, proves and takes.")
    groups = sorted({family.group for family in families()})
    parser.add_argument(
        "--family", help=f"only one of {', '.join(groups)}, or graphs whose name begins so"
    )
    parser.add_argument("--seeds", type=int, default=20, help="at most so many of each")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit, where the bar has more")
    parser.add_argument("--cpu-clock", action="store_true", help="limits are CPU seconds")
    parser.add_argument("--former", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--former-seeds", type=int, default=2)
    parser.add_argument("--present", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--figure", type=Path, default=Path("out/bench_partition.svg"))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.former:
            extract_former()
        if options.present:
            first = first_call(folder)
            print(f"The first call of all takes {first.end or f'{first.wall_s:.2f} s'}.\n")
        print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
        for family in families():
            if options.family in (None, family.group) or family.name.startswith(options.family):
                rows.append(measure(family, options, folder))
                print(f"| {' | '.join(rows[-1].cells())} |", flush=True)
    draw(rows, options.figure)
    print(f"\nLatencies are simulated; figure in {options.figure}")
    sys.exit(any(any(row.misses()) for row in rows))


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draws medians of seconds and gaps against units; those of the former search are hollow."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours: dict[str, str] = {}
    for row in rows:
        colour = colours.setdefault(row.family.group, f"C{len(colours)}")
        for figures, face in ((row.plans, colour), ([f for f in row.former if not f.end], "none")):
            if figures:
                seconds = statistics.median(f.seconds for f in figures)
                gap = statistics.median(f.gap for f in figures)
                axes[0].plot(row.n, seconds, "o", c=colour, mfc=face)
                axes[1].plot(row.n, 100 * gap, "o", c=colour, mfc=face)
    for group, colour in colours.items():
        axes[0].plot([], [], "o", c=colour, label=group)
    axes[0].set_yscale("log")
    axes[1].set_yscale("symlog", linthresh=0.01)
    for axis, label in zip(axes, ("time to plan, s", "plan above the bound, %"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("units")
        axis.set_ylabel(label)
        axis.grid(True, which="both", alpha=0.3)
    axes[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
