"""Run commands with ``--device qnn:CHIP`` and show results of Qualcomm's compiler and simulator.

``estimate`` takes several chips; ``profile``, ``partition`` and ``go`` take one, and show its costs
and plan in the terminal or as a document.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnapi_prof.cli.command import COMMON
from nnapi_prof.cli.output import (
    as_json,
    boxed,
    check_writable,
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
from nnapi_prof.qnn import is_qnn
from nnapi_prof.reports.words import calibration_words

if TYPE_CHECKING:
    from nnapi_prof.api.chips import ChipEstimates, ChipResult
    from nnapi_prof.graph.plan import Plan, Segment
    from nnapi_prof.qnn.network import ChipEstimate


def estimate_on_chips(
    device: str,
    inputs: tuple[str, ...],
    model: Path,
    options: dict[str, Any],
    samples: tuple[str | None, int | None],
) -> None:
    """Prints the operations of a model that NPUs support, and its estimated latency."""
    if not is_qnn(device):
        raise UsageError(
            f"estimate needs no device, and takes --device qnn:CHIP only: {device!r} is measured by"
            " `nnapi-prof profile`"
        )
    if asked := [name for name, value in options.items() if value]:
        raise UsageError(f"--{asked[0]} is for --phone", "leave it out")
    with listening() as listener:
        from nnapi_prof.api.chips import estimate_chips
        from nnapi_prof.api.costs import CalibrationOptions

        estimates = estimate_chips(
            model, device, inputs=inputs, samples=CalibrationOptions(*samples), listener=listener
        )
    say(estimates.licence)
    if as_json():
        from nnapi_prof.documents.chips import of_chips

        print_document(of_chips(estimates))
        return
    _show_chip_estimates(estimates)


def _show_chip_estimates(estimates: ChipEstimates) -> None:
    console = stdout()
    label = f"{estimates.precision.value}: ms, estimated by Qualcomm's simulator"
    title = f"{estimates.model} on NPUs, {label}"
    table = boxed(title, ["chip"], ["whole", "nine of ten within", "on the NPU", "refused"])
    for one in estimates.chips:
        band = f"{ms(one.low_ns)} to {ms(one.high_ns)}" if one.low_ns is not None else "–"
        whole = ms(one.whole_ns) + (" (order only)" if _order_only(one) else "")
        refused = sum(part.count for part in one.refused)
        table.add_row(one.chip, whole, band, str(sum(one.taken.values())), str(refused))
    console.print(table)
    refusals = [
        (
            one.chip,
            f"{part.count} {part.operation}: {part.reason or 'the compiler gives no reason'}",
        )
        for one in estimates.chips
        for part in one.refused
    ]
    refusals += [(one.chip, one.error) for one in estimates.chips if one.error and not one.refused]
    if refusals:
        listed(console, "Not on the NPU", refusals)
    for doubt in dict.fromkeys(d.words() for one in estimates.chips for d in one.doubts):
        line(console, f"? {doubt}.")
    for one in estimates.chips:
        if one.calibration is not None and one.whole_ns is not None:
            line(console, f"{one.chip}: {calibration_words(one.calibration)}.")
    line(
        console,
        "Nothing of this was measured. A phone measures it: `nnapi-prof profile`, or Qualcomm AI"
        " Hub for the whole network.",
    )


def _order_only(one: ChipEstimate) -> bool:
    return one.whole_ns is not None and one.calibration is not None and one.calibration.order_only


def write_for_chip(
    context: click.Context,
    device: str | None,
    inputs: tuple[str, ...],
    model: Path,
    output: Path | None,
    samples: tuple[str | None, int | None],
) -> None:
    """Writes the files of ``convert --to qnn``, and prints a summary. Raises UsageError where no
    chip is named, or another format is requested as well."""
    from nnapi_prof.cli.options import names_bundle

    if device is None or not is_qnn(device):
        raise UsageError("--to qnn writes for one chip", "name it, as --device qnn:SM8650")
    if set(context.params["formats"]) != {"qnn"} or names_bundle(model):
        raise UsageError("--to qnn is of a model, and the only format", "leave the others out")
    with listening() as listener:
        from nnapi_prof.api.chips import convert_for_chip
        from nnapi_prof.api.costs import CalibrationOptions

        files = convert_for_chip(
            model,
            device,
            output,
            inputs=inputs,
            samples=CalibrationOptions(*samples),
            listener=listener,
        )
    if as_json():
        from nnapi_prof.documents.chips import of_chip_files

        print_document(of_chip_files(files))
        return
    console = stdout()
    for path in (files.path, *files.binaries):
        line(console, f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    left = sum(part.count for part in files.refused)
    line(
        console,
        f"{files.on_npu} operations on the NPU of {files.chip} in {files.precision.value},"
        f" {left} for ONNX Runtime's CPU",
    )
    if files.channels_last:
        line(console, f"images are channels last now: {', '.join(files.channels_last)}")
    line(
        console,
        f"The binary is for {files.chip} only. Nobody has loaded it on a phone: that needs ONNX"
        " Runtime with the QNN execution provider and QAIRT libraries of a version that goes with"
        " it.",
    )


SLOWEST = 10
LABEL = "ms, estimated by Qualcomm's simulator"
PLAN_OPTIONS = ("forbid", "pin", "max_regions", "listed", "best")
"""Fields of :class:`nnapi_prof.Latency` that plans for a chip support."""
TAKEN = {"device_spec", "inputs", "model", "output", "calibration", "samples", "seconds"}
TAKEN |= {*PLAN_OPTIONS, *COMMON}


def on_chip(context: click.Context, *, bundle: bool = False, report: bool = False) -> bool:
    """Plans for a chip and prints the result if a command's ``--device`` is one, and returns
    whether it is. With ``bundle`` the result is also saved to the folder of ``--output``, with
    ``report`` a report is written to that file, and the bundle beside it.

    Raises UsageError for an option that is only for devices.
    """
    params = context.params
    device: str | None = params["device_spec"]
    if device is None or not is_qnn(device):
        return False
    from nnapi_prof.api.chips import profile_on_chip
    from nnapi_prof.api.costs import CalibrationOptions
    from nnapi_prof.api.model import load
    from nnapi_prof.execution.objectives import Latency
    from nnapi_prof.qnn import no_conditions

    no_conditions(device, _asked(context, TAKEN | ({"open_it"} if report else set())))
    model: Path = params["model"]
    output: Path | None = params.get("output")
    file = (output or model.with_suffix(".html")) if report else None
    folder = file.with_suffix(".nnprof") if file else output or model.with_suffix(".nnprof")
    if file is not None:
        check_writable(file)
    with listening() as listener:
        loaded = load(model, params["inputs"], listener=listener)
        result = profile_on_chip(
            loaded,
            device,
            listener,
            objective=Latency(**{n: params[n] for n in PLAN_OPTIONS if n in params}),
            seconds=params.get("seconds"),
            samples=CalibrationOptions(params.get("calibration"), params.get("samples")),
        )
        if bundle or report:
            result.planned.save(folder)
        if file is not None:
            with listener.working("writing the report"):
                result.planned.report(file)
    if as_json():
        from nnapi_prof.documents.chips import of_chip_plan

        print_document(of_chip_plan(result))
    else:
        _show_chip_result(result)
    if bundle or report:
        say(f"bundle in {folder}")
    if file is not None:
        say(f"report in {file}")
        if params["open_it"] and not click.launch(str(file.resolve())):
            say("note: no browser was opened: the system has none")
    return True


def _asked(context: click.Context, taken: Collection[str]) -> list[str]:
    """Returns the names of options on the command line that are not in ``taken``."""
    typed = click.core.ParameterSource.COMMANDLINE
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and parameter.name not in taken
        and context.get_parameter_source(parameter.name) is typed
    ]


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
    show_plans(console, f"Plan and baselines, {LABEL}", result.planned.plans, (error, of_plan))
    refusals = {
        graph.units[unit].label: reason
        for (unit, target), reason in sorted(costs.refusals.items())
        if target == costs.npu
    }
    if refusals:
        listed(console, "Not on the NPU", refusals.items())
    from nnapi_prof.reports.headline import tie_words

    if words := tie_words(result.planned.report_data()):
        line(console, words.strip())
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
    for note in result.costs.notes:
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
