"""Draws the documentation's pictures from the code they are about.

    python docs/figures/draw.py

writes the SVG files beside this script; tests/docs/test_figures.py says when they are out of date.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from drawing import Drawing  # noqa: E402  (the line above makes it importable)
from example import CPU, GPU, NPU, Example, tutorials_network  # noqa: E402
from rooms import rooms  # noqa: E402

from nnapi_prof.graph.plan import Target  # noqa: E402
from nnapi_prof.partition.blocks import all_ideals, convex_sets, mask, members  # noqa: E402
from nnapi_prof.partition.search.tables import unit_shares  # noqa: E402

KINDS = {CPU: "cpu", NPU: "npu", GPU: "gpu"}
NAMES = {CPU: "CPU", NPU: "sim-npu", GPU: "sim-gpu"}

BRANCHES = ((), (0,), (0,), (1, 2))
"""A graph of four units, by what each reads: a, then b and c beside each other, then d."""
LETTERS = "abcd"


def units(example: Example) -> Drawing:
    """The network's units from top to bottom, coloured by where the plan has them."""
    graph, plan = example.graph, example.plan
    step, top = 34, 30
    drawing = Drawing(
        *(720, top + step * len(graph.units) + 10),
        "Units of the tutorial's network, and the plan",
        f"{len(graph.units)} units in order. The plan has {len(plan.segments)} segments: "
        + "; ".join(f"{NAMES[s.target]} runs {len(s.units)} units" for s in plan.segments)
        + ". Latencies are estimated.",
    )
    drawing.words(20, 18, "unit: operators that lower as one", "strong")
    drawing.words(430, 18, "segment of the plan (ms, estimated)", "strong")
    for u in graph.units:
        y = top + step * u.index
        kind = KINDS[example.target_of[u.index]]
        drawing.box(20, y, 370, 26, kind)
        drawing.words(30, y + 17, f"{u.label}", "on")
        drawing.words(382, y + 17, f"{len(u.nodes)}", "on small", "end")
        for p in graph.predecessors(u.index):
            before = top + step * p + 26
            if p == u.index - 1:
                drawing.line(205, before, 205, y, "thin")
            else:
                drawing.path(f"M20 {before - 13}C2 {before + 5} 2 {y - 5} 19 {y + 13}", "thin")
    for i, segment in enumerate(plan.segments):
        first, last = min(segment.units), max(segment.units)
        y0, y1 = top + step * first, top + step * last + 26
        drawing.box(430, y0, 12, y1 - y0, KINDS[segment.target])
        ms = segment.predicted_ns / 1e6
        drawing.words(452, (y0 + y1) / 2 + 4, f"{i}: {NAMES[segment.target]}, {ms:.3f} ms")
    drawing.words(382, 18, "nodes", "small", "end")
    return drawing


def ideals(_: Example) -> Drawing:
    """The lattice of ideals of a small graph, and one way through it."""
    ideal_sets = sorted(all_ideals(BRANCHES, 100) or ())
    n_convex = len(convex_sets(BRANCHES, 100) or ())
    drawing = Drawing(
        *(720, 330),
        "A graph of four units and its ideals",
        f"Unit a feeds b and c, both feed d. {len(ideal_sets)} sets are ideals: "
        + ", ".join(_name(ideal) for ideal in ideal_sets)
        + ". A plan is a way from the empty set to all units; the thick way runs a and b as one "
        "segment, then c and d as another.",
    )
    drawing.words(20, 20, "graph", "strong")
    at = {0: (110, 70), 1: (60, 150), 2: (160, 150), 3: (110, 230)}
    for unit, reads in enumerate(BRANCHES):
        for read in reads:
            (x0, y0), (x1, y1) = at[read], at[unit]
            drawing.arrow(x0 + (x1 - x0) * 0.25, y0 + 20, x1 - (x1 - x0) * 0.25, y1 - 20)
    for unit, (x, y) in at.items():
        drawing.circle(x, y, 18, "npu" if unit < 2 else "cpu")
        drawing.words(x, y + 5, LETTERS[unit], "on strong", "middle")
    drawing.words(20, 285, f"{n_convex} sets are convex; {{a, d}} is not:", "small")
    drawing.words(20, 302, "b lies between a and d.", "small")
    drawing.words(250, 20, "ideals: what can have run at some moment", "strong")
    place = {}
    for size in range(5):
        row = [ideal for ideal in ideal_sets if len(members(ideal)) == size]
        for i, ideal in enumerate(row):
            place[ideal] = (300 + 95 * size, 160 + 90 * (i - (len(row) - 1) / 2))
    way = [0, mask([0, 1]), mask([0, 1, 2, 3])]
    for ideal in ideal_sets:
        for unit in range(4):
            larger = ideal | 1 << unit
            if larger != ideal and larger in place:
                (x0, y0), (x1, y1) = place[ideal], place[larger]
                drawing.line(x0, y0, x1, y1, "thin")
    steps = [0, mask([0]), way[1], mask([0, 1, 2]), way[2]]
    for before, after in itertools.pairwise(steps):
        drawing.line(*place[before], *place[after], "way")
    for ideal, (x, y) in place.items():
        drawing.box(x - 36, y - 15, 72, 30, "cost" if ideal in way else "box")
        drawing.words(x, y + 5, _name(ideal), "on" if ideal in way else "", "middle")
    drawing.words(250, 285, "Violet: where one segment ends and the next begins.", "small")
    drawing.words(250, 302, "Difference of two of them: a convex region.", "small")
    return drawing


def _name(ideal: int) -> str:
    return "{" + ", ".join(LETTERS[u] for u in members(ideal)) + "}"


def costs(example: Example) -> Drawing:
    """What three convolutions take on the NPU: each alone, and as one region."""
    problem = example.problem
    k = problem.target_index(NPU)
    first = [u for u in range(problem.n) if example.target_of[u] == NPU][:3]
    rows = [(f"unit {u} alone", [u]) for u in first] + [("the three as one region", first)]
    alone = sum(problem.segment_ns([u], k) for u in first) / 1e6
    whole = problem.segment_ns(first, k) / 1e6
    drawing = Drawing(
        *(720, 250),
        "A region's latency is not the sum of its units timed alone",
        f"On sim-npu, units {', '.join(map(str, first))} take {alone:.2f} ms one by one and "
        f"{whole:.2f} ms as one region: the invocation is paid once, and values between them do "
        "not cross. Estimated.",
    )
    head = f"sim-npu: one by one {alone:.2f} ms, together {whole:.2f} ms, estimated"
    drawing.words(20, 20, head, "strong")
    scale = 460 / max(problem.segment_ns(units_, k) for _, units_ in rows)
    for i, (name, units_) in enumerate(rows):
        y = 40 + 38 * i
        drawing.words(20, y + 18, name)
        entering, leaving = problem.boundary_bytes(units_)
        x = 200.0
        parts = [
            (problem.overhead_ns[k], "cost"),
            (entering * problem.in_ns_per_byte[k] + leaving * problem.out_ns_per_byte[k], "gpu"),
            (problem.unit_ns[units_, k].sum(), "npu"),
        ]
        for ns, kind in parts:
            drawing.box(x, y, ns * scale, 26, kind)
            x += ns * scale
        drawing.words(x + 6, y + 18, f"{problem.segment_ns(units_, k) / 1e6:.2f} ms", "small")
    legend = (
        ("cost", "invocation"),
        ("gpu", "transfer of what crosses"),
        ("npu", "units' own work"),
    )
    for i, (kind, text) in enumerate(legend):
        drawing.box(20 + 190 * i, 210, 16, 16, kind)
        drawing.words(42 + 190 * i, 223, text, "small")
    return drawing


def plans(example: Example) -> Drawing:
    """The plan, its baselines and the lower bound as bars."""
    bound = unit_shares(example.problem).sum() / 1e6
    shown = [p for p in (example.plan, *example.baselines) if "nnapi-reference" not in p.name]
    words = {p.name: p.predicted_ns / 1e6 for p in shown}
    drawing = Drawing(
        *(720, 60 + 30 * len(words)),
        "The plan beside what one would do without it",
        "Latencies in ms, estimated: "
        + ", ".join(f"{name} {ms:.2f}" for name, ms in words.items())
        + f". No plan can be faster than {bound:.2f} ms.",
    )
    drawing.words(20, 20, "latency in ms on npu-phone, estimated", "strong")
    scale = 400 / max(words.values())
    for i, (name, ms) in enumerate(words.items()):
        y = 36 + 30 * i
        drawing.words(20, y + 15, name)
        drawing.box(250, y, ms * scale, 20, "npu" if i == 0 else "box")
        drawing.words(256 + ms * scale, y + 15, f"{ms:.2f}", "small")
    x, bottom = 250 + bound * scale, 36 + 30 * len(words)
    drawing.line(x, 30, x, bottom, "way dots")
    drawing.words(x, bottom + 14, f"bound of all plans {bound:.2f}", "small", "middle")
    return drawing


def labels(example: Example) -> Drawing:
    """Three labels of the search at one ideal, by what is still to be paid."""
    problem = example.problem
    ideal = next(s.units for s in example.plan.segments if s.target == NPU)
    n = len(ideal)
    entering = problem.boundary_bytes(ideal)[1]
    k = problem.target_index(NPU)
    handed = entering * problem.out_ns_per_byte[k] / 1e6
    rows = (
        (NPU, "on the NPU, segment open", "the next unit joins for its own work alone"),
        (NPU, "NPU segment ended", f"result handed over for {handed:.3f} ms; anything may open"),
        (CPU, "on the CPU, segment open", "an NPU segment that opens pays its invocation"),
    )
    drawing = Drawing(
        *(720, 210),
        "Labels: ways to stand at one ideal",
        f"After the first {n} units the search may stand in several ways, which differ in what the "
        "rest will cost: " + "; ".join(f"{what}: {so}" for _, what, so in rows) + ".",
    )
    drawing.words(
        20, 20, f"after units 0 to {n - 1}: one ideal, several labels (estimated)", "strong"
    )
    for i, (target, what, so) in enumerate(rows):
        y = 40 + 54 * i
        drawing.box(20, y, 220, 40, _kind(target))
        drawing.words(30, y + 25, what, "on")
        drawing.arrow(246, y + 20, 284, y + 20)
        drawing.words(292, y + 25, so)
    return drawing


def _kind(target: Target) -> str:
    return KINDS[target]


def refinement(_: Example) -> Drawing:
    """Measure, plan, measure what was planned."""
    boxes = (
        (20, "measure", "units, chains", "cpu"),
        (200, "fit", "overhead, transfer, work", "cost"),
        (380, "plan", "exact, under these costs", "npu"),
        (560, "measure whole", "regions of the plan", "cpu"),
    )
    drawing = Drawing(
        *(720, 210),
        "Refinement",
        "Units and chains are measured; costs are fitted; a plan is found; the plan's regions that "
        "were never measured whole are measured and go into the fit; when nothing new is to be "
        "measured, plan and baselines run end to end.",
    )
    for x, head, below, kind in boxes:
        drawing.box(x, 40, 140, 56, kind)
        drawing.words(x + 70, 63, head, "on strong", "middle")
        drawing.words(x + 70, 83, below, "on small", "middle")
    for x, *_ in boxes[:-1]:
        drawing.arrow(x + 142, 68, x + 178, 68)
    drawing.path("M630 98C630 150 270 150 270 100")
    drawing.words(180, 160, "until no region is left to measure", "small", "middle")
    drawing.path("M450 98L450 170")
    drawing.box(330, 172, 240, 30, "gpu")
    drawing.words(450, 192, "plan and baselines run end to end", "on small", "middle")
    return drawing


PICTURES: dict[str, Callable[[Example], Drawing]] = {
    "units.svg": units,
    "ideals.svg": ideals,
    "costs.svg": costs,
    "labels.svg": labels,
    "plans.svg": plans,
    "refinement.svg": refinement,
    "rooms.svg": lambda _: rooms(),
}


def pictures() -> dict[str, str]:
    """Every picture as it should be now, by the name of its file."""
    example = tutorials_network()
    return {name: str(draw(example)) for name, draw in PICTURES.items()}


def main() -> None:
    for name, text in pictures().items():
        (HERE / name).write_text(text)
        print(HERE / name)


if __name__ == "__main__":
    main()
