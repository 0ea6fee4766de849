"""``profile``, ``partition`` and ``go`` with ``--device qnn:CHIP``: costs and plan by Qualcomm's
simulator, in the terminal or as a document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    listed,
    ms,
    print_document,
    say,
    show_plans,
    show_segments,
    stdout,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.errors import UsageError
from nnapi_prof.qnn.chips import is_qnn

if TYPE_CHECKING:
    from nnapi_prof.api.chip_costs import ChipResult
    from nnapi_prof.graph.plan import Plan, Segment

SLOWEST = 10
LABEL = "ms, estimated by Qualcomm's simulator"


def on_chip(
    device: str | None, inputs: tuple[str, ...], model: Path, output: Path | None = None
) -> bool:
    """Plans for a chip and prints what came of it, where ``device`` is one.

    Raises UsageError where an ``output`` is asked for: no bundle runs on such a device.
    """
    if device is None or not is_qnn(device):
        return False
    if output is not None:
        raise UsageError(
            f"no bundle runs on {device}", "leave --output out, --json is the plan as a document"
        )
    from nnapi_prof.api.chip_costs import profile_on_chip
    from nnapi_prof.api.model import load

    with listening() as listener:
        loaded = load(model, inputs, listener=listener)
        result = profile_on_chip(loaded, device, listener)
    if as_json():
        from nnapi_prof.documents.chip_plan import of_chip_plan

        print_document(of_chip_plan(result))
    else:
        _show_chip_result(result)
    return True


def _show_chip_result(result: ChipResult) -> None:
    console, profile, costs = stdout(), result.profile, result.profile.costs
    graph = costs.graph
    table = boxed(f"{SLOWEST} slowest units, {LABEL}", ["unit"], [t.key for t in costs.targets])
    by_unit = [
        [costs.unit_cost(unit.index, target) for target in costs.targets] for unit in graph.units
    ]
    slowest = sorted(range(len(by_unit)), key=lambda u: -max(ns or 0.0 for ns in by_unit[u]))
    for unit in slowest[:SLOWEST]:
        table.add_row(graph.units[unit].label, *map(ms, by_unit[unit]))
    console.print(table)

    def of_segment(segment: Segment) -> str:
        return _percent(costs.error_of(segment.units, segment.target))

    def of_plan(plan: Plan) -> str:
        return _percent(costs.plan_error(plan))

    error = "± (9 of 10)"
    show_segments(console, f"Plan, {LABEL}", graph, result.plan, (error, of_segment))
    show_plans(console, f"Plan and baselines, {LABEL}", profile.plans, (error, of_plan))
    refusals = {
        graph.units[unit].label: reason
        for (unit, target), reason in sorted(costs.refusals.items())
        if target == costs.npu
    }
    if refusals:
        listed(console, "Not on the NPU", refusals.items())
    if ties := result.ties:
        line(
            console,
            f"A tie: the plan gains less than {result.calibration.tie:.0%} over {', '.join(ties)},"
            " which is within the estimate's error. Run both on a phone.",
        )
    for label, doubts in profile.doubts.items():
        for doubt in doubts:
            line(console, f"? {label}: {doubt.words()}.")
    for label, words in profile.failures.items():
        line(console, f"? {label}: no estimate: {words}")
    sums = sorted(abs(error) for error in profile.errors)
    if sums:
        line(
            console,
            f"Sums of units were {sums[len(sums) // 2]:.0%} off in the median, {sums[-1]:.0%} at"
            f" worst, over {len(sums)} regions compiled whole; those of the plan are"
            + (" all compiled whole." if profile.stable else " not all compiled yet."),
        )
    for note in result.notes:
        line(console, f"{note[0].upper()}{note[1:]}.")
    line(
        console,
        "Nothing of this was measured. Take the plan to a phone: `nnapi-prof go --device SERIAL`"
        " measures it by NNAPI, Qualcomm AI Hub the whole network on the NPU.",
    )
    say(
        f"{profile.n_regions} regions, {profile.n_compiled} graphs compiled,"
        f" {profile.rounds} rounds of planning"
    )


def _percent(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.0%}"
