"""Profiles of networks with branches, heads and attention: planning, measurements, plans.

    python benchmarks/bench_plan_zoo.py [--models vit,yolo] [--phones sim:npu-phone]
        [--skip-former] [--exhaustive] [--json FILE]

Each network of examples/zoo.py, and MobileNetV2, is profiled on each phone with a new cost table,
planned, and run with its baselines, all in its own process. Measurements are those that reached the
device. Plan and rule are end-to-end times of `run`, of the partitioner's plan and of the fastest
baseline; the ratios are the rule's latency divided by the plan's, as predicted and as run. The
second table has backbones with heads on 3 to 8 taps.

Below each is commit 8967612 on the same file: its tree is extracted once into build/former, where
its figures are kept for the next run. Both get 60 s of the process's own time, which is for
reading, converting and planning (agents measure in theirs), and 2 GB beyond the imports. An attempt
that does not finish says so, with the measurements made until then as ">=".

`--exhaustive` also measures every unit under every preference in addition to the profile, plans
again, and runs both plans whole, 300 times each, to show the loss by fewer measurements. Latencies
are simulated; seconds are this machine's.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import json
import math
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import nnapi_prof
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.report import PlanRun
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.unit import UnitGraph

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PHONES = ROOT / "device_agent" / "emulator" / "phones"
FORMER = "8967612"
FORMER_TREE = ROOT / "build" / "former"
FORMER_FIGURES = FORMER_TREE / "zoo.json"

NETWORKS = (
    *("mobilenet_v2", "mobilenet_v3_large", "resnet50", "vit"),
    *("bert", "decoder", "ssdlite", "yolo"),
)
BACKBONES = tuple(f"backbone_{taps}" for taps in range(3, 9))
OWN_SECONDS = 60
OWN_BYTES = 2 << 30
NO_END = "no end"
OUT_OF_MEMORY = 3
"""Exit code of a process that ran out of memory."""

RUNS_WHOLE = 300
LEAST_PLANNING_S = 3.0
PLANNING_SHARE = 0.1
"""Largest planning time as a share of measuring, or :data:`LEAST_PLANNING_S`."""
FEWER = 2 / 3
"""Largest share of the former's measurements."""
CLOSE = 1.01
"""Largest ratio of a plan, run whole, to the one from measuring everything."""
BETTER = 1.10
"""Least ratio of the fastest rule to the plan, in the median of the backbones."""


@dataclass(frozen=True)
class Figures:
    """Results of profile, partition and run of a network on a phone. Latencies are simulated."""

    measuring_s: float
    planning_s: float
    predicted_ms: float
    predicted_ratio: float
    """Prediction of the fastest rule divided by the plan's."""
    segments: int
    proof: str
    plan_ms: float
    """Median of the plan, end to end; ``rule_ms`` is the same of the rule."""
    rule: str
    """Baseline that ran fastest."""
    rule_ms: float
    agrees: bool
    """Whether every output agrees with eager PyTorch's."""
    exhaustive_ratio: float | None = None
    """Plan's latency divided by that of the plan from measuring everything, both run whole."""

    @property
    def ratio(self) -> float:
        """Time of the fastest rule divided by the plan's."""
        return self.rule_ms / self.plan_ms

    @property
    def plans_in_time(self) -> bool:
        return self.planning_s <= max(LEAST_PLANNING_S, PLANNING_SHARE * self.measuring_s)


@dataclass(frozen=True)
class Attempt:
    """Result of a network on a phone, from its own process."""

    measurements: int
    figures: Figures | None
    end: str = ""
    """Reason why there are no figures: :data:`NO_END`, or an error."""

    @property
    def conclusive(self) -> bool:
        """Whether another attempt would have the same result."""
        return self.figures is not None or self.end.startswith(NO_END)


@dataclass(frozen=True)
class Row:
    """A network on a phone, now and formerly."""

    network: str
    phone: str
    units: int
    present: Attempt
    former: Attempt | None

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yields the lines of the table, as in :data:`HEADS`."""
        network = (self.network, self.phone, str(self.units))
        yield (*network, "now", *cells_of(self.present))
        if self.former is not None:
            yield (*network, FORMER, *cells_of(self.former))


HEADS = (
    *("network", "phone", "units", "version", "measuring s", "planning s", "measurements"),
    *("predicted ms", "rule / plan", "segments", "proof", "plan run, ms", "fastest rule run, ms"),
    *("rule / plan, run", "plan / exhaustive, run"),
)


def cells_of(attempt: Attempt) -> tuple[str, ...]:
    """Returns the cells after the version."""
    figures = attempt.figures
    if figures is None:
        return ("–", attempt.end, f">= {attempt.measurements}", *["–"] * 8)
    differs = "" if figures.agrees else ", outputs DIFFER"
    exhaustive = figures.exhaustive_ratio
    return (
        f"{figures.measuring_s:.1f}",
        f"{figures.planning_s:.2f}",
        str(attempt.measurements),
        f"{figures.predicted_ms:.3f} simulated",
        f"{figures.predicted_ratio:.3f}",
        str(figures.segments),
        figures.proof,
        f"{figures.plan_ms:.3f} simulated{differs}",
        f"{figures.rule_ms:.3f} simulated ({figures.rule})",
        f"{figures.ratio:.3f}",
        "–" if exhaustive is None else f"{exhaustive:.4f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join((*NETWORKS, *BACKBONES)))
    parser.add_argument("--phones", default="sim:npu-phone,sim:gpu-phone")
    parser.add_argument("--skip-former", action="store_true")
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--json", type=Path, help="Write the rows to this file, too.")
    parser.add_argument("--attempt", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attempt is not None:
        attempt_here(*options.attempt, exhaustive=options.exhaustive)
        return
    names = options.models.split(",")
    if not options.skip_former:
        extract_former()
    rows: list[Row] = []
    try:
        for table in (
            [name for name in names if not name.startswith("backbone_")],
            [name for name in names if name.startswith("backbone_")],
        ):
            if table:
                show_head()
            for name in table:
                for row in rows_of(name, options):
                    rows.append(row)
                    for cells in row.lines():
                        print(f"| {' | '.join(cells)} |", flush=True)
                    if options.json is not None:
                        documents = [dataclasses.asdict(row) for row in rows]
                        options.json.write_text(json.dumps(documents, indent=1))
    except KeyboardInterrupt:
        print("\ninterrupted")
        sys.exit(130)
    finally:
        bars(rows)


def show_head() -> None:
    print(f"\n| {' | '.join(HEADS)} |")
    print("|---" * len(HEADS) + "|", flush=True)


def rows_of(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each phone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.pt"
        stated = save(name, path)
        graph = nnapi_prof.load(path, stated).graph
        for phone in options.phones.split(","):
            former = None
            if not options.skip_former:
                former = former_attempt(fingerprint(graph, phone), path, stated, phone)
            present = attempt(ROOT, path, stated, phone, options.exhaustive)
            yield Row(name, phone, len(graph.units), present, former)


def save(name: str, path: Path) -> str:
    """Saves a network; returns its input as ``--input`` takes it."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    if name == "mobilenet_v2":
        return "x".join(map(str, importlib.import_module("models").save(name, path)))
    zoo = importlib.import_module("zoo")
    if name not in zoo.MODELS:
        sys.exit(f"{name} is not in the zoo, which has {', '.join(zoo.MODELS)}, mobilenet_v2")
    zoo.save(name, path)
    return str(zoo.MODELS[name].input)


# ---- a process for each attempt ------------------------------------------------------------------


def attempt(tree: Path, model: Path, stated: str, phone: str, exhaustive: bool = False) -> Attempt:
    """Profiles, plans and runs a network with the nnapi_prof of a checkout, within the limits."""
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "costs.sqlite", Path(folder) / "figures.json"
        command = [sys.executable, __file__, "--attempt", model, stated, phone, table, out]
        process = subprocess.run(
            [*map(str, command), *["--exhaustive"] * exhaustive],
            env=os.environ | {"PYTHONPATH": str(tree)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        measurements = count_measurements(table)
        if process.returncode == 0:
            return Attempt(measurements, Figures(**json.loads(out.read_text())))
    return Attempt(measurements, None, why_ended(process))


def why_ended(process: subprocess.CompletedProcess[str]) -> str:
    if process.returncode == -signal.SIGPROF:
        return f"{NO_END} ({OWN_SECONDS} s)"
    if process.returncode == OUT_OF_MEMORY:
        return f"{NO_END} ({OWN_BYTES >> 30} GB)"
    lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    return f"failed: {lines[-1]}"


def count_measurements(table: Path) -> int:
    """Counts rows of a cost table that reached the device: a refused lowering has no operations."""
    with CostStore(table) as store:
        return sum(row["n_operations"] > 0 for row in store.rows())


def attempt_here(
    path: str, stated: str, phone: str, table: str, out: str, *, exhaustive: bool
) -> None:
    """Writes the figures of a network on a phone to ``out``; limits may end the process."""
    assert Path(nnapi_prof.__file__).is_relative_to(os.environ["PYTHONPATH"]), nnapi_prof.__file__
    model = nnapi_prof.load(path, inputs=[stated])
    _ = model.program  # read before the limits hold
    (data_kb,) = (
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmData:")
    )
    most = (data_kb << 10) + OWN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        costs, planned = profiled_plan(model, phone, table, every_preference=False)
        figures = figures_of(costs, planned)
        if exhaustive:
            shutil.copy(table, f"{table}-all")
            _, best = profiled_plan(model, phone, f"{table}-all", every_preference=True)
            ratio = run_whole(planned, best.plan)
            figures = dataclasses.replace(figures, exhaustive_ratio=ratio)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    Path(out).write_text(json.dumps(dataclasses.asdict(figures)))


def profiled_plan(
    model: Model, phone: str, table: str, *, every_preference: bool
) -> tuple[Costs, ModelPlan]:
    """Measures and plans; SIGPROF ends this process after :data:`OWN_SECONDS` of its own time."""
    signal.setitimer(signal.ITIMER_PROF, OWN_SECONDS)
    costs = nnapi_prof.profile(
        model,
        phone,
        costs=table,
        options=nnapi_prof.MeasureOptions(every_preference=every_preference),
    )
    planned = nnapi_prof.partition(model, costs, verify=False)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return costs, planned


def figures_of(costs: Costs, planned: ModelPlan) -> Figures:
    """Runs plan and baselines; returns the figures."""
    assert costs.outcome is not None
    result = nnapi_prof.run(planned)
    own, *rules = result.run.runs
    fastest = min(rules, key=milliseconds)
    predicted = min(baseline.predicted_ns for baseline in planned.baselines)
    return Figures(
        measuring_s=costs.outcome.spent_s["measure"],
        planning_s=costs.outcome.spent_s["plan"],
        predicted_ms=planned.latency_ms,
        predicted_ratio=predicted / planned.plan.predicted_ns,
        segments=len(planned.plan.segments),
        proof=proof_words(planned.plan),
        plan_ms=milliseconds(own),
        rule=fastest.plan.name,
        rule_ms=milliseconds(fastest),
        agrees=result.agrees,
    )


def proof_words(plan: Plan) -> str:
    """Returns a plan's proof as text; plans of the former version have none."""
    proof = getattr(plan, "proof", None)
    if proof is None:
        return "–"
    words = str(proof.kind.value).replace("_", " ")
    return f"{words} {proof.gap:.2%}" if proof.gap else words


def run_whole(planned: ModelPlan, best: Plan) -> float:
    """Returns the plan's time divided by another plan's, both run whole."""
    both = dataclasses.replace(planned, plans=(planned.plan, best), converted=None)
    own, other = nnapi_prof.run(both, runs=RUNS_WHOLE).run.runs
    return milliseconds(own) / milliseconds(other)


def milliseconds(run: PlanRun) -> float:
    """Returns the median, end to end; infinite where the plan did not run."""
    return math.inf if run.median_ns is None else run.median_ns / 1e6


# ---- the former version --------------------------------------------------------------------------


def extract_former() -> None:
    """Extracts the tree of the former commit, once."""
    if (FORMER_TREE / "partition").exists():
        return
    command = ["git", "-C", str(ROOT), "archive", FORMER]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tree:
        tree.extractall(FORMER_TREE, filter="tar")


def former_attempt(key: str, path: Path, stated: str, phone: str) -> Attempt:
    """Returns the former version's attempt, from an earlier run where that had this case."""
    cache = json.loads(FORMER_FIGURES.read_text()) if FORMER_FIGURES.exists() else {}
    if (fields := cache.get(key)) is not None:
        figures = None if fields["figures"] is None else Figures(**fields["figures"])
        return Attempt(fields["measurements"], figures, fields["end"])
    former = attempt(FORMER_TREE, path, stated, phone)
    if former.conclusive:
        cache[key] = dataclasses.asdict(former)
        FORMER_FIGURES.write_text(json.dumps(cache, indent=1))
    return former


def fingerprint(graph: UnitGraph, phone: str) -> str:
    """Returns a hash of everything that affects a network's time on a phone; weights do not."""
    description = (PHONES / f"{phone.removeprefix('sim:')}.json").read_text()
    units = [(unit.signature, graph.predecessors(unit.index)) for unit in graph.units]
    return hashlib.sha256(repr((units, description)).encode()).hexdigest()


# ---- all rows ------------------------------------------------------------------------------------


def bars(rows: Sequence[Row]) -> None:
    """Prints the number of rows that meet each bar."""
    print()
    if not rows:
        return
    pairs = [(row, row.present.figures) for row in rows if row.present.figures is not None]
    print(f"came to an end: {len(pairs)} of {len(rows)}")
    print(
        f"planning takes at most {LEAST_PLANNING_S:g} s or {PLANNING_SHARE:.0%} of measuring: "
        f"{sum(figures.plans_in_time for _, figures in pairs)} of {len(rows)}"
    )
    if compared := [(row.present, row.former) for row, _ in pairs if row.former is not None]:
        fewer = sum(now.measurements <= FEWER * then.measurements for now, then in compared)
        ended = sum(then.figures is not None for _, then in compared)
        shares = [now.measurements / then.measurements for now, then in compared]
        print(
            f"at most two thirds of the measurements of {FORMER}: {fewer} of {len(compared)}, "
            f"{statistics.median(shares):.2f} times as many in the median ({FORMER} came to an end "
            f"on {ended}, else its measurements until then count)"
        )
    if lost := [f.exhaustive_ratio for _, f in pairs if f.exhaustive_ratio is not None]:
        print(
            f"run whole within 1 % of the plan from measuring everything: "
            f"{sum(ratio <= CLOSE for ratio in lost)} of {len(lost)}, at most {max(lost):.4f}"
        )
    heads = [figures.ratio for row, figures in pairs if row.network in BACKBONES]
    if heads:
        print(
            f"backbones with heads: the fastest rule takes {statistics.median(heads):.3f} times as "
            f"long as the plan in the median (wanted {BETTER:.2f}), {min(heads):.3f} to "
            f"{max(heads):.3f} times, as run (simulated)"
        )
    print(f"load average of this machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
